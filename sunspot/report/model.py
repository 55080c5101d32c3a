"""The data of a report: plain and frozen. Nothing here draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from sunspot.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class TaskSpan:
    """One attempt of one Ray task: which process ran it, and when (Unix seconds)."""

    workload: str
    name: str
    node: str
    group: str
    market: str
    worker: int
    start: float
    end: float
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeInfo:
    """A node of the cluster, as Ray counts it: `cpus` and `gpus` are logical."""

    name: str
    group: str
    market: str
    cpus: float
    gpus: float = 0
    memory_gb: float


@dataclass(frozen=True, kw_only=True)
class NodeMark:
    """Something that happened to a node, such as "left", and when (Unix seconds)."""

    node: str
    label: str
    time: float


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """The proportional memory of one worker process: shared pages count by their share."""

    node: str
    pid: int
    pss_mb: float


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """The memory of the workers while each of them reads one array of `array_mb`."""

    array_mb: float
    workers: tuple[WorkerMemory, ...]

    @property
    def total_mb(self) -> float:
        """The memory of all workers together."""
        return sum(worker.pss_mb for worker in self.workers)


@dataclass(frozen=True, kw_only=True)
class WorkloadResult:
    """What one workload reported at its end."""

    workload: str
    tasks: int
    nodes: int
    workers: int
    seconds: float
    one_worker_seconds: float | None
    summary: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def speed_up(self) -> float | None:
        """How many times faster than one worker; None if one worker was not measured."""
        if self.one_worker_seconds is None or self.seconds <= 0:
            return None
        return self.one_worker_seconds / self.seconds

    @property
    def memory(self) -> Mapping[str, MemoryUse]:
        """Memory by system (`ray`, `multiprocessing`); empty if it was not measured."""
        measured = self.details.get("memory") or {}
        return {system: _memory_use(self.workload, use) for system, use in measured.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads what a workload wrote with `--out`; keys that not all workloads have are `details`.

        Raises:
            UsageError: a key is missing, or a value has the wrong type.
        """
        own = ("workload", "tasks", "nodes", "workers", "seconds", "one_worker_seconds", "summary")
        try:
            one_worker = data.get("one_worker_seconds")
            return cls(
                workload=str(data["workload"]),
                tasks=int(data["tasks"]),
                nodes=int(data["nodes"]),
                workers=int(data["workers"]),
                seconds=float(data["seconds"]),
                one_worker_seconds=None if one_worker is None else float(one_worker),
                summary=str(data.get("summary", "")),
                details={key: value for key, value in data.items() if key not in own},
            )
        except KeyError as missing:
            raise UsageError(f"a workload's result lacks the key {missing}") from missing
        except (TypeError, ValueError) as wrong:
            name = data.get("workload", "a workload")
            raise UsageError(
                f"the result of {name} has a value of the wrong type: {wrong}"
            ) from wrong


@dataclass(frozen=True, kw_only=True)
class Report:
    """One run of some workloads on one cluster.

    `cores` is this machine's number of real cores, if the cluster is on it; `notes` are sentences
    for the end of the page.
    """

    stack: str
    cores: int | None
    nodes: Sequence[NodeInfo]
    results: Sequence[WorkloadResult]
    spans: Sequence[TaskSpan]
    bring_up_seconds: float | None
    created: datetime
    marks: Sequence[NodeMark] = ()
    notes: Sequence[str] = ()

    @property
    def tasks(self) -> int:
        """Tasks as the workloads counted them; without results, the attempts."""
        return sum(result.tasks for result in self.results) or len(self.spans)

    @property
    def nodes_used(self) -> int:
        """The nodes on which a task ran; the cluster's nodes if no task was recorded."""
        return len({span.node for span in self.spans}) or len(self.nodes)

    @property
    def all_nodes(self) -> list[NodeInfo]:
        """The cluster's nodes, then those that only tasks name (removed or lost since)."""
        nodes = {node.name: node for node in self.nodes}
        for span in sorted(self.spans, key=lambda span: span.node):
            if span.node not in nodes:
                nodes[span.node] = NodeInfo(
                    name=span.node, group=span.group, market=span.market, cpus=0, memory_gb=0
                )
        return list(nodes.values())

    @property
    def workloads(self) -> list[str]:
        """Workload names in the order of their results, then in the order they started."""
        started = sorted(self.spans, key=lambda span: (span.start, span.workload))
        names = [result.workload for result in self.results] + [span.workload for span in started]
        return list(dict.fromkeys(names))


def _memory_use(workload: str, use: Mapping[str, Any]) -> MemoryUse:
    try:
        workers = tuple(
            WorkerMemory(node=str(one["node"]), pid=int(one["pid"]), pss_mb=float(one["pss_mb"]))
            for one in use["workers"]
            if one["pss_mb"] is not None  # only Linux reports the share of a process
        )
        return MemoryUse(array_mb=float(use["array_mb"]), workers=workers)
    except (KeyError, TypeError, ValueError) as wrong:
        raise UsageError(f"the memory that {workload} reports cannot be read: {wrong!r}") from wrong
