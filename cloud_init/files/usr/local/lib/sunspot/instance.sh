#!/bin/bash
# Writes this machine's name, region and zone for the Ray unit.
set -euo pipefail

mkdir -p /run/sunspot
curl --fail --silent --show-error --noproxy '*' --max-time 10 \
    --retry 8 --retry-all-errors --retry-max-time 300 \
    --header 'Metadata: true' \
    "$SUNSPOT_IMDS_URL/metadata/instance/compute?api-version=2021-02-01" |
    python3 -c '
import json, sys

compute = json.load(sys.stdin)
print("RAY_CLOUD_INSTANCE_ID=" + compute["name"])
print("RAY_NODE_REGION=" + compute["location"])
if compute["zone"]:
    print("RAY_NODE_ZONE=" + compute["zone"])
' >/run/sunspot/instance.env.new
mv /run/sunspot/instance.env.new /run/sunspot/instance.env
