#!/bin/bash
# Makes AMD GPUs usable in containers. The kernel's driver must be in the VM image.
set -euo pipefail

mkdir -p /run/sunspot
modprobe amdgpu || true # the check below explains a failure
if [ ! -c /dev/kfd ]; then
    echo "/dev/kfd is not there: this VM image has no ROCm driver; use one that has," \
        "such as microsoft-dsvm:ubuntu-hpc:2404-rocm" >&2
    exit 1
fi
flags='--device=/dev/kfd --device=/dev/dri --security-opt=seccomp=unconfined'
# By number: the container's groups may have other names.
for group in $(stat --format=%g /dev/kfd /dev/dri/renderD* | sort --unique); do
    flags+=" --group-add=$group"
done
echo "SUNSPOT_DEVICE_FLAGS='$flags'" >/run/sunspot/devices.env
