"""The local target: a real multi-node Ray cluster as processes on this machine.

Every node is a `ray start --block` process tree with the CPUs, GPUs (logical), memory and labels
of its spec. The records are in the user's state directory, one folder per cluster.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from sunspot.errors import HeadLostError, SunspotError, UsageError
from sunspot.node.free_ports import PortClaims
from sunspot.node.local import ray_start
from sunspot.node.local.folder import (
    HEAD,
    BrokenRecordError,
    ClusterFolder,
    ClusterRecord,
    NodeRecord,
    ports_locked,
    reserved_ports,
)
from sunspot.ray.driver import RAY_CLIENT
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.resources import GIB
from sunspot.registry import THIS_MACHINE
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets import forwarding, members
from sunspot.targets.evicting import NOTICE_S, check_notice
from sunspot.targets.forwarding import Forward
from sunspot.targets.history import Recorded
from sunspot.targets.local import (
    capacity,
    evicting,
    idling,
    node_log,
    plan,
    preconditions,
    remaining,
    scaling,
    starting,
    suspending,
)
from sunspot.targets.local.host_ports import Chooser
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    Finding,
    NodeStatus,
    Progress,
    Removal,
    Up,
    silent,
)
from sunspot.targets.records import Folders, broken, not_up, state_directory
from sunspot.targets.scaling import Size
from sunspot.targets.suspending import not_suspended, suspended

# `ray start` stops its children within about 3 s; while it starts it ignores SIGTERM.
STOP_GRACE_S, INTERRUPTED_GRACE_S = 5.0, 0.5

_GPUS = (
    "the GPUs of this cluster are numbers: what asks for one is placed as on real GPUs, but finds "
    "no device. Ray Train then trains on the CPU, with gloo"
)


def create() -> LocalTarget:
    """The local target, with its records in the user's state directory."""
    return LocalTarget(state_directory() / "clusters")


