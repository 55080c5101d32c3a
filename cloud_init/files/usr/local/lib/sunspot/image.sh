#!/bin/bash
# Pulls the Ray image, and tells the units which user it runs as.
set -euo pipefail

obtain() {
    for attempt in 1 2 3 4 5 6; do
        if /usr/local/lib/sunspot/pull.sh "$SUNSPOT_IMAGE"; then return; fi
        echo "Pull $attempt of 6 of $SUNSPOT_IMAGE failed" >&2
        sleep $((attempt * 10))
    done
    return 1
}

mkdir -p /run/sunspot
obtain
# This user owns what its containers read and write.
user=$(docker run --rm --network=none --entrypoint=id "$SUNSPOT_IMAGE" -u)
echo "SUNSPOT_IMAGE_USER=$user" >/run/sunspot/image.env
