#!/bin/bash
# Becomes Grafana, on the loopback address: Ray's dashboards and Sunspot's. It stores nothing.
# The Ray image's user owns Ray's files.
set -euo pipefail

/usr/local/lib/sunspot/pull.sh "$SUNSPOT_GRAFANA_IMAGE"

exec docker run --name=sunspot-grafana --rm --network=host --log-driver=none \
    --user="$SUNSPOT_IMAGE_USER" --cap-drop=ALL --read-only \
    --tmpfs="/var/lib/grafana:uid=$SUNSPOT_IMAGE_USER,mode=700" --tmpfs="/tmp:uid=$SUNSPOT_IMAGE_USER" \
    --volume=/etc/sunspot/grafana:/etc/grafana:ro \
    --volume="$SUNSPOT_SCRATCH/ray:/tmp/ray:ro" \
    --env=GF_PATHS_CONFIG=/etc/grafana/grafana.ini \
    --env=GF_PATHS_PROVISIONING=/etc/grafana/provisioning \
    --env=GF_SERVER_HTTP_PORT="$SUNSPOT_GRAFANA_PORT" \
    "$SUNSPOT_GRAFANA_IMAGE"