@dataclass(frozen=True)
class LocalTarget:
    """The clusters on this machine, whose folders are in `clusters`."""

    clusters: Path
    name: str = THIS_MACHINE

    def check(self, stack: Stack) -> None:
        capacity.check(stack)

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
        client: bool = False,
    ) -> Up:
        self.check(stack)
        folder = self._folder(stack.name)
        with self._folders.locked(stack.name, progress), PortClaims() as claims:
            if stack.name in self.names():
                self._refuse_suspended(stack.name)
            if folder.exists() and (handle := self._running(folder, progress)):
                if client and handle.client_address is None:
                    raise UsageError(
                        f"{stack.name!r} is up without a Ray Client server, and gets one only at "
                        f"its start: sunspot down {stack.name}, then this command again"
                    )
                idling.watch(folder, stack)
                return Up(handle, was_up=True)
            capacity.check_space(folder)
            try:
                starting.make_temp_dir(folder)
                with ports_locked(self.clusters):
                    recorded = reserved_ports(self.clusters)
                    chooser = Chooser(cluster=stack.name, recorded=recorded, claims=claims)
                    ports = chooser.choose(port, dashboard_port, client=client)
                    nodes = plan.write_records(folder, stack, ports)
                starting.start(folder, nodes, progress, timeout_s)
                idling.watch(folder, stack)
            except BaseException:
                _remove(folder)
                raise
        notes = (*ports.notes, *([_GPUS] if plan.has_gpus(stack) else []))
        return Up(self.handle(stack.name), was_up=False, notes=notes)

    def down(
        self,
        name: str,
        progress: Progress,
        *,
        delete_storage: bool = False,  # noqa: ARG002 - nothing outlives a cluster here
    ) -> Removal | None:
        folder = self._folder(name)
        if not folder.path.exists():
            return None
        with self._folders.locked(name, progress):
            progress(f"stopping {len(folder.processes())} processes")
            ports, sessions = remaining.ports(folder), folder.sessions()
            _remove(folder)
            return Removal(
                looked_for="process, port or file", left=remaining.left(folder, ports, sessions)
            )

    def names(self) -> list[str]:
        return self._folders.names()

    def discover(self, name: str) -> bool:
        return name in self.names()

    def stack(self, name: str) -> Stack:
        with _readable_records(name):
            return Stack.model_validate(self._folder(name).cluster().stack)

    def handle(
        self,
        name: str,
        progress: Progress = silent,  # noqa: ARG002 - nothing is waited for
    ) -> ClusterHandle:
        folder = self._existing(name)
        with _readable_records(name):
            cluster = folder.cluster()
            if cluster.suspended_at is not None:
                raise suspended(name)
            head_is_dead = folder.process(HEAD) is not None and not folder.is_running(HEAD)
        if head_is_dead:
            raise HeadLostError(
                f"the head of {name!r} is dead, and its cluster with it. Take it down and start "
                f"again: sunspot down {name} && {_up(name)}\n"
                f"The end of its log:\n{folder.log_tail(HEAD)}"
            )
        if cluster.ready_at is None or cluster.address is None:
            raise SunspotError(
                f"stack {name!r} is still starting, or its start was interrupted. "
                f"Wait, or run: {_up(name)}"
            )
        return ClusterHandle(
            name=name,
            target=self.name,
            head_address=cluster.address,
            driver_address=cluster.address,
            client_address=_client_address(cluster),
            job_address=f"http://127.0.0.1:{cluster.dashboard_port}",
            token_path=folder.token,
            # So that a driver that says localhost:6379 stays on the loopback address.
            driver_variables={ray_start.LOOPBACK_STAYS: "0"},
        )

    def nodes(
        self,
        name: str,
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[NodeStatus]:
        folder = self._folder(name)
        with _readable_records(name):
            ready = folder.cluster().ready_at is not None
            if folder.cluster().suspended_at is not None:
                return []
            status = [_status(folder, node, ready=ready) for node in folder.nodes()]
        wanted = [node for node in status if node is not None]
        return sorted(wanted, key=lambda node: node.state == "lost")

    def node_log(
        self, name: str, node: str, out: TextIO, note: Progress, *, follow: bool = False
    ) -> int:
        with _readable_records(name):
            return node_log.show(self._folder(name), node, out, note, follow=follow)

    @contextlib.contextmanager
    def forward(
        self,
        name: str,
        port: int,
        local: int | None,
        progress: Progress,
    ) -> Iterator[Forward]:
        self.handle(name, progress)
        yield forwarding.here(name, port, local)

    def scale(self, name: str, sizes: Mapping[str, Size], progress: Progress) -> None:
        self.handle(name)  # refuses at once what cannot be scaled
        folder, stack = self._folder(name), self.stack(name)
        for group, size in sizes.items():
            scaling.check(stack, group, size)
        with self._folders.locked(name, progress):
            handle = self.handle(name)  # a `down` may have held the lock
            for group, size in sizes.items():
                scaling.scale(folder, handle, group, size, progress)

    def sizes(self, name: str) -> Mapping[str, Size]:
        folder, groups = self._folder(name), self.stack(name).cluster.scaling_groups
        with _readable_records(name):
            return {group.name: plan.size(folder, group.name) for group in groups}

    def evict(self, name: str, node: str, notice_s: float | None, progress: Progress) -> str:
        notice_s = NOTICE_S if notice_s is None else notice_s
        check_notice(notice_s)
        handle = self.handle(name)
        chosen = members.worker(name, node, self.nodes(name))
        return evicting.evict(self._folder(name), handle, chosen, notice_s, progress)

    def recorded(self, name: str) -> Recorded:
        folder = self._folder(name)
        if not folder.exists():
            raise not_up(name)
        return Recorded(events=folder.events.read(), notices=folder.notices.read())

    def suspend(self, name: str, progress: Progress) -> Sequence[str]:
        with self._folders.locked(name, progress):
            self._refuse_suspended(name)
            handle = self.handle(name)
            suspending.suspend(self._folder(name), handle, progress, STOP_GRACE_S)
        return ()

    def start(self, name: str, progress: Progress, *, timeout_s: float = UP_TIMEOUT_S) -> Up:
        folder = self._existing(name)
        with self._folders.locked(name, progress):
            if not self.is_suspended(name):
                raise not_suspended(name)
            stack = self.stack(name)
            ports = suspending.start(folder, stack, progress, timeout_s, STOP_GRACE_S)
            idling.watch(folder, stack)
        return Up(self.handle(name), was_up=False, notes=ports.notes)

    def keep_alive(self, name: str, seconds: float) -> float:
        self.handle(name)
        return idling.keep_alive(self._folder(name), self.stack(name), seconds)

    def is_suspended(self, name: str) -> bool:
        with _readable_records(name):
            return self._existing(name).cluster().suspended_at is not None

    def _refuse_suspended(self, name: str) -> None:
        if self.is_suspended(name):
            raise suspended(name)

    def preconditions(
        self,
        stack: Stack,
        progress: Progress,  # noqa: ARG002 - it takes no time
    ) -> list[Finding]:
        return preconditions.check(stack.for_target(self.name), self._folder(stack.name))

    @property
    def _folders(self) -> Folders:
        return Folders(self.clusters)

    def _folder(self, name: str) -> ClusterFolder:
        return ClusterFolder(self._folders.path(name))

    def _existing(self, name: str) -> ClusterFolder:
        folder = self._folder(name)
        if not folder.exists():
            raise not_up(name)
        return folder

    def _running(self, folder: ClusterFolder, progress: Progress) -> ClusterHandle | None:
        """The handle of a cluster that is up. Removes what an interrupted `up` left."""
        with _readable_records(folder.path.name):
            ready = folder.cluster().ready_at is not None
        if ready:
            return self.handle(folder.path.name)
        progress("removing what an interrupted start left")
        _remove(folder)
        return None


def _client_address(cluster: ClusterRecord) -> str | None:
    port = cluster.client_port
    return None if port is None else f"{RAY_CLIENT}{ray_start.LOOPBACK}:{port}"


@contextlib.contextmanager
def _readable_records(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:  # another command takes the cluster down meanwhile
        raise not_up(name) from error
    except (BrokenRecordError, ValidationError) as error:
        remedy = f"Take the cluster down and start again: sunspot down {name} && {_up(name)}"
        raise broken(name, str(error), remedy) from error


def _up(name: str) -> str:
    """The command that starts a cluster here, and not where its file says, which may be billed."""
    return f"sunspot up {name} --target {THIS_MACHINE}"


def _remove(folder: ClusterFolder) -> None:
    """Stops every process of the cluster and deletes its files."""
    with uninterrupted():
        starting.end(folder, STOP_GRACE_S if _is_ready(folder) else INTERRUPTED_GRACE_S)
        shutil.rmtree(folder.temp_dir, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.temp_dir.parent.rmdir()  # only the last cluster finds it empty
        shutil.rmtree(folder.path, ignore_errors=True)


def _is_ready(folder: ClusterFolder) -> bool:
    with contextlib.suppress(OSError, BrokenRecordError):
        return folder.cluster().ready_at is not None
    return False


def _status(folder: ClusterFolder, node: NodeRecord, *, ready: bool) -> NodeStatus | None:
    """A node's status; None for one that was stopped. In a cluster that starts, it starts."""
    running, started = folder.is_running(node.name), folder.process(node.name) is not None
    if node.goal == "down" and not running:
        return None
    if node.goal == "down":
        state = "draining"
    elif running:
        state = "up" if ready else "starting"
    else:
        state = "lost" if started else "starting"
    return NodeStatus(
        name=node.name,
        group=node.shape.group,
        market=node.shape.market,
        state=state,
        cpus=node.shape.cpus,
        gpus=node.shape.gpus,
        memory_gb=node.shape.memory / GIB,
        log=folder.log_tail(node.name) if state == "lost" else "",
        notes=tuple(folder.notes(node.name)),
    )
