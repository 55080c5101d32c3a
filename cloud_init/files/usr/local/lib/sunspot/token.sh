#!/bin/bash
# Fetches the cluster's token from Key Vault into memory (/run is a tmpfs).
#
# Tokens go from command to command through pipes: an argument would show in `ps`. A role assignment
# takes minutes to take effect, so curl retries, doubling its pauses.
set -euo pipefail

mkdir -p /run/sunspot
umask 077
access=$(/usr/local/lib/sunspot/identity.sh https://vault.azure.net)
printf 'Authorization: Bearer %s' "$access" |
    curl --fail --silent --show-error --max-time 30 \
        --retry 9 --retry-all-errors --retry-max-time 600 \
        --header @- \
        "$SUNSPOT_VAULT_URL/secrets/$SUNSPOT_TOKEN_SECRET?api-version=7.4" |
    python3 -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["value"])' \
        >/run/sunspot/token.new
test -s /run/sunspot/token.new
mv /run/sunspot/token.new /run/sunspot/token
