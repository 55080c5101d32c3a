"""The log of a local cluster's node: a file that is kept until the cluster is taken down."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TextIO

from sunspot.node.local.folder import COLOUR_CODE, HEAD, HEAD_TEMP_DIR, ClusterFolder
from sunspot.targets import abilities
from sunspot.targets.protocol import Progress

POLL_S = 0.2


def show(
    folder: ClusterFolder, node: str, out: TextIO, note: Progress, *, follow: bool = False
) -> int:
    """Prints a node's log, and where it and Ray's own logs are; returns 0.

    Args:
        folder: the cluster's folder.
        node: the node's name.
        out: where the log is printed.
        note: called with notes for people.
        follow: whether to go on until the node's process has ended, or the cluster is gone.

    Raises:
        UsageError: the cluster never had such a node.
    """
    known = sorted((file.stem for file in _records(folder)), key=lambda name: (name != HEAD, name))
    if node not in known:
        raise abilities.unknown(folder.path.name, "node", node, known)
    log = folder.log(node)
    note(f"the file: {log}" if log.exists() else f"node {node} has printed nothing yet")
    ray_logs = folder.temp_dir / HEAD_TEMP_DIR / "session_latest" / "logs"
    if ray_logs.is_dir():
        note(f"Ray's own logs, of all nodes of this cluster: {ray_logs}")
    printed = _print(log, 0, out, whole_lines=follow)
    while follow:
        # Checked before the log is read, so that the node's last lines are not missed.
        ended = _has_ended(folder, node)
        printed = _print(log, printed, out, whole_lines=not ended)
        if ended:
            break
        time.sleep(POLL_S)
    return 0


def _records(folder: ClusterFolder) -> list[Path]:
    return list((folder.path / "nodes").glob("*.json"))


def _has_ended(folder: ClusterFolder, node: str) -> bool:
    if folder.process(node) is None:  # it has not started yet, or `down` removed everything
        return not (folder.path / "nodes" / f"{node}.json").exists()
    return not folder.is_running(node)


def _print(log: Path, start: int, out: TextIO, *, whole_lines: bool = False) -> int:
    """Prints the log from the byte `start` on, without colour codes; returns where it ended."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return start
    if whole_lines:
        data = data[: data.rfind(b"\n") + 1]
    out.write(COLOUR_CODE.sub("", data.decode(errors="replace")))
    out.flush()
    return start + len(data)
