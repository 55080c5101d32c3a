#!/bin/bash
# Fails unless all of the node's GPUs answer from inside the container.
set -euo pipefail

case $SUNSPOT_DRIVER in
none) exit ;;
nvidia) ask=(nvidia-smi --list-gpus) line='^GPU ' ;;
rocm) ask=(rocminfo) line='Device Type: *GPU' ;;
esac

read -ra devices <<<"$SUNSPOT_DEVICE_FLAGS"
answer=$(docker run --rm --network=none "${devices[@]}" \
    --entrypoint="${ask[0]}" "$SUNSPOT_IMAGE" "${ask[@]:1}")
echo "$answer"
found=$(grep --count "$line" <<<"$answer" || true)
if [ "$found" -ne "$SUNSPOT_GPUS" ]; then
    echo "$found of $SUNSPOT_GPUS GPUs (${SUNSPOT_ACCELERATOR:-any}) answer in the container" >&2
    exit 1
fi
