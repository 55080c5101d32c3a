#!/bin/bash
# Makes NVIDIA GPUs usable in containers: Ubuntu's signed modules, and NVIDIA's container toolkit.
#
# The modules must match the running kernel. Where Ubuntu has none for it, the newest kernel with
# modules is installed, and the machine restarts once.
set -euo pipefail
# needrestart would look through all processes after each installation.
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1

driver=580-server
restarted=/var/lib/sunspot/restarted-for-driver
keyring=/usr/share/keyrings/nvidia-container-toolkit.asc
packages=https://nvidia.github.io/libnvidia-container

install() {
    apt-get install --yes --no-install-recommends "$@"
}

install_driver() {
    install "linux-modules-nvidia-$driver-open-$1" \
        "nvidia-headless-no-dkms-$driver-open" "nvidia-utils-$driver"
}

install_toolkit() {
    if command -v nvidia-ctk >/dev/null; then return; fi
    curl --fail --silent --show-error --location --retry 5 --retry-all-errors \
        --output "$keyring" "$packages/gpgkey"
    echo "deb [signed-by=$keyring] $packages/stable/deb/$(dpkg --print-architecture) /" \
        >/etc/apt/sources.list.d/nvidia-container-toolkit.list
    apt-get update
    install nvidia-container-toolkit
}

driver_answers() {
    modprobe --all nvidia nvidia_uvm && nvidia-smi --list-gpus
}

mkdir -p /run/sunspot "${restarted%/*}" /etc/cdi
if [ -n "${SUNSPOT_BAKING-}" ]; then
    # The VM that an image is made on has no GPU: what it installs first runs on another.
    apt-get update
    install_driver "$(uname -r)" || install_driver azure
    install_toolkit
    exit
fi
# By NVIDIA's PCI vendor id: without a GPU, neither a driver nor a restart helps.
if ! grep --quiet --no-messages 0x10de /sys/bus/pci/devices/*/vendor; then
    echo "No NVIDIA GPU is in this machine: use a VM size that has one" >&2
    exit 1
fi
if ! driver_answers; then
    # apt waits for the lock of packages, not for that of its lists. If this fails, systemd retries;
    # it is not a reason to install another kernel.
    apt-get update
    if ! { install_driver "$(uname -r)" && driver_answers; }; then
        if [ -e "$restarted" ]; then
            echo "No NVIDIA driver answers, even after a restart: see the lines above" >&2
            exit 1
        fi
        install_driver azure
        touch "$restarted"
        echo "Restarting into a kernel that has NVIDIA modules" >&2
        systemctl reboot
        exit 1
    fi
fi
rm -f "$restarted"
# Only for speed: otherwise each first use initialises the GPU again.
nvidia-smi --persistence-mode=1 || true

install_toolkit

# CUDA needs this file, CDI passes on only those that exist, and udev may be slower or have no rule.
uvm=/dev/nvidia-uvm
udevadm settle --timeout=30 || true
if [ ! -c "$uvm" ]; then
    nvidia-ctk system create-device-nodes --control-devices
fi
if [ ! -c "$uvm" ]; then
    echo "$uvm is not there, and cannot be made: CUDA would not start in containers" >&2
    exit 1
fi
# At every boot: the file names libraries by the driver's version.
nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
echo 'SUNSPOT_DEVICE_FLAGS=--device=nvidia.com/gpu=all' >/run/sunspot/devices.env
