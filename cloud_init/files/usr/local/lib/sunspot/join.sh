#!/bin/bash
# Returns when this machine's raylet is healthy; fails after five minutes, or as soon as Ray's
# container ends: systemd waits for this script before it restarts the container.
set -euo pipefail

url="http://127.0.0.1:$SUNSPOT_AGENT_PORT/api/local_raylet_healthz"
limit=${SUNSPOT_JOIN_SECONDS:-300}

healthy() {
    # First in the shell: starting curl every two seconds would slow down Ray on a small machine.
    { : <>"/dev/tcp/127.0.0.1/$SUNSPOT_AGENT_PORT"; } 2>/dev/null || return
    curl --fail --silent --noproxy '*' --max-time 5 --output /dev/null "$url"
}

until healthy; do
    # systemd sets MAINPID for the commands of a unit.
    if [ -n "${MAINPID-}" ] && ! kill -0 "$MAINPID"; then
        echo "Ray's container ended: see the lines above" >&2
        exit 1
    fi
    if [ "$SECONDS" -ge "$limit" ]; then
        echo "The raylet did not become healthy within $limit s: see Ray's lines above" >&2
        exit 1
    fi
    sleep 2
done
