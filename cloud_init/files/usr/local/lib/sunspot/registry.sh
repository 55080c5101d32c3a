#!/bin/bash
# Logs Docker in to the registry as this machine's identity; the login lasts three hours.
set -euo pipefail

access=$(/usr/local/lib/sunspot/identity.sh https://management.azure.com/)
printf %s "$access" |
    curl --fail --silent --show-error --max-time 30 --retry 3 --retry-all-errors \
        --data grant_type=access_token \
        --data-urlencode "service=$SUNSPOT_REGISTRY" \
        --data-urlencode access_token@- \
        "$SUNSPOT_REGISTRY_URL/oauth2/exchange" |
    python3 -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["refresh_token"])' |
    docker login --username 00000000-0000-0000-0000-000000000000 --password-stdin \
        "$SUNSPOT_REGISTRY"
