"""What a stack needs of Slurm, each precondition on its own (`sunspot doctor`)."""

from __future__ import annotations

from sunspot.errors import SunspotError
from sunspot.stack import Stack
from sunspot.targets.protocol import Finding, Progress
from sunspot.targets.slurm import checks, plan
from sunspot.targets.slurm.commands import Slurm

# Whether a folder, or the nearest one above it that exists, can be written.
_IS_WRITABLE = """
path=$0
while [ ! -e "$path" ]; do path=$(dirname "$path"); done
[ -d "$path" ] || { echo "$path is not a folder" >&2; exit 1; }
[ -w "$path" ] || { echo "$path is not yours to write" >&2; exit 1; }
"""


def check(stack: Stack, slurm: Slurm, progress: Progress) -> list[Finding]:
    """Everything that a stack, fitted to this target, needs of Slurm."""
    progress("asking Slurm")
    found = [
        Finding(check=problem.key, level="failure", detail=problem.text, remedy=problem.remedy)
        for problem in checks.of_settings(stack)
    ]
    try:
        version = slurm.run("sinfo", "--version").strip()
        offered = checks.offers(slurm)
    except SunspotError as error:
        return [*found, Finding(check="Slurm", level="failure", detail=str(error))]
    names = ", ".join(dict.fromkeys(offer.partition for offer in offered))
    found.append(Finding(check="Slurm", level="ok", detail=f"{version}; partitions: {names}"))
    if not found[:-1]:
        found += _partitions(stack, offered)
    return [*found, _folder(stack, slurm), _time(stack)]


def _partitions(stack: Stack, offered: list[checks.Offer]) -> list[Finding]:
    problems = checks.of_partitions(stack, offered)
    if not problems:
        nodes = sum(one.nodes for one in plan.requests(stack))
        return [
            Finding(check="nodes", level="ok", detail=f"{nodes} of them at the start, which fit")
        ]
    return [
        Finding(check=problem.key, level="failure", detail=problem.text, remedy=problem.remedy)
        for problem in problems
    ]


def _folder(stack: Stack, slurm: Slurm) -> Finding:
    folder = plan.settings(stack).folder
    try:
        path = slurm.expand(folder)
        slurm.run("sh", "-c", _IS_WRITABLE, path)
    except SunspotError as error:
        return Finding(
            check="folder",
            level="failure",
            detail=f"{folder} cannot be written: {error}",
            remedy="name another one, folder in sunspot:slurm",
        )
    return Finding(
        check="folder",
        level="ok",
        detail=f"{path}; whether the nodes see it is checked when the job starts",
    )


def _time(stack: Stack) -> Finding:
    job = plan.settings(stack)
    if job.time is None:
        return Finding(
            check="time",
            level="warning",
            detail="none is given, so the partition's default holds",
            remedy='give one in sunspot:slurm, such as time: "1:00:00"',
        )
    return Finding(
        check="time",
        level="ok",
        detail=f"{job.time}; the cluster drains {job.notice_s} s before",
    )
