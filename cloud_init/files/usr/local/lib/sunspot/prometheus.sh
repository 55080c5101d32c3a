#!/bin/bash
# Becomes Prometheus, on the loopback address: it collects the cluster's metrics.
set -euo pipefail

state=/var/lib/sunspot/state
data=$state/prometheus

if [ -n "$SUNSPOT_STATE_LUN" ] && ! mountpoint --quiet "$state"; then
    echo "Prometheus does not start: its disk is not mounted at $state" >&2
    exit 1
fi

/usr/local/lib/sunspot/pull.sh "$SUNSPOT_PROMETHEUS_IMAGE"

# The Ray image's user owns Ray's files.
install --directory --owner="$SUNSPOT_IMAGE_USER" --mode=700 "$data"
# The image of the head before may have had another user.
chown --recursive "$SUNSPOT_IMAGE_USER" "$data"

exec docker run --name=sunspot-prometheus --rm --network=host --log-driver=none \
    --user="$SUNSPOT_IMAGE_USER" --cap-drop=ALL --read-only \
    --volume=/etc/sunspot/prometheus.yml:/etc/prometheus/prometheus.yml:ro \
    --volume="$SUNSPOT_SCRATCH/ray:/tmp/ray:ro" \
    --volume="$data:/prometheus" \
    --entrypoint=prometheus "$SUNSPOT_PROMETHEUS_IMAGE" \
    --config.file=/etc/prometheus/prometheus.yml \
    --storage.tsdb.path=/prometheus \
    --storage.tsdb.retention.time=15d --storage.tsdb.retention.size=4GB \
    --web.listen-address="127.0.0.1:$SUNSPOT_PROMETHEUS_PORT"
