"""Further workers as jobs of their own, which join a cluster; and workers that leave it."""

from __future__ import annotations

import time
from collections.abc import Callable

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.members import label
from sunspot.targets.protocol import Progress
from sunspot.targets.scaling import Size
from sunspot.targets.slurm import plan, script
from sunspot.targets.slurm.jobs import Job
from sunspot.targets.slurm.life import Life, pauses
from sunspot.targets.slurm.script import Submission

DRAIN_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 600.0


def check(stack: Stack, name: str, size: Size) -> ScalingGroup:
    """The group of that name, if it can have this size.

    Raises:
        UsageError: there is no such group, or the size is outside its minimum and maximum.
    """
    group = abilities.group(stack, name)
    if not group.min_workers <= size.minimum <= size.highest <= group.max_workers:
        raise UsageError(
            f"{name}={size} is outside {group.min_workers} to {group.max_workers}, its "
            f"min_workers and max_workers: the first {group.min_workers} share the head's job and "
            f"end with it; change Pulumi.{stack.name}.yaml, take the stack down and bring it up"
        )
    return group


def sizes(life: Life, stack: Stack) -> dict[str, Size]:
    """How many workers each group has in jobs that wait or run: no autoscaler changes that."""
    names = [job.name for job in life.jobs() if job.is_there]
    return {
        group.name: Size(minimum=group.min_workers + names.count(life.record.joining[group.name]))
        for group in stack.cluster.scaling_groups
    }


def scale(
    life: Life,
    stack: Stack,
    group: ScalingGroup,
    size: Size,
    connect: Callable[[], ClusterHandle],
    progress: Progress,
) -> None:
    """Gives a group a size, a range by the nearest number. The caller holds the cluster's lock."""
    name = life.record.joining[group.name]
    joined = [job for job in life.jobs() if job.name == name and job.is_there]
    running = group.min_workers + len(joined)
    more = size.nearest(running) - running
    if more > 0:
        _add(life, stack, group, more, connect(), progress)
    elif more < 0:
        # The newest first.
        newest = sorted(joined, key=lambda job: job.number, reverse=True)
        _remove(life, newest[:-more], progress)


def _add(
    life: Life,
    stack: Stack,
    group: ScalingGroup,
    count: int,
    handle: ClusterHandle,
    progress: Progress,
) -> None:
    """Submits an array of workers and waits for them; whatever stops that, cancels it."""
    request = plan.request(stack, group.name, group.worker_nodes, 1)
    record = life.record
    submission = Submission(
        name=record.joining[group.name],
        folder=record.folder,
        output=f"{record.folder}/logs/{group.name}-%A_%a.out",
    )
    text = script.joining(stack, request, submission, address=handle.head_address, count=count)
    before = _members(handle, group)
    array = life.slurm.submit(text)
    try:
        progress(f"submitted job {array}: {count} workers of {group.name}")
        _wait_for(life, handle, group, before + count, array)
    except BaseException as error:
        with uninterrupted():
            life.slurm.cancel([array])
        error.add_note(f"group {group.name} has the workers that it had before")
        raise


def _wait_for(
    life: Life, handle: ClusterHandle, group: ScalingGroup, count: int, array: str
) -> None:
    deadline, pause = time.monotonic() + JOIN_TIMEOUT_S, pauses()
    while (there := _members(handle, group)) < count:
        jobs = [job for job in life.jobs() if job.name == life.record.joining[group.name]]
        if over := [job for job in jobs if not job.is_there and job.number[0] == int(array)]:
            raise SunspotError(
                f"job {over[0].id} is {over[0].state} before its worker joined; see "
                f"{life.record.folder}/logs"
            )
        if time.monotonic() > deadline:
            waiting = [f"job {job.id} is {job.state} ({job.reason})" for job in jobs]
            raise SunspotError(
                f"{there} of {count} workers of {group.name} joined within {JOIN_TIMEOUT_S:g} s: "
                f"{', '.join(waiting)}"
            )
        time.sleep(next(pause))


def _members(handle: ClusterHandle, group: ScalingGroup) -> int:
    from sunspot.node.collector import GROUP_LABEL
    from sunspot.ray.jobs import JobClient

    alive = [node for node in JobClient(handle).state("nodes") if node["state"] == "ALIVE"]
    return sum(label(node, GROUP_LABEL) == group.name for node in alive)


def _remove(life: Life, jobs: list[Job], progress: Progress) -> None:
    """Drains workers, so that running tasks can end, and ends their jobs."""
    ids = [job.id for job in jobs]
    called = ", ".join(f"job {one}" for one in ids)
    # The others still wait for nodes, and Slurm refuses to signal those.
    running = [job.id for job in jobs if job.runs]
    try:
        if running:
            progress(f"draining {called} (at most {DRAIN_TIMEOUT_S:.0f} s)")
        for one in running:
            life.slurm.give_notice(one)
        _wait_until_over(life, running, DRAIN_TIMEOUT_S)
    finally:
        with uninterrupted():
            life.slurm.cancel(ids)
            _wait_until_over(life, ids, DRAIN_TIMEOUT_S)
    progress(f"ended {called}")


def _wait_until_over(life: Life, ids: list[str], timeout_s: float) -> None:
    deadline, pause = time.monotonic() + timeout_s, pauses()
    while time.monotonic() < deadline:
        if not any(job.id in ids and job.is_there for job in life.jobs()):
            return
        time.sleep(next(pause))
