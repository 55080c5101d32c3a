"""The clusters of the tests: one that most share, and one that is brought up and taken down."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import psutil
from cut_off import Installed
from ending import words_of
from harness import SMALL
from own_machine import Census, Machine, differences, kind, kinds
from waiting import wait_for

from sunspot.errors import SunspotError
from sunspot.node.local.folder import ClusterFolder
from sunspot.targets.local import plan
from sunspot.targets.protocol import NodeStatus

SHARED, OWN = "pair", "solo"
GROUP = "workers"

STACKS = {
    SHARED: {
        "head_node": SMALL,
        "scaling_groups": [
            {
                "name": GROUP,
                "market": "spot",
                "min_workers": 1,
                "max_workers": 2,
                "worker_nodes": SMALL,
            }
        ],
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
    },
    OWN: {"head_node": SMALL},
}

# What a fault began to end may take this long to be gone: a job's guard looks every second.
SETTLE_S = 30.0
# What is down has nothing left at once.
GONE_S = 2.0


class Clusters:
    """Knows what must be there, and what is left."""

    def __init__(self, sunspot: Installed, machine: Machine) -> None:
        self.sunspot = sunspot
        self._machine = machine
        # These are for all clusters that there ever are: a `down` that comes too late for one on
        # this machine looks for one on Azure.
        self.sunspot.target.clusters.mkdir()
        (self.sunspot.state / "azure").mkdir()
        (self.sunspot.target.clusters / ".ports.lock").touch()
        self.nothing = machine.census()
        self._whole: Counter[str] = Counter()

    @property
    def shared(self) -> ClusterFolder:
        return self.sunspot.folder(SHARED)

    def census(self) -> Census:
        """All that there is; of clusters that are up, what they do not change by themselves."""
        return self._machine.census(self._up())

    def changes(self, before: Census, within_s: float = SETTLE_S) -> list[str]:
        """What differs from a former census, as soon as nothing does, or at the deadline."""
        changed: list[str] = []

        def is_as_before() -> bool:
            changed[:] = differences(before, self.census())
            return not changed

        with contextlib.suppress(AssertionError):  # at the deadline the changes are the answer
            wait_for("what was there before", is_as_before, within_s)
        return changed

    def share(self) -> Census:
        """Brings the shared cluster up if it is not, or is not as it was; what there is then."""
        if not self._is_whole():
            self.remove_all()
            self.sunspot.ok("up", SHARED)
            # Ray starts some processes with the first job.
            self.sunspot.ok("submit", "--stack", SHARED, "--", "true")
            self.without_jobs()
            self._whole = kinds(self.shared.processes())
        return self.census()

    def without_jobs(self) -> Census:
        """What there is once the processes of all jobs have ended."""
        wait_for("the jobs' processes to end", lambda: not self.job_processes())
        return self.census()

    def remove_all(self) -> Census:
        """Takes both clusters down; what there is then, which is nothing of them."""
        for name in self.sunspot.target.names():
            self.sunspot("down", name)
        self._machine.sweep(self.nothing)
        return self.nothing

    def take_down(self, name: str, before: Census) -> Iterator[str]:
        """Takes a cluster down of which nothing was there before; yields what went wrong."""
        if not self.changes(before, within_s=0):
            return
        done = self.sunspot("down", name)
        if done.returncode != 0:
            yield f"down: exit code {done.returncode}, {done.stderr!r}"
        yield from self.swept(before)

    def swept(self, before: Census) -> Iterator[str]:
        """Yields what is left besides what was there before, and removes it."""
        if left := self.changes(before, within_s=GONE_S):
            yield f"left: {left}"
            self._machine.sweep(before, self._up())

    def shared_is(self, whole: bool = True) -> bool:
        """Whether the shared cluster has each process that it had when it came up."""
        return (kinds(self.shared.processes()) == self._whole) is whole

    def workers(self) -> list[NodeStatus]:
        """The workers of the shared cluster that are up."""
        nodes = self.sunspot.target.nodes(SHARED)
        return [node for node in nodes if node.group == GROUP and node.state == "up"]

    def minimum(self) -> int:
        """How many workers the autoscaler keeps in the shared cluster."""
        return plan.size(self.shared, GROUP).minimum

    def process(self, node: str, wanted: str, *, of: str = SHARED) -> psutil.Process:
        """A process of a node of that cluster: `wanted` is a kind, or "ray start"."""
        recorded = self.sunspot.folder(of).process(node)
        assert recorded is not None
        start = psutil.Process(recorded.pid)
        if wanted == "ray start":
            return start
        found = [p for p in start.children(recursive=True) if kind(p) == wanted]
        (process,) = [p for p in found if not (set(p.parents()) & set(found))]
        return process

    def job_processes(self) -> list[psutil.Process]:
        """What runs for jobs in the shared cluster: supervisors and drivers."""
        return [
            process
            for process in self.shared.processes()
            if "JobSupervisor" in kind(process) or "signal.pause" in " ".join(words_of(process))
        ]

    def problem(self, name: str) -> str | None:
        """Why a cluster cannot be used, None if it can."""
        try:
            self.sunspot.target.handle(name)
        except SunspotError as error:
            return str(error)
        return None

    def _up(self) -> list[ClusterFolder]:
        return [self.shared] if SHARED in self.sunspot.target.names() else []

    def _is_whole(self) -> bool:
        if SHARED not in self.sunspot.target.names() or self.problem(SHARED):
            return False
        if self.minimum() != 1 or not self.shared_is():
            return False
        return [node.state for node in self.sunspot.target.nodes(SHARED)][:2] == ["up", "up"]
