#!/bin/bash
# Prints the uid that the Ray image runs as: what its containers read and write belongs to that user.
# A container tells it, once in a boot.
set -euo pipefail

known=/run/sunspot/image-user

mkdir -p "${known%/*}"
exec {lock}>"$known.lock"
flock "$lock" # several units ask at once
if ! [ -s "$known" ]; then
    docker run --rm --network=none --entrypoint=id "$SUNSPOT_IMAGE" -u >"$known.part"
    mv "$known.part" "$known"
fi
cat "$known"
