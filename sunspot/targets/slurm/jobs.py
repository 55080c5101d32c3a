"""Jobs as Slurm describes them."""

from __future__ import annotations

from dataclasses import dataclass

# squeue(1), "JOB STATE CODES": what has no nodes that could run something, and what has ended. A
# state that a later Slurm adds, such as EXPEDITING, is none of these. Nodes in a cloud boot for
# minutes while their job is CONFIGURING (github.com/aws/aws-parallelcluster, issue 4236).
WAITING = frozenset({"PENDING", "CONFIGURING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_HOLD",
                     "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})  # fmt: skip
ENDED = frozenset({"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
                   "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job, one element of an array, or one component of a heterogeneous job.

    Attributes:
        id: what scancel takes: "17", or "17_2" for an element of an array.
        name: the job's name.
        state: Slurm's word for its state, such as RUNNING.
        reason: why it waits, or how it ended, in Slurm's words; "" where Slurm gives none.
    """

    id: str
    name: str
    state: str
    reason: str = ""

    @property
    def number(self) -> tuple[int, int]:
        """What sbatch printed, which is the whole array's, and the element; 0 where there is none.

        The newest job has the highest.
        """
        submitted, _, element = self.id.partition("_")
        return int(submitted), int(element or 0)

    @property
    def waits(self) -> bool:
        """Whether it is in the queue, or its nodes are still booting."""
        return self.state in WAITING

    @property
    def why(self) -> str:
        """Why it waits."""
        return self.reason or self.state

    @property
    def is_there(self) -> bool:
        """Whether it waits or has nodes."""
        return self.state not in ENDED

    @property
    def runs(self) -> bool:
        """Whether its tasks run."""
        return self.state == "RUNNING"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job ended: Slurm's word for it, and how its script did, as "CODE:SIGNAL"."""

    state: str
    code: str

    @property
    def signal(self) -> int:
        """The signal that killed the script; 0 if none did."""
        number = self.code.partition(":")[2]
        return int(number) if number.isdecimal() else 0

    @property
    def exit_code(self) -> int:
        """The script's exit code; for a signal as a shell has it."""
        return 128 + self.signal if self.signal else int(self.code.partition(":")[0] or 0)
