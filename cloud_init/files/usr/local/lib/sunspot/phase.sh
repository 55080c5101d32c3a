#!/bin/bash
# phase NAME COMMAND [ARGUMENT...]: runs the command and records its outcome in boot.json.
#
# boot.json holds this boot's phases, the last run of each: `start` in seconds since the kernel
# started, `seconds` it took, `ok`. Phases run in parallel, so each has its own file. A failure is also
# written to the console, whose log Azure keeps: the head reads it there before it gives a machine back.
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
if [ "$code" -ne 0 ]; then
    ok=false
    # The last line of this unit's log, with whatever the command printed.
    said=$(journalctl --quiet --no-pager --output=cat --lines=1 \
        "_SYSTEMD_INVOCATION_ID=${INVOCATION_ID:-none}" 2>/dev/null) || said=
    echo "sunspot: phase $name failed: ${said:0:300}" 2>/dev/null >/dev/console || true
fi

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
