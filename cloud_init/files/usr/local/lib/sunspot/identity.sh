#!/bin/bash
# identity RESOURCE: prints an access token of this machine's identity for the resource.
#
# A new machine's identity takes a while to appear, so curl retries, doubling its pauses.
set -euo pipefail

curl --fail --silent --show-error --noproxy '*' --max-time 10 \
    --retry 8 --retry-all-errors --retry-max-time 300 \
    --header 'Metadata: true' --get \
    --data 'api-version=2018-02-01' \
    --data-urlencode "resource=$1" \
    --data-urlencode "client_id=$SUNSPOT_IDENTITY_CLIENT_ID" \
    "$SUNSPOT_IMDS_URL/metadata/identity/oauth2/token" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])'
