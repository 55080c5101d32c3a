#!/bin/bash
# Returns when this machine's raylet says that it is healthy; fails after about five minutes.
set -euo pipefail

url="http://127.0.0.1:$SUNSPOT_AGENT_PORT/api/local_raylet_healthz"
if ! curl --fail --silent --noproxy '*' --max-time 5 --output /dev/null \
    --retry 150 --retry-delay 2 --retry-all-errors --retry-max-time 300 "$url"; then
    echo "The raylet did not become healthy: see the lines of Ray above" >&2
    exit 1
fi
