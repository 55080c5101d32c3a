#!/bin/bash
# Becomes the container that looks after an idle cluster, from Ray's image, since a drain needs Ray.
set -euo pipefail

token=/run/sunspot/token
state=/var/lib/sunspot/state
python=/usr/local/lib/sunspot/python

test -s "$token" # if it were missing, docker would create a folder of that name
chown "$SUNSPOT_IMAGE_USER" "$token"
if [ -n "$SUNSPOT_STATE_LUN" ]; then mountpoint --quiet "$state"; fi
install --directory --owner="$SUNSPOT_IMAGE_USER" --mode=700 "$state/record"

# Who is logged in by SSH: the container does not see this machine's processes.
sessions=/run/sunspot/sessions
mkdir -p "$sessions"
python3 -I "$python/sunspot/node/usage.py" "$sessions/ssh" $$ >/dev/null &

export PYTHONPATH=$python RAY_ADDRESS=$SUNSPOT_HEAD_ADDRESS:$SUNSPOT_HEAD_PORT
docker_flags=(
    --name=sunspot-idle
    --rm
    --init
    --network=host # IMDS, the dashboard and the GCS
    --log-driver=none # systemd's journal has the output
    --cap-drop=ALL
    --volume="$token:$token:ro"
    --volume="$state/record:$state/record"
    --volume="$sessions:$sessions:ro"
    --volume="$python:$python:ro"
)
# Names only: docker takes the values from its own environment.
for name in RAY_ADDRESS RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH RAY_CLOUD_INSTANCE_ID PYTHONPATH; do
    docker_flags+=(--env="$name")
done

group=/subscriptions/$SUNSPOT_SUBSCRIPTION_ID/resourceGroups/$SUNSPOT_RESOURCE_GROUP
exec docker run "${docker_flags[@]}" \
    --entrypoint=python "$SUNSPOT_IMAGE" -m sunspot.node.azure.idle \
    --group-id="$group" --identity="$SUNSPOT_IDENTITY_CLIENT_ID" \
    --imds="$SUNSPOT_IMDS_URL" --dashboard-port="$SUNSPOT_DASHBOARD_PORT" \
    --sessions="$sessions/ssh"
