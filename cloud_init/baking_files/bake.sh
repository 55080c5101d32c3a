#!/bin/bash
# Prepares the disk of a VM image: Docker, a GPU's driver and the container images, by the boot's own
# scripts. Runs once, as root, on the VM that the image is made from.
set -euo pipefail
export SUNSPOT_BAKING=1

scripts=/usr/local/lib/sunspot

mkdir -p /etc/sunspot
# From here on disk.sh leaves Docker's data on the disk that becomes the image.
printf '%s\n' "$SUNSPOT_BAKED" >/etc/sunspot/baked.json
"$scripts/disk.sh"
"$scripts/docker.sh"
systemctl start docker.service
if [ "$SUNSPOT_DRIVER" != none ]; then "$scripts/driver-$SUNSPOT_DRIVER.sh"; fi
for image in $SUNSPOT_IMAGES; do
    SUNSPOT_IMAGE=$image "$scripts/image.sh"
done

# What Docker has written must be on the disk when it is copied; user data brings the scripts anew.
systemctl stop docker.service docker.socket containerd.service
apt-get clean
rm -rf "$scripts" /run/sunspot
