"""The local target: a real multi-node Ray cluster as processes on this machine.

Every node is a `ray start --block` process tree with the CPUs, GPUs (logical), memory and labels
of its spec. Records lie in the user's state directory, one folder a cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import platformdirs

from sunspot.errors import SunspotError
from sunspot.node.files import locked, write_private
from sunspot.node.local.folder import (
    HEAD,
    BrokenRecordError,
    ClusterFolder,
    ClusterRecord,
    NodeRecord,
    ports_locked,
    reserved_ports,
)
from sunspot.node.local.machines import launch
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets.clusters import check_scale
from sunspot.targets.local import node_log as local_node_log
from sunspot.targets.local import plan
from sunspot.targets.local.errors import (
    STATE_DIRECTORY_VARIABLE,
    readable_disk_errors,
    readable_records,
)
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    ClusterHandle,
    HeadLostError,
    NodeStatus,
    Progress,
)

GIB = 2**30

DRAIN_TIMEOUT_S = 30.0

# `ray start` ends its children in order within about 3 s; while it starts it ignores SIGTERM.
STOP_GRACE_S, INTERRUPTED_GRACE_S = 5.0, 0.5


def create() -> LocalTarget:
    """The local target on the user's state directory, or on SUNSPOT_STATE_DIR."""
    chosen = os.environ.get(STATE_DIRECTORY_VARIABLE)
    root = Path(chosen).absolute() if chosen else platformdirs.user_state_path("sunspot")
    return LocalTarget(root / "clusters")


@dataclass(frozen=True)
class LocalTarget:
    """Clusters whose folders lie in `clusters`."""

    clusters: Path

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
    ) -> ClusterHandle:
        folder = self._folder(stack.name)
        with self._locked(stack.name, progress), readable_disk_errors(self.clusters):
            if folder.exists() and (handle := self._running(folder, progress)):
                return handle
            try:
                nodes = self._write_plan(folder, stack, port, dashboard_port)
                _start(folder, nodes, progress, timeout_s)
            except BaseException:
                _remove(folder)
                raise
        return self.handle(stack.name)

    def down(self, name: str, progress: Progress) -> bool:
        folder = self._folder(name)
        if not folder.path.exists():
            return False
        with self._locked(name, progress):
            progress(f"ending {len(folder.processes())} processes")
            _remove(folder)
        return True

    def names(self) -> list[str]:
        return sorted(path.name for path in self.clusters.glob("*/") if path.is_dir())

    def stack(self, name: str) -> Stack:
        with readable_records(name):
            return Stack.model_validate(self._folder(name).cluster().stack)

    def handle(self, name: str) -> ClusterHandle:
        folder = self._folder(name)
        if not folder.exists():
            raise SunspotError(f"stack {name!r} is not up; start it with: sunspot up {name}")
        with readable_records(name):
            cluster = folder.cluster()
            head_is_dead = folder.process(HEAD) is not None and not folder.is_running(HEAD)
        if head_is_dead:
            raise HeadLostError(
                f"the head of {name!r} is dead, and its cluster with it. Take it away and start "
                f"again: sunspot down {name} && sunspot up {name}\n"
                f"The end of its log:\n{folder.log_tail(HEAD)}"
            )
        if cluster.ready_at is None or cluster.address is None:
            raise SunspotError(
                f"stack {name!r} is still starting, or was interrupted while it did. "
                f"Wait, or run: sunspot up {name}"
            )
        return ClusterHandle(
            name=name,
            target="local",
            head_address=cluster.address,
            job_address=f"http://127.0.0.1:{cluster.dashboard_port}",
            token_path=folder.token,
        )

    def nodes(self, name: str) -> list[NodeStatus]:
        folder = self._folder(name)
        with readable_records(name):
            status = [_status(folder, node) for node in folder.nodes()]
        wanted = [node for node in status if node is not None]
        return sorted(wanted, key=lambda node: node.state == "lost")

    def node_log(
        self, name: str, node: str, out: TextIO, tell: Progress, *, follow: bool = False
    ) -> int:
        with readable_records(name):
            return local_node_log.show(self._folder(name), node, out, tell, follow=follow)

    def scale(self, name: str, group: str, count: int, progress: Progress) -> None:
        handle, folder = self.handle(name), self._folder(name)
        check_scale(self.stack(name), group, count)
        with self._locked(name, progress):
            running = [n for n in _wanted(folder) if n.shape.group == group and _is_up(folder, n)]
            nodes: list[NodeRecord] = []
            if count > len(running):
                with ports_locked(self.clusters):
                    shape = folder.cluster().shapes[group]
                    nodes = [folder.add_node(shape) for _ in range(count - len(running))]
            # After the records, or the autoscaler would start the missing ones as well.
            before = plan.set_minimum(folder, group, count)
            if nodes:
                try:
                    _start(folder, nodes, progress)
                except BaseException:
                    plan.set_minimum(folder, group, before)
                    raise
            elif count < len(running):
                _let_go(folder, handle, running[count:], progress)

    def _folder(self, name: str) -> ClusterFolder:
        return ClusterFolder(self.clusters / name)

    @contextlib.contextmanager
    def _locked(self, name: str, progress: Progress) -> Iterator[None]:
        lock = self.clusters / f".{name}.lock"
        with readable_disk_errors(self.clusters), contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(lock, wait=False))
            except BlockingIOError:
                progress(f"waiting for another command that is working on {name}")
                stack.enter_context(locked(lock))
            try:
                yield
            finally:
                # Where no cluster is, nothing of it stays; whoever waits takes a new lock.
                if not self._folder(name).path.exists():
                    lock.unlink(missing_ok=True)

    def _running(self, folder: ClusterFolder, progress: Progress) -> ClusterHandle | None:
        """The handle of a cluster that is up. What an interrupted `up` left is taken away."""
        with readable_records(folder.path.name):
            ready = folder.cluster().ready_at is not None
        if ready:
            return self.handle(folder.path.name)
        progress("taking away what an interrupted start left")
        _remove(folder)
        return None

    def _write_plan(
        self, folder: ClusterFolder, stack: Stack, port: int | None, dashboard_port: int | None
    ) -> list[NodeRecord]:
        """Writes down all that will be, before any of it is."""
        _make_temp_dir(folder.temp_dir)
        write_private(folder.token, secrets.token_hex(32))
        shapes = plan.shapes(stack)
        with ports_locked(self.clusters):
            taken = reserved_ports(self.clusters)
            gcs_port = plan.choose_port("--port", port, taken)
            folder.write_cluster(
                ClusterRecord(
                    name=stack.name,
                    created_at=time.time(),
                    gcs_port=gcs_port,
                    dashboard_port=plan.choose_port(
                        "--dashboard-port", dashboard_port, taken | {gcs_port}
                    ),
                    shapes=shapes,
                    stack=stack.model_dump(mode="json"),
                )
            )
            folder.add_node(shapes[HEAD])
            for group in stack.cluster.scaling_groups:
                for _ in range(group.min_workers):
                    folder.add_node(shapes[group.name])
        plan.write_autoscaler_config(folder, stack)
        return folder.nodes()


