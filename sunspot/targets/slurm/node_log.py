"""The log of a node in a Slurm job: a file in the job's folder, named after the node."""

from __future__ import annotations

from typing import TextIO

from sunspot.node.slurm.plan import HEAD
from sunspot.targets import abilities
from sunspot.targets.protocol import Progress
from sunspot.targets.slurm import following
from sunspot.targets.slurm.life import Life


def show(
    life: Life, stack: str, node: str, out: TextIO, note: Progress, *, follow: bool = False
) -> int:
    """Prints a node's log; returns 0.

    Args:
        life: the cluster's jobs.
        stack: the stack's name.
        node: the node's name.
        out: where the log is printed.
        note: called with notes for people.
        follow: whether to go on until the cluster's job has ended.

    Raises:
        UsageError: the cluster never had such a node.
    """
    folder = f"{life.record.folder}/logs"
    names = life.slurm.files(folder)
    known = [name.removesuffix(".log") for name in names if name.endswith(".log")]
    if node not in known:
        known.sort(key=lambda name: (name != HEAD, name))
        raise abilities.unknown(stack, "node", node, known)
    file = f"{folder}/{node}.log"
    note(f"the file: {file}")

    def goes_on() -> bool:
        job = life.main()
        return follow and job is not None and job.is_there

    following.follow(life.slurm, file, out, goes_on)
    return 0
