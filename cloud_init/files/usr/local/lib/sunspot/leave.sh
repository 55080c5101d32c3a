#!/bin/bash
# Does what the eviction watcher requests through a file: stops Ray's unit, or restarts it.
set -euo pipefail

cd /run/sunspot/eviction
if [ -e stop ]; then
    systemctl stop sunspot-ray.service
    mv stop stopped
fi
if [ -e return ]; then
    rm --force leaving stopped return
    # On a worker the container outlives its raylet.
    systemctl restart --no-block sunspot-ray.service
fi
