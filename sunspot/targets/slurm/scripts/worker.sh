#!/bin/bash
# A worker that joins the Ray cluster of the stack @stack@. Submitted by: sunspot scale
@options@

folder="@folder@"
storage="@storage@"

# shellcheck disable=SC2016 # the node's shell expands it
on_node='
    if [ ! -r "$1/plan.json" ]; then
        echo "sunspot: node ${SLURMD_NODENAME:-$(hostname)} does not see $1: name a folder that all" \
            "nodes share, folder in sunspot:slurm" >&2
        exit 2
    fi
    shift
    exec "$@"'

# Becomes srun, in a subshell.
task() {
    @task@
}

main() {
    set -u
    umask 077
    export SUNSPOT_STORAGE="${SUNSPOT_STORAGE:-$storage}"
    trap 'signalled=1; touch "$folder/notice-$SLURM_JOB_ID"' USR1
    trap 'signalled=1' TERM INT
    (task check "$folder" @group@) || exit
    task join "$folder" @group@ @address@ &
    local worker=$! code
    while true; do
        signalled=
        wait "$worker"
        code=$?
        if [ -z "$signalled" ] || ! kill -0 "$worker" 2> /dev/null; then
            exit "$code"
        fi
    done
}

@setup@
main
