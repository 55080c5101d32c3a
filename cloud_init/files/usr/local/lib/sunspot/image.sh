#!/bin/bash
# Pulls the Ray image, after a login where its registry asks for one.
set -euo pipefail

have_image() {
    docker image inspect "$SUNSPOT_IMAGE" >/dev/null 2>&1
}

pull() {
    if [ -n "$SUNSPOT_REGISTRY" ]; then
        /usr/local/lib/sunspot/registry.sh || return
    fi
    docker pull --quiet "$SUNSPOT_IMAGE"
}

# A digest names the same image for ever.
case $SUNSPOT_IMAGE in
*@sha256:*) if have_image; then exit; fi ;;
esac

mkdir -p /run/sunspot
DOCKER_CONFIG=$(mktemp -d /run/sunspot/docker.XXXXXX)
export DOCKER_CONFIG
trap 'rm -rf "$DOCKER_CONFIG"' EXIT

for attempt in 1 2 3 4 5 6; do
    if pull; then exit; fi
    # A machine that starts again while the registry is away runs the image that it has.
    if have_image; then exit; fi
    echo "Pull $attempt of 6 of $SUNSPOT_IMAGE failed" >&2
    sleep $((attempt * 10))
done
exit 1
