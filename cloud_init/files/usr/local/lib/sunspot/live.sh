#!/bin/bash
# Writes the autoscaler's config from the user data of the head's VM; where that is wrong, or IMDS
# does not answer, from the last right one. From then on Sunspot's node provider follows the user data.
set -euo pipefail

config=$1 kept=/var/lib/sunspot/live.json
# Not beside the config: Ray's container can write there, and might have put a link there.
new=$(mktemp /run/sunspot/live.XXXXXX)
trap 'rm --force "$new"' EXIT

{ curl --fail --silent --show-error --noproxy '*' --max-time 10 \
    --retry 8 --retry-all-errors --retry-max-time 60 \
    --header 'Metadata: true' \
    "$SUNSPOT_IMDS_URL/metadata/instance/compute/userData?api-version=2021-01-01&format=text" || true; } |
    python3 -I /usr/local/lib/sunspot/python/sunspot/node/azure/live.py "$kept" >"$new"
install --no-target-directory --owner="$SUNSPOT_IMAGE_USER" --mode=600 "$new" "$config"
