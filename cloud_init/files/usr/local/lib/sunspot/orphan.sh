#!/bin/bash
# On a worker: deletes this machine once it has been without its cluster for SUNSPOT_ORPHAN_SECONDS,
# whether the head is gone, was stopped, or Ray does not start here. Only the head deletes machines
# otherwise: without it, they would be paid for without end.
#
# A head that restarts, or is slow, is back in minutes: one answer in that time begins it anew.
set -euo pipefail

limit=$SUNSPOT_ORPHAN_SECONDS
health="http://127.0.0.1:$SUNSPOT_AGENT_PORT/api/local_raylet_healthz"
arm=${SUNSPOT_ARM_URL:-https://management.azure.com}
set_path=/subscriptions/$SUNSPOT_SUBSCRIPTION_ID/resourceGroups/$SUNSPOT_RESOURCE_GROUP
set_path+=/providers/Microsoft.Compute/virtualMachineScaleSets/$SUNSPOT_SCALE_SET

# Not the clock, which may jump.
uptime_s() {
    local up
    read -r up _ </proc/uptime
    echo "${up%%.*}"
}

head_answers() {
    # shellcheck disable=SC2016 # the inner shell expands them
    timeout 5 bash -c ': <>"/dev/tcp/$0/$1"' "$SUNSPOT_HEAD_ADDRESS" "$SUNSPOT_HEAD_PORT" 2>/dev/null
}

# Ray's own answer is "healthy" as well while the GCS cannot be asked (healthz_agent.py, 2.60).
is_member() {
    head_answers &&
        curl --fail --silent --noproxy '*' --max-time 10 --output /dev/null "$health"
}

say() {
    echo "$1" >&2
    echo "sunspot: $1" 2>/dev/null >>/dev/console || true
}

# Asks the scale set to delete this one of its machines, which lowers its capacity by one: a deletion
# that was asked for is not an eviction, so Azure's spot restore does not bring the machine back.
delete_machine() {
    local access name=${RAY_CLOUD_INSTANCE_ID-}
    if [ -z "$name" ]; then # IMDS did not answer at the boot
        /usr/local/lib/sunspot/instance.sh
        name=$(sed -n 's/^RAY_CLOUD_INSTANCE_ID=//p' /run/sunspot/instance.env)
    fi
    access=$(/usr/local/lib/sunspot/identity.sh https://management.azure.com/)
    # Where this is called, a failure above does not end it.
    if [ -z "$name" ] || [ -z "$access" ]; then return 1; fi
    printf 'Authorization: Bearer %s' "$access" |
        curl --fail-with-body --silent --show-error --max-time 60 \
            --header @- --header 'Content-Type: application/json' \
            --data "{\"instanceIds\": [\"$name\"]}" \
            "$arm$set_path/delete?api-version=2024-11-01" >&2
}

seen=$(uptime_s)
while true; do
    if is_member; then
        seen=$(uptime_s)
    elif [ $(($(uptime_s) - seen)) -ge "$limit" ]; then
        say "no member of a cluster for $limit s: this machine stops Ray and deletes itself"
        # Ray drains the node when it is told to stop.
        systemctl stop sunspot-ray.service || true
        if (delete_machine); then
            say "Azure was asked to delete this machine"
        elif head_answers; then
            say "the machine is not deleted, and its head is back: Ray starts again"
            systemctl start --no-block sunspot-ray.service || true
            seen=$(uptime_s)
        else
            say "the machine is not deleted, and asks again: see journalctl -u sunspot-orphan"
        fi
        # At different times for the machines of a set, of which Azure changes a few a minute.
        sleep $((60 + RANDOM % 60))
    fi
    sleep 15
done
