"""Starting nodes of a local cluster, and waiting until they are members."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator

from sunspot.errors import SunspotError
from sunspot.node.local import ray_start
from sunspot.node.local.folder import HEAD, ClusterFolder, NodeRecord
from sunspot.node.local.machines import launch
from sunspot.signals import deferred
from sunspot.targets.local import capacity
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress

# In the log of a head that a busy machine was too slow for: Ray gave up, or its raylet ended, which
# gives its agents 15 s (ray/_private/node.py, 2.60; ray-project/ray#65983).
TOO_SLOW = ("timed out during startup", "raylet exited with code")


class SlowHeadError(SunspotError):
    """The machine was too slow for the head's start."""


def start(
    folder: ClusterFolder,
    nodes: list[NodeRecord],
    progress: Progress,
    timeout_s: float = UP_TIMEOUT_S,
) -> None:
    """Starts nodes and waits until they are members. If that fails, the caller stops them.

    The launcher starts a worker again that did not start. Where it is the head, all start again,
    once: the others looked for a GCS that is gone.

    Args:
        folder: the cluster's folder.
        nodes: the records of the nodes.
        progress: called with each step.
        timeout_s: seconds that it may take.

    Raises:
        SunspotError: a node could not start, or it took too long.
    """
    deadline = time.monotonic() + timeout_s
    try:
        try:
            _launch(folder, nodes, progress, timeout_s)
        except SlowHeadError:
            left = deadline - time.monotonic()
            if left < 1:
                raise
            progress(f"node {HEAD} did not start, as on a busy machine: once more")
            _clear(folder, nodes)
            _launch(folder, nodes, progress, left)
    except SunspotError as error:
        raise capacity.explained(folder, error) from error


def _clear(folder: ClusterFolder, nodes: list[NodeRecord]) -> None:
    """Removes what a failed start left; of a suspended cluster, its state and its logs stay."""
    end(folder, grace_s=0)
    is_new = folder.update_cluster(address=None).suspended_at is None
    if is_new:
        shutil.rmtree(folder.gcs_state)
        folder.gcs_state.mkdir(mode=0o700)
    for node in nodes:
        folder.forget_process(node.name)
        if is_new or not node.is_head:
            shutil.rmtree(node.temp_dir, ignore_errors=True)


def end(folder: ClusterFolder, grace_s: float) -> None:
    """Ends every process of the cluster.

    Raises:
        SunspotError: some did not end.
    """
    try:
        folder.stop(grace_s=grace_s)
    except TimeoutError as error:
        raise SunspotError(f"{error}; stop them yourself and try again") from error


def _launch(
    folder: ClusterFolder, nodes: list[NodeRecord], progress: Progress, timeout_s: float
) -> None:
    with contextlib.ExitStack() as at_end:
        # An interrupt while it starts would leave a launcher that nothing stops.
        with deferred():
            process = launch(folder, nodes, stdout=subprocess.PIPE)
            at_end.callback(process.wait)
            at_end.callback(process.kill)
        _follow(process, folder, progress, timeout_s)


def make_temp_dir(folder: ClusterFolder, *, keep: bool = False) -> None:
    """Makes a folder that only we can use, in a folder where every user may write.

    Args:
        folder: the cluster's folder.
        keep: whether to keep what the folder has from before; otherwise it is empty.

    Raises:
        SunspotError: somebody else made the folder that it would be in.
    """
    path, parent = folder.temp_dir, folder.temp_dir.parent
    while True:
        with contextlib.suppress(FileExistsError):
            parent.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # the last other cluster has just removed it
            capacity.check_temp_folder(folder)
            parent.chmod(0o700)
            if not keep:
                shutil.rmtree(path, ignore_errors=True)
            path.mkdir(mode=0o700, exist_ok=keep)
            break
    (path / ray_start.TEMP_FILES).mkdir(exist_ok=keep)


def _follow(
    process: subprocess.Popen[bytes], folder: ClusterFolder, progress: Progress, timeout_s: float
) -> None:
    """Reports what the launcher does, until it has ended well."""
    for event in _events(process, timeout_s):
        _report(event, progress)
    if process.wait() != 0:
        raise SunspotError(f"the launcher of {folder.path.name}'s nodes failed")


def _events(process: subprocess.Popen[bytes], timeout_s: float) -> Iterator[dict[str, str]]:
    """The launcher's events, one JSON object per line, until it ends.

    Raises:
        SunspotError: it did not end within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    last, pending = "starting the launcher", b""
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


def _report(event: dict[str, str], progress: Progress) -> None:
    match event["event"]:
        case "gcs":
            progress(f"GCS answers at {event['address']}")
        case "node":
            progress(f"node {event['name']} is up")
        case "again":
            progress(f"node {event['name']} did not start: starting it again")
        case "ready":
            progress("ready")
        case "died":
            name, log = event["name"], event["log"]
            slow = name == HEAD and any(sign in log for sign in TOO_SLOW)
            raise (SlowHeadError if slow else SunspotError)(
                f"node {name!r} could not start. The end of its log:\n{log}"
            )
