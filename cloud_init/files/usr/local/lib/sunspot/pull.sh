#!/bin/bash
# pull IMAGE: one attempt to pull it, after a login if it is in the stack's own registry.
set -euo pipefail

image=$1

have_image() {
    docker image inspect "$image" >/dev/null 2>&1
}

pull() {
    case $image in
    "$SUNSPOT_REGISTRY"/*) /usr/local/lib/sunspot/registry.sh || return ;;
    esac
    docker pull --quiet "$image"
}

# A digest always names the same image.
case $image in
*@sha256:*) if have_image; then exit; fi ;;
esac

mkdir -p /run/sunspot
DOCKER_CONFIG=$(mktemp -d /run/sunspot/docker.XXXXXX)
export DOCKER_CONFIG
trap 'rm -rf "$DOCKER_CONFIG"' EXIT

# A machine that restarts while the registry is down runs the image that it has.
pull || have_image
