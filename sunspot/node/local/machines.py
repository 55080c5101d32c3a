"""The `Machines` of this host: each is one tree of `ray start --block` processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

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

    def list(self) -> list[Machine]:
        self._launchers = [p for p in self._launchers if p.poll() is None]  # reaps those that ended
        machines = [self._machine(node) for node in self._folder.nodes() if self._is_wanted(node)]
        self._seen = {machine.id: machine for machine in machines}
        return machines

    def find(self, machine_id: str) -> Machine | None:
        """A machine as of the last `list`, which is called only for an unknown one.

        At each tick Ray asks for every machine twice: reading all the records for each answer
        would cost a second of CPU at 40 nodes.
        """
        if machine_id not in self._seen:
            self.list()
        return self._seen.get(machine_id)

    def create(self, node_type: str, count: int) -> None:
        with ports_locked(self._folder.path.parent):
            shape = self._folder.cluster().shapes[node_type]
            nodes = [self._folder.add_node(shape) for _ in range(count)]
        self._launchers.append(launch(self._folder, nodes, stdout=subprocess.DEVNULL))

    def terminate(self, machine_id: str) -> None:
        for node in self._folder.nodes():
            if node.name == machine_id:
                if self._is_wanted(node):  # a lost one stays lost, and `status` says why
                    self._folder.write_node(replace(node, goal="down"))
                self._seen.pop(machine_id, None)
                self._folder.stop(machine_id)

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
