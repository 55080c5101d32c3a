#!/bin/bash
# phase NAME COMMAND [ARGUMENT...]: runs the command and records its outcome in boot.json.
#
# boot.json holds this boot's phases, the last run of each: `start` in seconds since the kernel
# started, `seconds` it took, `ok`. Phases run in parallel, so each has its own file.
set -euo pipefail

phases=/run/sunspot/phases
report=/var/log/sunspot/boot.json

uptime_cs() {
    local up
    read -r up _ </proc/uptime
    echo $((10#${up/./}))
}

seconds() {
    printf '%d.%02d' $(($1 / 100)) $(($1 % 100))
}

name=$1
shift
mkdir -p "$phases" "${report%/*}"

began=$(uptime_cs)
code=0
"$@" || code=$?
took=$(($(uptime_cs) - began))
ok=true
if [ "$code" -ne 0 ]; then ok=false; fi

exec 9>/run/sunspot/phases.lock
flock 9
printf '{"start": %s, "phase": "%s", "seconds": %s, "ok": %s}\n' \
    "$(seconds "$began")" "$name" "$(seconds "$took")" "$ok" >"$phases/$name"
{
    echo '['
    cat "$phases"/* | sort --key=2,2n | sed '$!s/$/,/'
    echo ']'
} >"$report.new"
mv "$report.new" "$report"
exit "$code"