def _start(
    folder: ClusterFolder,
    nodes: list[NodeRecord],
    progress: Progress,
    timeout_s: float = UP_TIMEOUT_S,
) -> None:
    """Starts these nodes and waits until they are members; takes them away if one cannot start."""
    process = launch(folder, nodes, stdout=subprocess.PIPE)
    try:
        for event in _events(process, timeout_s):
            _tell(event, progress)
        if process.wait() != 0:
            raise SunspotError(f"the launcher of {folder.path.name}'s nodes ended with an error")
    except BaseException:
        with uninterrupted():
            process.kill()
            for node in nodes:
                folder.write_node(replace(node, goal="down"))
                folder.stop(node.name, grace_s=1)
        raise
    finally:
        process.wait()


def _events(process: subprocess.Popen[bytes], timeout_s: float) -> Iterator[dict[str, str]]:
    """What the launcher tells, one JSON object a line, until it ends.

    Raises:
        SunspotError: it did not end within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    last, pending = "none", b""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise SunspotError(f"timed out after {timeout_s:g} s; the last step was: {last}")
            chunk = os.read(process.stdout.fileno(), 65_536)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                last = f"{event['event']} {event.get('name', '')}".strip()
                yield event


def _tell(event: dict[str, str], progress: Progress) -> None:
    match event["event"]:
        case "gcs":
            progress(f"GCS answers at {event['address']}")
        case "node":
            progress(f"node {event['name']} is up")
        case "ready":
            progress("ready")
        case "died":
            raise SunspotError(
                f"node {event['name']!r} could not start. The end of its log:\n{event['log']}"
            )


def _remove(folder: ClusterFolder) -> None:
    """Ends every process of the cluster and deletes all that it wrote."""
    with uninterrupted():
        try:
            folder.stop(grace_s=STOP_GRACE_S if _is_ready(folder) else INTERRUPTED_GRACE_S)
        except TimeoutError as error:
            raise SunspotError(f"{error}; end them yourself and run down again") from error
        shutil.rmtree(folder.temp_dir, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.temp_dir.parent.rmdir()  # only the last cluster finds it empty
        shutil.rmtree(folder.path, ignore_errors=True)


def _is_ready(folder: ClusterFolder) -> bool:
    with contextlib.suppress(OSError, BrokenRecordError):
        return folder.cluster().ready_at is not None
    return False


def _let_go(
    folder: ClusterFolder, handle: ClusterHandle, nodes: list[NodeRecord], progress: Progress
) -> None:
    """Drains nodes, so that running tasks end, and stops them."""
    names = [node.name for node in nodes]
    for node in nodes:
        folder.write_node(replace(node, goal="down"))
    progress(f"draining {', '.join(names)} (at most {DRAIN_TIMEOUT_S:.0f} s)")
    subprocess.run(
        [sys.executable, "-P", "-m", "sunspot.node.drain", f"--seconds={DRAIN_TIMEOUT_S}", *names],
        env=os.environ | handle.environment(),
        check=False,
    )
    for name in names:
        folder.stop(name)
    progress(f"stopped {', '.join(names)}")


def _wanted(folder: ClusterFolder) -> list[NodeRecord]:
    return [node for node in folder.nodes() if node.goal == "up"]


def _is_up(folder: ClusterFolder, node: NodeRecord) -> bool:
    return folder.process(node.name) is None or folder.is_running(node.name)


def _status(folder: ClusterFolder, node: NodeRecord) -> NodeStatus | None:
    running, started = folder.is_running(node.name), folder.process(node.name) is not None
    if node.goal == "down" and not running:
        return None
    if node.goal == "down":
        state = "draining"
    elif running:
        state = "up"
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
    )


def _make_temp_dir(path: Path) -> None:
    """Makes an empty folder that is ours alone, in a place where anybody may write."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.parent.is_symlink() or path.parent.stat().st_uid != os.getuid():
        raise SunspotError(f"{path.parent} belongs to somebody else; remove it")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
