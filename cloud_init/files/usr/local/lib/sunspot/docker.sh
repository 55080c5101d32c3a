#!/bin/bash
# Installs Docker where the VM image has none.
set -euo pipefail
# needrestart would look through all processes after each installation.
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1

if ! command -v docker >/dev/null; then
    apt-get update
    # Where the kernel has AppArmor, Docker needs its parser, which the package only recommends.
    # pigz unpacks image layers on all cores.
    apt-get install --yes --no-install-recommends docker.io apparmor pigz
fi
usermod --append --groups docker "$SUNSPOT_ADMIN_USER"
