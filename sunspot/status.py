"""The state of a cluster as one picture: what its target knows, and what Ray reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sunspot import group_status, recorded
from sunspot.errors import SunspotError, UsageError
from sunspot.group_status import GroupStatus
from sunspot.ray import demand
from sunspot.ray.demand import Waiting
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.jobs import Job, JobClient
from sunspot.recorded import Summary
from sunspot.targets import abilities, drift, node_types
from sunspot.targets.protocol import Costing, HourlyCost, NodeStatus, Progress, Target, silent
from sunspot.targets.scaling import Scaling
from sunspot.targets.suspending import Suspending

STATE_STYLES = {"up": "green", "starting": "yellow", "draining": "yellow", "lost": "red"}
JOB_STYLES = {"SUCCEEDED": "green", "RUNNING": "cyan", "FAILED": "red"}
SHOWN_JOBS = SHOWN_WAITING = 5


@dataclass(frozen=True, kw_only=True)
class Status:
    """A cluster's nodes and jobs.

    Attributes:
        name: the stack's name.
        handle: how to reach the cluster; None if the target could not give it.
        nodes: the nodes, as the target knows them.
        groups: the groups of workers, with their limits.
        jobs: the jobs, the newest first.
        used: the resources in use on each node, by the node's name.
        waiting: what the jobs wait for, each with why the cluster can never give it, or None if it
            may.
        differences: where groups differ from the stack file: scaled by hand, or not yet rolled.
        cost: what the nodes cost; None if that is not known, or they cost nothing.
        past: what the cluster's record says; None where the target keeps none.
        suspended: whether it is suspended, and has no nodes.
        problem: why the target or Ray could not be asked; None if both answered.
    """

    name: str
    handle: ClusterHandle | None
    nodes: list[NodeStatus]
    groups: list[GroupStatus] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    used: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    waiting: list[tuple[Waiting, str | None]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    cost: HourlyCost | None = None
    past: Summary | None = None
    suspended: bool = False
    problem: str | None = None


def collect(target: Target, name: str, progress: Progress = silent) -> Status:
    """Asks the target and the cluster; if either does not answer, the status has a `problem`.

    Args:
        target: the target that the cluster runs on.
        name: the stack's name.
        progress: called with a line for each thing that is waited for.

    Raises:
        UsageError: the input is wrong.
    """
    suspending = abilities.find(target, Suspending)
    # The record may be at the other end of an SSH: it is read meanwhile.
    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            if suspending and suspending.is_suspended(name):
                return Status(name=name, handle=None, nodes=[], suspended=True)
        except UsageError:
            raise
        except SunspotError as error:
            return Status(name=name, handle=None, nodes=[], problem=str(error))
        past = pool.submit(recorded.summary, target, name)
        found = _asked(target, name, progress)
        return replace(found, past=past.result())


def _asked(target: Target, name: str, progress: Progress) -> Status:
    """The status without what is recorded."""
    nodes: list[NodeStatus] = []
    handle = None
    try:
        nodes = target.nodes(name, progress)
        handle = target.handle(name, progress)
        client = JobClient(handle)
        costing = abilities.find(target, Costing)
        return Status(
            name=name,
            handle=handle,
            nodes=nodes,
            groups=_groups(target, name, nodes),
            jobs=client.list(),
            used=demand.used(client.node_summary()),
            waiting=_waiting(client, target, name),
            differences=_differences(target, name),
            cost=costing.hourly_cost(name, nodes) if costing else None,
        )
    except UsageError:
        raise
    except SunspotError as error:
        return Status(name=name, handle=handle, nodes=nodes, problem=str(error))


def show(status: Status, console: Console) -> None:
    """Prints the status as tables, and the end of the log of each lost node."""
    if status.suspended:
        console.print(
            f"[bold]{escape(status.name)}[/] is suspended. Bring it back: sunspot start "
            f"{status.name} · remove it: sunspot down {status.name}",
            soft_wrap=True,
        )
        return
    where = f" · {status.handle.target} · {status.handle.head_address}" if status.handle else ""
    console.print(f"[bold]{escape(status.name)}[/]{where}")
    console.print(_node_table(status))
    for node in status.nodes:
        for note in node.notes:
            console.print(f"[yellow]{node.name}:[/] {escape(note)}", soft_wrap=True)
        if node.state == "lost" and not node.is_head:
            console.print(f"[red]{node.name} is lost.[/] The end of its log:")
            console.print(escape(node.log or "(empty)"), style="dim")
    for service, address in _addresses(status.handle).items():
        console.print(f"{service:<10} {address}", markup=False, soft_wrap=True)
    for line in _remarks(status):
        console.print(line, soft_wrap=True)
    if status.jobs:
        console.print(job_table(status.jobs[:SHOWN_JOBS]))
    elif not status.problem:
        console.print("no jobs yet")


def _remarks(status: Status) -> Iterator[str]:
    """What a person should know besides the nodes, a line each."""
    for group in status.groups:
        yield f"min/now/max of {escape(str(group))}"
    for line in status.differences:
        yield f"[yellow]differs:[/] {escape(line)}"
    if status.cost:
        yield _cost_line(status.cost)
    # One that cannot be asked for anything says so once.
    if status.past and not (status.problem and status.past.problem):
        yield from recorded.lines(status.past)
    waiting = sorted(status.waiting, key=lambda one: one[1] is None)  # what can never run first
    for asked, never in waiting[:SHOWN_WAITING]:
        yield _waiting_line(asked, never, status.jobs)
    if (more := len(waiting) - SHOWN_WAITING) > 0:
        yield f"{more} more wait for something; all of them: sunspot status --json"


def job_table(jobs: list[Job]) -> Table:
    """Jobs as a table: id, state, seconds, command."""
    table = Table(box=None, header_style="dim", expand=True)
    _add_whole(table, "job", [job.id for job in jobs])
    for heading in ("state", "seconds"):
        table.add_column(heading, no_wrap=True)
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    for job in jobs:
        style = JOB_STYLES.get(job.status, "")
        seconds = f"{(job.ended or time.time()) - job.started:.1f}" if job.started else ""
        table.add_row(
            escape(job.id),
            f"[{style}]{job.status}[/]" if style else job.status,
            seconds,
            escape(job.entrypoint),
        )
    return table


def to_json(status: Status) -> dict[str, Any]:
    """The status as plain data; memory in GiB, times in unix seconds."""
    handle = status.handle
    return {
        "name": status.name,
        "target": handle.target if handle else None,
        "head_address": handle.head_address if handle else None,
        "job_address": handle.job_address if handle else None,
        "services": _services(handle),
        "nodes": [
            asdict(node) | {"notes": list(node.notes), "used": dict(status.used.get(node.name, {}))}
            for node in status.nodes
        ],
        "groups": [asdict(group) for group in status.groups],
        "jobs": [job_to_json(job) for job in status.jobs],
        "waiting": [
            asdict(asked) | {"bundles": [*map(dict, asked.bundles)], "never": never}
            for asked, never in status.waiting
        ],
        "differences": status.differences,
        "cost": asdict(status.cost) if status.cost else None,
        **recorded.to_json(status.past),
        "suspended": status.suspended,
        "problem": status.problem,
    }


def job_to_json(job: Job) -> dict[str, Any]:
    """The job as plain data; times in unix seconds."""
    return asdict(job)


def _services(handle: ClusterHandle | None) -> dict[str, str]:
    """The addresses of what runs beside Ray, by name; without the token that a link may have."""
    links = {} if handle is None else handle.monitoring
    return {name: link.partition("?")[0] for name, link in links.items()}


def _addresses(handle: ClusterHandle | None) -> dict[str, str]:
    """The addresses for a browser, where something runs beside Ray; Ray's own dashboard first."""
    services = _services(handle)
    return {"Dashboard": handle.job_address} | services if handle and services else {}


