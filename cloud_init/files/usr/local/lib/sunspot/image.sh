#!/bin/bash
# Pulls the Ray image, after a login where its registry requires one, and tells the units which user
# it runs as.
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

obtain() {
    # A digest always names the same image.
    case $SUNSPOT_IMAGE in
    *@sha256:*) if have_image; then return; fi ;;
    esac

    DOCKER_CONFIG=$(mktemp -d /run/sunspot/docker.XXXXXX)
    export DOCKER_CONFIG
    trap 'rm -rf "$DOCKER_CONFIG"' EXIT

    for attempt in 1 2 3 4 5 6; do
        if pull; then return; fi
        # A machine that restarts while the registry is down runs the image that it has.
        if have_image; then return; fi
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
