"""`sunspot demo`: starts a local cluster, runs the CPU workloads, writes a report, stops it all."""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sunspot import console, registry, report
from sunspot import stack as stacks
from sunspot.errors import SunspotError
from sunspot.ray import following
from sunspot.ray.feasibility import Request
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.jobs import Job, JobClient
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

# Workers send their task events several times a second (see targets/local/plan.py).
TASK_EVENTS_TIMEOUT_S = 6.0
POLL_INTERVAL_S = 0.3


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One workload that has run."""

    job: Job
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
        console.out.print(f"cluster of {len(target.nodes(stack.name))} nodes up in {seconds:.1f} s")
        runs = _run_all(client, workloads)
        made = report.Report(
            stack=STACK,
            cores=os.cpu_count() or 1,
            nodes=_nodes(target, stack.name),
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
            with console.progress("stopping the cluster") as progress:
                target.down(stack.name, progress)


def _run_all(client: JobClient, workloads: Path) -> list[_Run]:
    env: dict[str, Any] = {"working_dir": str(workloads)}
    client.send_working_dir(env, lambda _text: None)
    with tempfile.TemporaryDirectory(prefix="sunspot-demo-") as results:
        return [
            _run_one(client, env, name, arguments, Path(results) / f"{name}.json")
            for name, arguments in WORKLOADS.items()
        ]


def _run_one(
    client: JobClient, env: Mapping[str, Any], name: str, arguments: tuple[str, ...], out: Path
) -> _Run:
    command = ["python", f"{name}.py", *arguments, "--out", str(out)]
    log = io.StringIO()
    with console.progress(f"running {name}") as progress:
        job_id = client.submit(command, request=Request(), runtime_env=env)
        progress(job_id)
        job = following.follow(client, job_id, log, progress)
    if job.status != "SUCCEEDED":
        raise SunspotError(f"workload {name} {job.status}; its output:\n{log.getvalue()}")
    text = out.read_text()
    for node in client.state("nodes"):
        text = text.replace(node["node_id"], node["node_name"])
    result = report.WorkloadResult.from_json(json.loads(text))
    console.out.print(f"[bold]{name}[/] {result.summary}")
    return _Run(job=job, result=result)


def _nodes(target: Target, name: str) -> list[report.NodeInfo]:
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


def _spans(client: JobClient, runs: list[_Run]) -> list[report.TaskSpan]:
    """The workloads' tasks as Ray recorded them, once it has recorded them all."""
    workloads = {run.job.ray_id: run.result.workload for run in runs}
    expected = sum(run.result.tasks for run in runs)

    deadline = time.monotonic() + TASK_EVENTS_TIMEOUT_S
    while True:
        tasks = [task for task in client.state("tasks") if _is_shown(task, workloads)]
        if len(tasks) >= expected or time.monotonic() > deadline:
            break
        time.sleep(POLL_INTERVAL_S)
    nodes = {node["node_id"]: node for node in client.state("nodes")}
    return [_span(task, workloads[task["job_id"]], nodes[task["node_id"]]) for task in tasks]


def _is_shown(task: Mapping[str, Any], workloads: Mapping[str, str]) -> bool:
    """True for a finished task of a workload, except its warm-up and its one-worker run."""
    ended = task.get("start_time_ms") and task.get("end_time_ms")
    return bool(ended and task["name"] == workloads.get(task["job_id"]))


def _span(task: Mapping[str, Any], workload: str, node: Mapping[str, Any]) -> report.TaskSpan:
    return report.TaskSpan(
        workload=workload,
        name=task["name"],
        node=node["node_name"],
        group=node["labels"].get("ray.io/node-group", ""),
        market=node["labels"].get("ray.io/market-type", ""),
        worker=task["worker_pid"],
        start=task["start_time_ms"] / 1000,
        end=task["end_time_ms"] / 1000,
        failed=task["state"] == "FAILED",
    )
