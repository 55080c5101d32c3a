"""`sunspot demo`: starts a local cluster, runs the CPU workloads, writes a report, stops it all.

In the middle of the work a spot worker is evicted (demo_eviction.py).
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sunspot import cluster_report, console, demo_eviction, registry, report
from sunspot import stack as stacks
from sunspot.errors import SunspotError
from sunspot.ray import following
from sunspot.ray.feasibility import Request
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.jobs import Job, JobClient
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets import clusters
from sunspot.targets.protocol import Target

STACK = "dev"
NAME = "demo"

# Big enough that every worker has several seconds of work, small enough for two minutes in all.
WORKLOADS: Mapping[str, tuple[str, ...]] = {
    "where": (),
    "primes": ("9000000", "10000000", "--baseline"),
    "pi": ("--samples", "30000000", "--baseline"),
    "object_store": ("--megabytes", "200"),
}

# After which of them the worker is evicted, while it runs once more: the others use the new one.
EVICTED_AFTER, WITH_EVICTION = "primes", "primes, evicted"

# Workers send their task events several times a second (see targets/local/plan.py).
TASK_EVENTS_TIMEOUT_S = 6.0
POLL_INTERVAL_S = 0.3


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One workload that has run; `task` is the name of its tasks."""

    job: Job
    task: str
    result: report.WorkloadResult


def run(folder: Path, *, keep: bool = False) -> Path:
    """Runs the demo and returns the path of the report's page.

    Args:
        folder: the folder for the report.
        keep: whether to leave the cluster up at the end.

    Raises:
        SunspotError: a workload failed; the cluster is taken down all the same, unless `keep`.
    """
    workloads = stacks.project_directory() / "workloads"
    stack = _with_all_workers(stacks.load(STACK).for_target(registry.THIS_MACHINE))
    target = clusters.get(registry.THIS_MACHINE)
    if NAME in target.names():
        raise SunspotError(f"a cluster named {NAME!r} is up already; first: sunspot down {NAME}")
    report.check_folder(folder)
    with _cluster(target, stack, keep) as (handle, seconds):
        client = JobClient(handle, reconnect=lambda: target.handle(stack.name))
        before = [node.name for node in target.nodes(stack.name)]
        console.out.print(f"cluster of {len(before)} nodes up in {seconds:.1f} s")
        runs = _run_all(_Cluster(target, stack.name, client, before), workloads)
        made = report.Report(
            stack=STACK,
            cores=os.cpu_count() or 1,
            nodes=cluster_report.nodes(target, stack.name),
            marks=cluster_report.marks(
                target, stack.name, until=time.time(), from_the_start=before
            ),
            results=[run.result for run in runs],
            spans=_spans(client, runs),
            bring_up_seconds=seconds,
            created=datetime.now(UTC),
        )
    console.out.print(report.table(made))
    if limit := report.core_limit(made):
        console.note(limit)
    return report.write(made, folder)


def _with_all_workers(stack: Stack) -> Stack:
    """The stack with every group at its maximum, under the demo's own name."""
    groups = [
        replace(group, min_workers=group.max_workers) for group in stack.cluster.scaling_groups
    ]
    cluster = replace(stack.cluster, scaling_groups=groups)
    return stack.with_cluster(cluster).model_copy(update={"name": NAME})


@contextmanager
def _cluster(target: Target, stack: Stack, keep: bool) -> Iterator[tuple[ClusterHandle, float]]:
    started = time.monotonic()
    with console.progress("starting a local cluster") as progress:
        handle = target.up(stack, progress).handle
    try:
        yield handle, time.monotonic() - started
    finally:
        if not keep:
            with uninterrupted(), console.progress("stopping the cluster") as progress:
                target.down(stack.name, progress)


@dataclass(frozen=True)
class _Cluster:
    """The demo's cluster; `nodes` are the names of those that it began with."""

    target: Target
    name: str
    client: JobClient
    nodes: Collection[str]


