#!/bin/bash
# A worker that joins the Ray cluster of the stack @stack@. Submitted by: sunspot scale
@options@

folder="@folder@"
storage="@storage@"

@common@

# Becomes srun, in a subshell.
task() {
    @task@
}

main() {
    set -u
    export SUNSPOT_STORAGE="${SUNSPOT_STORAGE:-$storage}"
    heed_signals
    (task check "$folder" @group@) || exit
    task join "$folder" @group@ @address@ &
    wait_for "$!"
}

@setup@
main
