"""The `Machines` of this host: each is one tree of `ray start --block` processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sunspot.node.events import ENDS, Event, Kind
from sunspot.node.local import ray_start
from sunspot.node.local.folder import ClusterFolder, NodeRecord, ports_locked
from sunspot.node.machines import Machine


def create(config: Mapping[str, Any]) -> LocalMachines:
    """The machines that the autoscaler's config describes; its `folder` is the cluster's."""
    return LocalMachines(Path(config["folder"]))


class LocalMachines:
    """Processes on this host. A launch is never refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = ClusterFolder(folder)
        self._launchers: list[subprocess.Popen[bytes]] = []
        self._seen: dict[str, Machine] = {}
        self._creating = threading.Lock()
        self._created: frozenset[str] = frozenset()  # since the last `list`
        self._new: frozenset[str] = frozenset()  # at the last `list`
        self._told: set[str] = set()
        self._telling = threading.Lock()

    def list(self) -> list[Machine]:
        """The machines that come up or run.

        And, once, each one that was created since the last call, even if it has ended meanwhile:
        Ray waits ten minutes for one that it requested and never saw, and requests no other
        (`request_status_timeout_s` in ray/autoscaler/v2/instance_manager/config.py, 2.60).
        """
        with self._creating:
            self._new, self._created = self._created, frozenset()
        self._launchers = [p for p in self._launchers if p.poll() is None]  # reaps those that ended
        return self._read()

    def find(self, machine_id: str) -> Machine | None:
        """A machine as of the last `list`; only for an unknown one the records are read again.

        At each tick Ray asks for every machine twice: reading all the records for each answer
        would cost a second of CPU at 40 nodes.
        """
        if machine_id not in self._seen:
            self._read()
        return self._seen.get(machine_id)

    def create(self, node_type: str, count: int) -> None:
        with ports_locked(self._folder.path.parent):
            shape = self._folder.cluster().shapes[node_type]
            nodes = [self._folder.add_node(shape, "by the autoscaler") for _ in range(count)]
        with self._creating:
            self._created |= {node.name for node in nodes}
        self._tell_replaced(nodes)
        self._launchers.append(launch(self._folder, nodes, stdout=subprocess.DEVNULL))

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Nothing: what may change is in the cluster's folder."""

    def terminate(self, machine_id: str) -> None:
        for node in self._folder.nodes():
            if node.name == machine_id:
                if self._is_wanted(node):  # a lost one stays lost, and `status` says why
                    self._folder.write_node(replace(node, goal="down"))
                    self._tell_end(node, "drained", "by the autoscaler, which gave it back")
                self._seen.pop(machine_id, None)
                self._folder.stop(machine_id)

    def _read(self) -> list[Machine]:
        nodes = [node for node in self._folder.nodes() if node.goal == "up"]
        wanted = {node.name for node in nodes if self._is_wanted(node)}
        machines = [self._machine(node) for node in nodes if node.name in wanted | self._new]
        self._seen = {machine.id: machine for machine in machines}
        self._tell_lost([node for node in nodes if node.name not in wanted])
        return machines

    def _tell_lost(self, nodes: Sequence[NodeRecord]) -> None:
        """Records the nodes that ended by themselves, once each, with what their logs say.

        One that never joined may be started again: its launcher knows.
        """
        for node in nodes:
            if node.name not in self._told and "joined" in self._folder.events.kinds(node.name):
                log = self._folder.log_tail(node.name).splitlines()
                self._tell_end(node, "lost", log[0] if log else "its processes ended")
                self._told.add(node.name)

    def _tell_end(self, node: NodeRecord, kind: Kind, reason: str) -> None:
        """Records that a node is gone, unless that is known, as of one that was evicted."""
        with self._telling:  # Ray calls from several threads
            if not ENDS & self._folder.events.kinds(node.name):
                self._folder.events.add(
                    Event(kind=kind, group=node.shape.group, node=node.name, reason=reason)
                )

    def _tell_replaced(self, new: Sequence[NodeRecord]) -> None:
        """Records which nodes, lost or evicted, these new ones of a group replace."""
        events = self._folder.events.read()
        replaced = {event.node for event in events if event.kind == "replaced"}
        group = new[0].shape.group if new else ""
        gone = [
            event.node
            for event in events
            if event.kind in {"evicted", "lost"}
            and event.group == group
            and event.node not in replaced
        ]
        # The last one first: an earlier one may have gone while nothing needed it.
        for old, node in zip(reversed(gone), new, strict=False):
            self._folder.events.add(
                Event(kind="replaced", group=group, node=old, reason=f"by {node.name}")
            )

    def _is_wanted(self, node: NodeRecord) -> bool:
        """Coming up or running; a lost one is left out, so that the autoscaler replaces it."""
        started = self._folder.process(node.name) is not None
        return node.goal == "up" and (not started or self._folder.is_running(node.name))

    def _machine(self, node: NodeRecord) -> Machine:
        return Machine(
            id=node.name,
            node_type=node.shape.group,
            is_head=node.is_head,
            running=self._folder.is_running(node.name),
        )


def launch(
    folder: ClusterFolder, nodes: list[NodeRecord], *, stdout: int
) -> subprocess.Popen[bytes]:
    """Starts the launcher for these nodes, which reports its progress on `stdout`.

    It leads its own session, so that a Ctrl-C in the terminal does not reach it.
    """
    return subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "sunspot.node.local.launcher",
            str(folder.path),
            *(n.name for n in nodes),
        ],
        env=ray_start.launcher_environment(folder, nodes),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL if stdout == subprocess.DEVNULL else None,
        start_new_session=True,
    )
