#!/bin/bash
# Becomes the Ray container: `ray start --block` on the host's network.
set -euo pipefail

token=/run/sunspot/token
autoscaler=/run/sunspot/autoscaler
state=/var/lib/sunspot/state
files=$SUNSPOT_SCRATCH/ray
python=/usr/local/lib/sunspot/python

# The user that the image runs as owns what Ray reads and writes.
chown "$SUNSPOT_IMAGE_USER" "$token"
mkdir -p "$files"
chown "$SUNSPOT_IMAGE_USER" "$files"

# Sunspot's own modules, before the image's PYTHONPATH.
image_env=$(docker image inspect --format='{{range .Config.Env}}{{println .}}{{end}}' "$SUNSPOT_IMAGE")
image_path=$(sed -n 's/^PYTHONPATH=//p' <<<"$image_env")
export PYTHONPATH=$python${image_path:+:$image_path}

docker_flags=(
    --name=sunspot-ray
    --rm
    --init # reaps the children of tasks that died
    --network=host
    --log-driver=none # systemd's journal has the output
    --shm-size="$SUNSPOT_SHM_BYTES"
    --ulimit=nofile=65536:65536
    --stop-timeout=45
    --volume="$token:$token:ro"
    --volume="$files:/tmp/ray"
    --volume="$python:$python:ro"
)
# Names only: docker takes the values from its own environment. Every RAY_... and AUTOSCALER_... there
# is meant for Ray, so one of its settings needs only a line in node.env.
for name in "${!RAY_@}" "${!AUTOSCALER_@}" DASHBOARD_METRIC_PORT \
    PYTHONPATH AZURE_CLIENT_ID \
    SUNSPOT_CLUSTER SUNSPOT_STORAGE \
    SUNSPOT_SUBSCRIPTION_ID SUNSPOT_RESOURCE_GROUP SUNSPOT_SCALE_SET; do
    docker_flags+=(--env="$name")
done
read -ra devices <<<"${SUNSPOT_DEVICE_FLAGS-}"

# The flags that were known before this machine existed; its name was not.
read -ra ray_flags <<<"$SUNSPOT_RAY_FLAGS"
ray_flags+=(--node-name="$RAY_CLOUD_INSTANCE_ID")

if [ "$SUNSPOT_ROLE" = head ]; then
    # Otherwise a cluster would begin on the OS disk, and the mounted disk would hide it later.
    if [ -n "$SUNSPOT_STATE_LUN" ] && ! mountpoint --quiet "$state"; then
        echo "Ray does not start: the disk of the cluster's state is not mounted at $state" >&2
        echo "(LUN $SUNSPOT_STATE_LUN). See journalctl -u sunspot-state; Ray tries again by itself" >&2
        exit 1
    fi
    # The GCS's state survives the container and a restart of the machine.
    gcs=${RAY_gcs_storage_path:?}
    # And so do its events and notices.
    record=/var/lib/sunspot/state/record
    install --directory --owner="$SUNSPOT_IMAGE_USER" --mode=700 "$gcs" "$record"
    # The image of the head before may have had another user.
    chown --recursive "$SUNSPOT_IMAGE_USER" "$gcs" "$record"
    docker_flags+=(--volume="$gcs:$gcs" --volume="$record:$record")
fi
if [ "$SUNSPOT_ROLE" = head ] && [ -n "$SUNSPOT_AUTOSCALED" ]; then
    # Whatever a job has put there.
    rm --recursive --force "$autoscaler"
    install --directory --owner="$SUNSPOT_IMAGE_USER" --mode=700 "$autoscaler"
    /usr/local/lib/sunspot/live.sh "$autoscaler/config.yaml"
    docker_flags+=(--volume="$autoscaler:$autoscaler")
fi

exec docker run "${docker_flags[@]}" "${devices[@]}" \
    --entrypoint=ray "$SUNSPOT_IMAGE" start "${ray_flags[@]}"
