#!/bin/bash
# Becomes the container that watches for evictions, from Ray's image, since a drain needs Ray.
set -euo pipefail

token=/run/sunspot/token
marks=/run/sunspot/eviction
record=/var/lib/sunspot/state/record
python=/usr/local/lib/sunspot/python

test -s "$token" # if it were missing, docker would create a folder of that name
chown "$SUNSPOT_IMAGE_USER" "$token"
install --directory --owner="$SUNSPOT_IMAGE_USER" --mode=700 "$marks"

export PYTHONPATH=$python RAY_ADDRESS=$SUNSPOT_HEAD_ADDRESS:$SUNSPOT_HEAD_PORT
docker_flags=(
    --name=sunspot-eviction
    --rm
    --init
    --network=host # IMDS, the GCS and the raylet
    --log-driver=none # systemd's journal has the output
    --cap-drop=ALL
    --oom-score-adj=-900 # a task that uses up the memory must not kill the watcher
    --volume="$token:$token:ro"
    --volume="$marks:$marks"
    --volume="$python:$python:ro"
)
# Names only: docker takes the values from its own environment.
for name in \
    RAY_ADDRESS RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH RAY_CLOUD_INSTANCE_ID RAY_NODE_TYPE_NAME \
    PYTHONPATH; do
    docker_flags+=(--env="$name")
done

flags=(--role="$SUNSPOT_ROLE" --imds="$SUNSPOT_IMDS_URL" --marks="$marks")
if [ "$SUNSPOT_ROLE" = head ]; then
    # Ray's unit takes up to 45 s to stop; the head serves all nodes' counters to Prometheus.
    flags+=(--margin=60 --metrics-port="$SUNSPOT_EVICTION_METRICS_PORT")
    # On the state disk; without that, nothing is recorded.
    if [ -z "$SUNSPOT_STATE_LUN" ] || mountpoint --quiet "${record%/*}"; then
        install --directory --owner="$SUNSPOT_IMAGE_USER" --mode=700 "$record"
        docker_flags+=(--volume="$record:$record")
        flags+=(--record="$record")
    fi
fi

exec docker run "${docker_flags[@]}" \
    --entrypoint=python "$SUNSPOT_IMAGE" -m sunspot.node.azure.eviction "${flags[@]}"
