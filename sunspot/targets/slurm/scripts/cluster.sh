#!/bin/bash
# A Ray cluster of the stack @stack@ within one Slurm job. Printed by: sunspot manifest @stack@ --target slurm
# Run a command on it: sbatch THIS COMMAND... Without a command it stays until its time limit.
@options@

# Everything of this job, in a folder that all its nodes share.
folder="@folder@"
storage="@storage@"
@command@

@common@

# Becomes srun, in a subshell, with an action of the node code on every node of a group.
task() {
    local group=$1
    shift
    case $group in
@tasks@
    esac
}

groups=(@groups@)

fail() {
    echo "sunspot: $*" >&2
    exit 2
}

check_nodes() {
    local nodes=${SLURM_JOB_NUM_NODES_HET_GROUP_0:-${SLURM_JOB_NUM_NODES:-1}}
    [ "$nodes" -ge @nodes@ ] \
        || fail "this allocation has $nodes of the @nodes@ nodes that the stack @stack@ needs"
    local group checks=()
    for group in "${groups[@]}"; do
        task "$group" check "$folder" "$group" > "$folder/check-$group" &
        checks+=($!)
    done
    local check failed=0
    for check in "${checks[@]}"; do
        wait "$check" || failed=$?
    done
    [ "$failed" = 0 ] || exit "$failed"
}

# Leaves the logs.
# shellcheck disable=SC2329 # a trap calls it
clean() {
    rm -f "$folder"/{check,failed,notice}-* "$folder"/{command,token,node.zip,plan.json}
    echo '{}' > "$folder/cluster.json"
}

# Slurm then ends this script. A busy controller may not answer at once.
requeue() {
    local try
    for try in 1 2 3; do
        scontrol requeue "$SLURM_JOB_ID" && break
        sleep "$try"
    done
}

# In a subshell: the command has the umask that its user gave it.
prepare() (
    umask 077
    mkdir -p "$folder/logs" "$storage" || fail "cannot write $folder: change folder in sunspot:slurm"
    # Another user could have made it before, with a token that they can read and code of their own.
    # The storage too: what is loaded from a checkpoint may be code.
    local one
    for one in "$folder" "${storage%/*}" "$storage"; do
        if [ -L "$one" ] || [ ! -O "$one" ]; then
            fail "$one is a link or belongs to another user: give a folder of your own," \
                "folder in sunspot:slurm"
        fi
    done
    chmod 700 "$folder"
    rm -f "$folder"/{failed,notice}-* "$folder"/{command,requeue,token}
    head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' > "$folder/token"
    plan > "$folder/plan.json"
    # Not an argument of srun, which takes a colon for the beginning of another step.
    [ "$#" = 0 ] || printf '%s\0' "$@" > "$folder/command"
    node_code | base64 -d > "$folder/node.zip"
    echo '{}' > "$folder/cluster.json"
)

main() {
    set -u
    prepare "$@" || exit
    export SUNSPOT_STORAGE="${SUNSPOT_STORAGE:-$storage}"
    trap clean EXIT
    heed_signals
    check_nodes
    local address group head code
    # A container may print something before.
    address=$(tail -n 1 "$folder/check-head")
    task head start "$folder" head "$address" &
    head=$!
    for group in "${groups[@]:1}"; do
        task "$group" start "$folder" "$group" "$address" &
    done
    wait_for "$head"
    code=$?
    # The workers end when the head does. A node that is lost does not answer: Slurm ends its task.
    local tries=0
    while [ -n "$(jobs -rp)" ] && [ "$tries" -lt 100 ]; do
        sleep 0.2
        tries=$((tries + 1))
    done
    [ ! -e "$folder/requeue" ] || requeue
    exit "$code"
}

plan() {
    cat << 'END'
@plan@
END
}

node_code() {
    cat << 'END'
@code@
END
}

@setup@
main "$@"
