#!/bin/bash
# Mounts the head's data disk, which keeps the cluster's state and metrics; formats a new one. The disk may
# come from another head, which this one replaces.
set -euo pipefail

state=/var/lib/sunspot/state

mkdir -p "$state"
if [ -z "$SUNSPOT_STATE_LUN" ] || mountpoint --quiet "$state"; then exit; fi

# Azure's names of a data disk: by the agent's rules (SCSI), by azure-vm-utils' (SCSI and NVMe).
disks=(/dev/disk/azure/scsi1/lun"$SUNSPOT_STATE_LUN" /dev/disk/azure/data/by-lun/"$SUNSPOT_STATE_LUN")
disk=
for _ in {1..60}; do
    for name in "${disks[@]}"; do
        if [ -e "$name" ]; then disk=$name; fi
    done
    if [ -n "$disk" ]; then break; fi
    sleep 1 # the disk may still be attaching
done
if [ -z "$disk" ]; then
    echo "There is no data disk at LUN $SUNSPOT_STATE_LUN: the cluster's state cannot be stored" >&2
    exit 1
fi

# Only a disk on which blkid finds nothing (2) is new.
found=0
blkid --probe "$disk" >/dev/null || found=$?
case $found in
0) ;;
2) mkfs.ext4 -q -L sunspot-state "$disk" ;;
*) exit "$found" ;;
esac
mount --options nodev,nosuid,noexec "$disk" "$state"

# Another version of Ray cannot be trusted with the state that one has left: it begins anew, and that stays.
known=$state/ray-version
before=$(cat "$known" 2>/dev/null || true)
if [ -d "$state/gcs" ] && [ "$before" != "$SUNSPOT_RAY_VERSION" ]; then
    aside=$state/gcs-of-ray-${before:-unknown}-$(date --utc +%Y%m%dT%H%M%SZ)
    mv "$state/gcs" "$aside"
    echo "The state on the disk is of Ray ${before:-unknown}, and this head has Ray $SUNSPOT_RAY_VERSION: a new" \
        "cluster begins; the old state is in $aside" >&2
fi
printf '%s\n' "$SUNSPOT_RAY_VERSION" >"$known.new"
mv "$known.new" "$known"
