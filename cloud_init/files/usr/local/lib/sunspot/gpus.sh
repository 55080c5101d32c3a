#!/bin/bash
# Fails unless all of the node's GPUs work inside the container.
set -euo pipefail

python=/usr/local/lib/sunspot/python

case $SUNSPOT_DRIVER in
none) exit ;;
# -I: with no other module of ours or of the image's.
nvidia) ask=(python -I "$python/sunspot/node/azure/cuda.py") line='^GPU ' ;;
rocm) ask=(rocminfo) line='Device Type: *GPU' ;;
esac

read -ra devices <<<"$SUNSPOT_DEVICE_FLAGS"
answer=$(docker run --rm --network=none --volume="$python:$python:ro" "${devices[@]}" \
    --entrypoint="${ask[0]}" "$SUNSPOT_IMAGE" "${ask[@]:1}")
echo "$answer"
found=$(grep --count "$line" <<<"$answer" || true)
if [ "$found" -ne "$SUNSPOT_GPUS" ]; then
    echo "$found of $SUNSPOT_GPUS GPUs (${SUNSPOT_ACCELERATOR:-any}) answer in the container" >&2
    exit 1
fi
