# What each task does first, on its own node.
# shellcheck disable=SC2016 # the node's shell expands it
on_node='
    if [ ! -r "$1/plan.json" ]; then
        echo "sunspot: node ${SLURMD_NODENAME:-$(hostname)} does not see $1: name a folder that all" \
            "nodes share, folder in sunspot:slurm" >&2
        exit 2
    fi
    shift
    exec "$@"'

heed_signals() {
    # Slurm's notice becomes a file: srun would pass the signal on to all of Ray's processes.
    trap 'signalled=1; touch "$folder/notice-$SLURM_JOB_ID"' USR1
    # scancel signals the tasks too, and they end by themselves.
    trap 'signalled=1' TERM INT
}

# Waits for a task, also where a signal ends the wait. bash remembers how a task has ended.
wait_for() {
    local code
    while true; do
        signalled=
        wait "$1"
        code=$?
        [ -n "$signalled" ] || return "$code"
    done
}