def _node_table(status: Status) -> Table:
    table = Table(box=None, header_style="dim")
    _add_whole(table, "node", [node.name for node in status.nodes])
    _add_whole(table, "group", [node.group for node in status.nodes])
    for heading in ("market", "state", "CPUs", "GPUs", "GiB"):
        table.add_column(heading)
    for node in status.nodes:
        used = status.used.get(node.name, {})
        style = STATE_STYLES[node.state]
        table.add_row(
            node.name,
            node.group,
            node.market,
            f"[{style}]{node.state}[/]",
            f"{used.get('CPU', 0):g}/{node.cpus:g}",
            f"{used.get('GPU', 0):g}/{node.gpus:g}" if node.gpus else "-",
            f"{node.memory_gb:g}",
        )
    return table


def _cost_line(cost: HourlyCost) -> str:
    without = f", without {', '.join(cost.price_unknown)}" if cost.price_unknown else ""
    return (
        f"about {cost.machines + cost.others:.3f} USD an hour: machines {cost.machines:.3f}"
        f"{without}, disks, network and the rest {cost.others:.3f} ({cost.prices})"
    )


def _add_whole(table: Table, heading: str, values: list[str]) -> None:
    """Adds a column whose values are never cut or wrapped, because commands take them."""
    table.add_column(heading, no_wrap=True, min_width=max(map(len, values), default=0))


def _waiting(client: JobClient, target: Target, name: str) -> list[tuple[Waiting, str | None]]:
    """What the jobs wait for; nothing where Ray cannot say it, which keeps back nothing else."""
    with contextlib.suppress(SunspotError):
        asked = demand.waiting(client)
        nodes = client.state("nodes") if asked else []
        types = demand.cluster_types(node_types.of(target, target.stack(name)), nodes)
        return [(one, demand.never(one, types)) for one in asked]
    return []


def _groups(target: Target, name: str, nodes: Sequence[NodeStatus]) -> list[GroupStatus]:
    """The groups; where it cannot be asked how they are scaled, with the stack's limits."""
    scaling = abilities.find(target, Scaling)
    sizes = {}
    with contextlib.suppress(SunspotError):
        sizes = scaling.sizes(name) if scaling else {}
    with contextlib.suppress(SunspotError):
        return group_status.of(target.stack(name), sizes, nodes)
    return []


def _differences(target: Target, name: str) -> list[str]:
    """Where the cluster differs from its file; nothing where its records do not say it."""
    found: list[str] = []
    for look in (drift.of, drift.outdated):
        with contextlib.suppress(SunspotError):
            found += look(target, name)
    return found


def _waiting_line(asked: Waiting, never: str | None, jobs: Sequence[Job]) -> str:
    job = next((job.id for job in jobs if job.ray_id == asked.job), asked.job)
    if never is None:
        free = demand.scarce(asked.bundles[0])
        return f"[yellow]waiting for free {free}:[/] {escape(f'{asked} of job {job}')}"
    return f"[red]can never run:[/] {escape(f'{asked} of job {job}. {never}. {demand.REMEDY}')}"
