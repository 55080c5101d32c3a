"""What a stack asks of Slurm, compared with what its partitions have: before anything is submitted.

Slurm itself would accept most of this and let the job wait for ever (sbatch(1), --time: a job over
the partition's limit stays pending).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sunspot.node.slurm.plan import HEAD
from sunspot.problems import hint
from sunspot.stack import Stack
from sunspot.targets.slurm import plan
from sunspot.targets.slurm.commands import Slurm
from sunspot.targets.slurm.plan import Request
from sunspot.targets.slurm.settings import Job, seconds

KEY = "config > sunspot:slurm"

# sinfo(1): partition (the default's has a star), time limit, nodes; CPUs, MiB and GPUs of each.
_FORMAT = "%P|%l|%D|%c|%m|%G"
# RealMemory of a node for which slurm.conf gives none: Slurm then refuses every --mem
# (github.com/aws/aws-parallelcluster, issue 2198; github.com/skypilot-org/skypilot, pull 9171).
_UNKNOWN_MB = 1
_GPU = re.compile(r"\bgpu:(?:([^:,()]+):)?(\d+)")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Nodes of a partition that are alike.

    Attributes:
        partition: the partition's name.
        is_default: whether jobs that name no partition go there.
        limit_s: its time limit in seconds; None for none.
        limit: the same as Slurm writes it.
        nodes: how many of these nodes there are.
        cpus: CPUs of each.
        memory_mb: memory of each in MiB.
        gpus: GPUs of each by their type; "" for those without a type.
    """

    partition: str
    is_default: bool
    limit_s: int | None
    limit: str
    nodes: int
    cpus: int
    memory_mb: int
    gpus: dict[str, int]

    def has_gpus(self, gres: str) -> int:
        """How many GPUs of the kind a node has; "gpu" is any kind."""
        _, _, kind = gres.partition(":")
        return self.gpus.get(kind, 0) if kind else sum(self.gpus.values())


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that a stack asks and Slurm does not have: its key, what is wrong, what to do."""

    key: str
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{KEY} > {self.key}: {self.text}: {self.remedy}"


def offers(slurm: Slurm) -> list[Offer]:
    """What the partitions have, the hidden ones too."""
    printed = slurm.ask("sinfo", "--all", "--noheader", "--exact", f"--format={_FORMAT}")
    return [_offer(line) for line in printed.splitlines() if line.count("|") >= 5]


def _offer(line: str) -> Offer:
    name, limit, nodes, cpus, memory, gres = (part.strip() for part in line.split("|", 5))
    return Offer(
        partition=name.rstrip("*"),
        is_default=name.endswith("*"),
        limit_s=None if limit in {"infinite", "UNLIMITED", "n/a"} else seconds(limit),
        limit=limit,
        nodes=int(nodes),
        cpus=int(cpus.rstrip("+")),
        memory_mb=int(memory.rstrip("+")),
        gpus=_gpus(gres),
    )


def _gpus(gres: str) -> dict[str, int]:
    """The GPUs of "gpu:a100:4(S:0-1),nvme:1"."""
    found: dict[str, int] = {}
    for kind, count in _GPU.findall(gres):
        found[kind] = found.get(kind, 0) + int(count)
    return found


def of_settings(stack: Stack) -> list[Problem]:
    """What is wrong with the settings by themselves."""
    groups = [HEAD, *(group.name for group in stack.cluster.scaling_groups)]
    return [
        Problem(
            key=f"groups > {name}",
            text=f"the cluster has no group {name!r}{hint(name, groups)}",
            remedy=f"name one of {', '.join(groups)}",
        )
        for name in plan.settings(stack).groups
        if name not in groups
    ]


def of_partitions(stack: Stack, found: Sequence[Offer]) -> list[Problem]:
    """What the stack asks for and no partition can give."""
    job = plan.settings(stack)
    problems: list[Problem] = []
    for part in plan.components(plan.requests(stack)):
        for request in part:
            problems += _of_request(job, request, found)
        if not problems:
            problems += _of_count(part, found)
    return list({str(problem): problem for problem in problems}.values())


def _of_request(job: Job, request: Request, found: Sequence[Offer]) -> Iterator[Problem]:
    names = _partitions(request)
    known = sorted({offer.partition for offer in found})
    if unknown := [name for name in names if name not in known]:
        yield Problem(
            key="partition",
            text=f"there is no partition {unknown[0]!r}{hint(unknown[0], known)}",
            remedy=f"choose one of {', '.join(known)}",
        )
        return
    here = _candidates(request, found)
    if not here:
        yield Problem(
            key="partition",
            text="none is given, and Slurm has no default partition",
            remedy=f"choose one of {', '.join(known)}",
        )
        return
    where = ", ".join(dict.fromkeys(offer.partition for offer in here))
    yield from _of_time(job, request, here, where)
    yield from _of_size(request, here, where)


def _of_time(job: Job, request: Request, here: Sequence[Offer], where: str) -> Iterator[Problem]:
    # A quality of service may allow more (sacctmgr(1), the flag PartitionTimeLimit).
    if job.time is None or request.place.qos is not None:
        return
    wanted = seconds(job.time)
    if all(offer.limit_s is not None and offer.limit_s < wanted for offer in here):
        longest = max(here, key=lambda offer: offer.limit_s or 0)
        yield Problem(
            key="time",
            text=f"{job.time} is over the limit of partition {where}, {longest.limit}",
            remedy="give at most that, or another partition",
        )


def _of_size(request: Request, here: Sequence[Offer], where: str) -> Iterator[Problem]:
    large = [one for one in here if _holds(one, request)]
    if request.memory_mb and all(one.memory_mb <= _UNKNOWN_MB for one in here):
        yield Problem(
            key="memory",
            text=f"this Slurm does not say how much memory the nodes of partition {where} have",
            remedy="set memory: false, so that none is asked for",
        )
    elif not large:
        most = max(here, key=lambda offer: (offer.cpus, offer.memory_mb))
        yield Problem(
            key="partition",
            text=(
                f"a node of {request.group} needs {_size(request)}, but the largest of partition "
                f"{where} has {most.cpus} and {most.memory_mb}"
            ),
            remedy="give it less in sunspot:cluster, or another partition",
        )
    elif request.gpus and not any(_has_gpus(one, request) for one in large):
        gres = request.gres.rpartition(":")[0]
        most_gpus = max(offer.has_gpus(gres) for offer in here)
        yield Problem(
            key="gres",
            text=(
                f"a node of {request.group} needs {request.gpus} GPUs ({request.gres}), but the "
                f"nodes of partition {where} have at most {most_gpus} of {gres}"
            ),
            remedy="lower gpu_count, or give what `sinfo -o '%P %G'` shows",
        )


def _of_count(part: Sequence[Request], found: Sequence[Offer]) -> Iterator[Problem]:
    """Whether there are as many nodes as one component of the job needs, all of them different."""
    request, wanted = part[0], sum(one.nodes for one in part)
    fit = [
        offer
        for offer in _candidates(request, found)
        if _holds(offer, request) and _has_gpus(offer, request)
    ]
    most = max(
        sum(offer.nodes for offer in fit if offer.partition == name)
        for name in {offer.partition for offer in fit}
    )
    if most < wanted:
        yield Problem(
            key="partition",
            text=(
                f"{' and '.join(one.group for one in part)} need {wanted} nodes, but partition "
                f"{fit[0].partition} has {most} that fit"
            ),
            remedy="lower min_workers, or give another partition",
        )


def _partitions(request: Request) -> list[str]:
    """The partitions that a group names; several mean the one that starts first (sbatch(1))."""
    return [] if request.place.partition is None else request.place.partition.split(",")


def _candidates(request: Request, found: Sequence[Offer]) -> list[Offer]:
    names = _partitions(request)
    return [offer for offer in found if (offer.partition in names if names else offer.is_default)]


def _size(request: Request) -> str:
    memory = f" and {request.memory_mb} MiB" if request.memory_mb else ""
    return f"{request.cpus} CPUs{memory}"


def _holds(offer: Offer, request: Request) -> bool:
    return offer.cpus >= request.cpus and offer.memory_mb >= request.memory_mb


def _has_gpus(offer: Offer, request: Request) -> bool:
    gres = request.gres.rpartition(":")[0]
    return not request.gpus or offer.has_gpus(gres) >= request.gpus
