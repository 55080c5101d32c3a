"""What Slurm has given to this task: its node, CPUs and GPUs. The machine is never asked.

The variables: Slurm's man page srun(1), "OUTPUT ENVIRONMENT VARIABLES", and its page "Generic
Resource (GRES) Scheduling", which says that CUDA_VISIBLE_DEVICES is set for each job step.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from sunspot.node.slurm.plan import HEAD, Group

# Lists of devices, the first that is set. The last two are those of the job and not of the step.
_GPU_LISTS = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
)
_NO_GPU = {"", "-1", "NoDevFiles"}


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """One task's part of a job.

    Attributes:
        job: the job's id; of a heterogeneous job, the first component's.
        node: Slurm's name of the node.
        task: the task's number in its job step.
        cpus: its CPUs.
        gpus: its GPUs.
    """

    job: int
    node: str
    task: int
    cpus: int
    gpus: int

    @classmethod
    def of(cls, env: Mapping[str, str] = os.environ) -> Allocation:
        """The allocation that the environment of a task describes."""
        return cls(
            job=int(env.get("SLURM_JOB_ID", "0")),
            node=env.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
            task=int(env.get("SLURM_PROCID", "0")),
            cpus=int(env.get("SLURM_CPUS_PER_TASK") or env.get("SLURM_CPUS_ON_NODE") or "1"),
            gpus=_gpus(env),
        )

    def name(self, group: Group, *, joined: bool) -> str:
        """The node's name in Ray; a job that joins later may run on a node of the first one."""
        if group.name == HEAD:
            return HEAD
        return f"{group.name}-{self.node}" + (f"-{self.job}" if joined else "")

    def lacks(self, group: Group) -> list[str]:
        """What this allocation has too little of for a node of the group, a sentence each."""
        short = []
        if self.cpus < group.cpus:
            short.append(f"Slurm gives {self.cpus} CPUs, {group.name} needs {group.cpus}")
        if self.gpus < group.gpus:
            short.append(
                f"Slurm gives {self.gpus} GPUs, {group.name} needs {group.gpus}: see gres in "
                "sunspot:slurm"
            )
        return short

    def flags(self, group: Group) -> list[str]:
        """The resources as flags of `ray start`. A head that should run no tasks has no CPU."""
        return [
            f"--num-cpus={self.cpus if group.cpus else 0}",
            # A user's own CUDA_VISIBLE_DEVICES may come along into a job that has no GPU.
            f"--num-gpus={self.gpus if group.gpus else 0}",
        ]


def _gpus(env: Mapping[str, str]) -> int:
    for name in _GPU_LISTS:
        devices = [one.strip() for one in env.get(name, "").split(",")]
        if any(devices):
            return sum(device not in _NO_GPU for device in devices)
    count = env.get("SLURM_GPUS_ON_NODE", "")
    return int(count) if count.isdecimal() else 0