def _run_all(cluster: _Cluster, workloads: Path) -> list[_Run]:
    env: dict[str, Any] = {"working_dir": str(workloads)}
    cluster.client.send_working_dir(env, lambda _text: None)
    runs: list[_Run] = []
    with tempfile.TemporaryDirectory(prefix="sunspot-demo-") as results:
        for name, arguments in WORKLOADS.items():
            runs.append(_run_one(cluster.client, env, name, arguments, Path(results)))
            if name == EVICTED_AFTER:
                runs.append(_run_evicted(cluster, env, runs[-1], Path(results)))
    return runs


def _run_evicted(cluster: _Cluster, env: Mapping[str, Any], first: _Run, results: Path) -> _Run:
    """Runs `primes` over a range of another length while a worker goes; then waits for the new one.

    Raises:
        SunspotError: a result is missing.
    """
    details = first.result.details
    numbers = details["stop"] - details["start"]
    last = demo_eviction.last_number(numbers, first.result.seconds)
    with demo_eviction.eviction(
        cluster.target, cluster.name, cluster.client, first.task
    ) as leaving:
        arguments = (str(demo_eviction.FIRST), str(last))
        run = _run_one(cluster.client, env, first.task, arguments, results, WITH_EVICTION)
        node = leaving.result()
    found, expected = run.result.details["count"], demo_eviction.primes_to(last)
    if found != expected:
        raise SunspotError(f"with {node} evicted, {found} primes were found instead of {expected}")
    console.out.print(f"no result was lost: a sieve finds the same {found:,} primes")
    with console.progress(f"waiting for a worker in the place of {node}"):
        new = demo_eviction.replacement(cluster.target, cluster.name, cluster.nodes)
    console.out.print(f"{new.node} has come in the place of {node}, and works from now on")
    return run


def _run_one(
    client: JobClient,
    env: Mapping[str, Any],
    name: str,
    arguments: tuple[str, ...],
    results: Path,
    label: str | None = None,
) -> _Run:
    """Runs a workload; the report calls it `label`, by default its name."""
    label = label or name
    out = results / f"{label}.json"
    command = ["python", f"{name}.py", *arguments, "--out", str(out)]
    log = io.StringIO()
    with console.progress(f"running {label}") as progress:
        job_id = client.submit(command, request=Request(), runtime_env=env)
        progress(job_id)
        job = following.follow(client, job_id, log, progress)
    if job.status != "SUCCEEDED":
        raise SunspotError(f"workload {label} {job.status}; its output:\n{log.getvalue()}")
    text = out.read_text()
    for node in client.state("nodes"):
        text = text.replace(node["node_id"], node["node_name"])
    result = replace(report.WorkloadResult.from_json(json.loads(text)), workload=label)
    console.out.print(f"[bold]{label}[/] {result.summary}")
    return _Run(job=job, task=name, result=result)


def _spans(client: JobClient, runs: list[_Run]) -> list[report.TaskSpan]:
    """The workloads' tasks as Ray recorded them, once it has recorded them all."""
    workloads = {run.job.ray_id: run.task for run in runs}
    labels = {run.job.ray_id: run.result.workload for run in runs}
    expected = sum(run.result.tasks for run in runs)

    deadline = time.monotonic() + TASK_EVENTS_TIMEOUT_S
    while True:
        tasks = [task for task in client.state("tasks") if _is_shown(task, workloads)]
        if len(tasks) >= expected or time.monotonic() > deadline:
            break
        time.sleep(POLL_INTERVAL_S)
    nodes = {node["node_id"]: node for node in client.state("nodes")}
    return [
        cluster_report.span(task, labels[task["job_id"]], nodes[task["node_id"]]) for task in tasks
    ]


def _is_shown(task: Mapping[str, Any], workloads: Mapping[str, str]) -> bool:
    """True for a finished task of a workload, except its warm-up and its one-worker run."""
    ended = task.get("start_time_ms") and task.get("end_time_ms")
    return bool(ended and task["name"] == workloads.get(task["job_id"]))
