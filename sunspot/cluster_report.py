"""`sunspot report`: when which task ran where on a cluster that is up, of all jobs or of one."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sunspot import registry, report
from sunspot.errors import SunspotError
from sunspot.node.events import Kind
from sunspot.ray.jobs import STATE_LIMIT, Job, JobClient
from sunspot.targets import abilities
from sunspot.targets.history import History
from sunspot.targets.protocol import Progress, Target, silent

PART = (
    f"Ray answers with at most {STATE_LIMIT:,} attempts of tasks, and not with the first or the "
    "last ones: this is a part of them. Choose one job with --job."
)
MARKS: Mapping[Kind, str] = {
    "evicted": "eviction notice",
    "drained": "left",
    "lost": "lost",
    "joined": "joined",
}


def collect(
    target: Target, name: str, job_id: str | None = None, progress: Progress = silent
) -> report.Report:
    """The report of a cluster so far; what still runs is drawn up to now.

    Ray forgets the oldest tasks, and answers with at most STATE_LIMIT, which the page then says.

    Args:
        target: the target that the cluster runs on.
        name: the stack's name.
        job_id: the job whose tasks are shown; None for those of all jobs and drivers.
        progress: called with a line for each thing that is waited for.

    Raises:
        UsageError: there is no job of that id.
        SunspotError: Ray has no task yet, or cannot be asked.
    """
    client = JobClient(target.handle(name, progress))
    jobs = client.list()[::-1] if job_id is None else [client.get(job_id)]
    now = time.time()
    tasks = _tasks(client, jobs, only=job_id is not None)
    drawn = _spans(client, jobs, tasks, now)
    if not drawn:
        of = f"of job {job_id!r} " if job_id else ""
        raise SunspotError(f"Ray has no task {of}yet: run one with ray.remote, and try again")
    begin, end = min(one.start for one in drawn), max(one.end for one in drawn)
    happened = marks(target, name, until=now if job_id is None else end)
    return report.Report(
        stack=name,
        cores=(os.cpu_count() or 1) if target.name == registry.THIS_MACHINE else None,
        nodes=nodes(target, name),
        marks=[mark for mark in happened if mark.time >= begin],
        results=[*_of_jobs(jobs, drawn, now), *_of_drivers(jobs, drawn)],
        spans=drawn,
        bring_up_seconds=None,
        created=datetime.now(UTC),
        notes=[PART] if len(tasks) >= STATE_LIMIT else [],
    )


def nodes(target: Target, name: str) -> list[report.NodeInfo]:
    """The cluster's nodes as the report shows them."""
    return [
        report.NodeInfo(
            name=node.name,
            group=node.group,
            market=node.market,
            cpus=node.cpus,
            gpus=node.gpus,
            memory_gb=node.memory_gb,
        )
        for node in target.nodes(name)
    ]


def span(
    task: Mapping[str, Any], workload: str, node: Mapping[str, Any], now: float = 0.0
) -> report.TaskSpan:
    """A task that has begun.

    Args:
        task: the task, as Ray's state API has it in full.
        workload: what it belongs to, for people.
        node: its node, likewise.
        now: where a task ends that still runs, in seconds since the epoch.
    """
    labels = node.get("labels") or {}
    return report.TaskSpan(
        workload=workload,
        name=task["name"],
        node=node["node_name"],
        group=labels.get("ray.io/node-group", ""),
        market=labels.get("ray.io/market-type", ""),
        worker=task["worker_pid"],
        start=task["start_time_ms"] / 1000,
        end=task["end_time_ms"] / 1000 if task.get("end_time_ms") else now,
        failed=task["state"] == "FAILED",
    )


def marks(
    target: Target, name: str, *, until: float, from_the_start: Collection[str] = ()
) -> list[report.NodeMark]:
    """What happened to nodes, where the target keeps a record of it.

    Args:
        target: the target that the cluster runs on.
        name: the stack's name.
        until: the end of what is shown, in seconds since the epoch.
        from_the_start: nodes that were there before what is shown: that they joined is not.
    """
    history = abilities.find(target, History)
    return [
        report.NodeMark(node=event.node, label=MARKS[event.kind], time=event.time)
        for event in (history.recorded(name).events if history else [])
        if event.kind in MARKS and event.time <= until
        if event.kind != "joined" or event.node not in from_the_start
    ]


def _tasks(client: JobClient, jobs: Sequence[Job], *, only: bool) -> list[dict[str, Any]]:
    """Ray's attempts of tasks, without those of drivers; with `only`, of the one job."""
    if not only:
        return client.state("tasks")
    (job,) = jobs
    # Without an id, its driver has not connected, so it has no task.
    return client.state("tasks", job_id=job.ray_id) if job.ray_id else []


def _spans(
    client: JobClient, jobs: Sequence[Job], tasks: Sequence[Mapping[str, Any]], now: float
) -> list[report.TaskSpan]:
    names = {job.ray_id: job.id for job in jobs if job.ray_id}
    by_id = {node["node_id"]: node for node in client.state("nodes")} if tasks else {}
    return [
        span(task, names.get(of := task["job_id"], f"driver {of}"), by_id[task["node_id"]], now)
        for task in tasks
        if task.get("start_time_ms") and task["node_id"] in by_id
    ]


def _of_jobs(
    jobs: Sequence[Job], spans: Sequence[report.TaskSpan], now: float
) -> Iterator[report.WorkloadResult]:
    """A row for each job that has a task."""
    for job in jobs:
        own = [one for one in spans if one.workload == job.id]
        if own:
            seconds = (job.ended or now) - (job.started or own[0].start)
            yield _row(job.id, own, seconds, f"{job.status}: {job.entrypoint}")


def _of_drivers(
    jobs: Sequence[Job], spans: Sequence[report.TaskSpan]
) -> Iterator[report.WorkloadResult]:
    """A row for each driver that is not a job."""
    known = {job.id for job in jobs}
    for name in dict.fromkeys(one.workload for one in spans if one.workload not in known):
        own = [one for one in spans if one.workload == name]
        seconds = max(one.end for one in own) - min(one.start for one in own)
        yield _row(name, own, seconds, "not a job: it connected by ray.init")


def _row(
    name: str, spans: Sequence[report.TaskSpan], seconds: float, summary: str
) -> report.WorkloadResult:
    return report.WorkloadResult(
        workload=name,
        tasks=len(spans),
        nodes=len({one.node for one in spans}),
        workers=len({(one.node, one.worker) for one in spans}),
        seconds=seconds,
        one_worker_seconds=None,
        summary=summary,
    )
