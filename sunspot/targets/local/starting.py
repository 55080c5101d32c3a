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
from sunspot.node.local.folder import ClusterFolder, NodeRecord
from sunspot.node.local.machines import launch
from sunspot.signals import deferred
from sunspot.targets.local import capacity
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress


def start(
    folder: ClusterFolder,
    nodes: list[NodeRecord],
    progress: Progress,
    timeout_s: float = UP_TIMEOUT_S,
) -> None:
    """Starts nodes and waits until they are members. If that fails, the caller stops them.

    Args:
        folder: the cluster's folder.
        nodes: the records of the nodes.
        progress: called with each step.
        timeout_s: seconds that it may take.

    Raises:
        SunspotError: a node could not start, or it took too long.
    """
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
    try:
        for event in _events(process, timeout_s):
            _report(event, progress)
        if process.wait() != 0:
            raise SunspotError(f"the launcher of {folder.path.name}'s nodes failed")
    except SunspotError as error:
        raise capacity.explained(folder, error) from error


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
            raise SunspotError(
                f"node {event['name']!r} could not start. The end of its log:\n{event['log']}"
            )
