"""The user's variables that would change what Slurm's commands do for Sunspot."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# Options of the commands that narrow what they show or reach (the man pages' "ENVIRONMENT
# VARIABLES"): with SQUEUE_PARTITION set, squeue does not list a job of another partition.
FILTERS: Mapping[str, tuple[str, ...]] = {
    "squeue": tuple(f"SQUEUE_{one}" for one in ("ACCOUNT", "LICENSES", "PARTITION", "QOS")),
    "sinfo": ("SINFO_PARTITION",),
    "scancel": tuple(
        f"SCANCEL_{one}"
        for one in ("ACCOUNT", "BATCH", "INTERACTIVE", "NAME", "PARTITION", "QOS", "STATE", "USER")
    ),
}

# The variables of sbatch that are not called after their option.
_NAMES = {
    "array": "SBATCH_ARRAY_INX",
    "mem": "SBATCH_MEM_PER_NODE",
    "time": "SBATCH_TIMELIMIT",
}
# What no script of ours says: to wait for the job's end, and to print errors elsewhere; what
# contradicts what each one says; and another cluster, where only sbatch would go.
_UNWANTED = (
    *("SBATCH_WAIT", "SBATCH_ERROR", "SBATCH_REQUEUE", "SBATCH_NO_REQUEUE"),
    *("SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU", "SBATCH_CLUSTERS"),
)

_JOB = "SLURM_JOB_ID"
# Where Slurm is, and not what a job has.
_SITE = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})


def of_submission(script: str, *, env: Mapping[str, str] = os.environ) -> list[str]:
    """The variables without which sbatch submits a script as it is written.

    It would heed its own more than what the script says (sbatch(1)). Those of a job in which it is
    called it passes on to the new job, whose srun takes them for options: SLURM_MEM_PER_CPU beside
    our --mem is an error, and SLURM_CPU_BIND names CPUs of the old job
    (github.com/snakemake/snakemake, issue 2230; github.com/huggingface/datatrove, issue 248).
    """
    said = dict.fromkeys(re.findall(r"^#SBATCH --([a-z-]+)", script, re.MULTILINE))
    named = (f"SBATCH_{option.replace('-', '_').upper()}" for option in said)
    known = [*_UNWANTED, *(_NAMES[one] for one in said if one in _NAMES), *named]
    of_job = [one for one in env if one.startswith("SLURM_") and one not in _SITE]
    return [*known, *(of_job if _JOB in env else ())]
