#!/bin/bash
# Chooses the folder for large files (on the temporary disk, if any) and puts Docker's data there.
set -euo pipefail

mkdir -p /run/sunspot /etc/docker
scratch=/var/lib/sunspot
for mount in /mnt /mnt/resource; do
    if mountpoint --quiet "$mount"; then scratch=$mount/sunspot; fi
done
mkdir -p "$scratch"
data=$scratch/docker
# A baked VM image has the container images on its own disk.
if [ -e /etc/sunspot/baked.json ]; then data=/var/lib/sunspot/docker; fi
echo "SUNSPOT_SCRATCH=$scratch" >/run/sunspot/disk.env

# cdi gives containers GPUs. containerd's own image store would be outside of data-root.
config=$(
    cat <<JSON
{
    "data-root": "$data",
    "features": {"cdi": true, "containerd-snapshotter": false}
}
JSON
)
if [ "$config" != "$(cat /etc/docker/daemon.json 2>/dev/null)" ]; then
    echo "$config" >/etc/docker/daemon.json
    # Some VM images run Docker already. It waits for this unit: do not wait for it.
    if systemctl --quiet is-active docker.service; then
        systemctl --no-block restart docker.service
    fi
fi
