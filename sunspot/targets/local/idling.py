"""The process that looks after a local cluster's idleness: started beside its nodes."""

from __future__ import annotations

import os
import subprocess
import sys

from sunspot.node import idle as keeping
from sunspot.node.local import idle
from sunspot.node.local.folder import CLUSTER_VARIABLE, ClusterFolder
from sunspot.registry import THIS_MACHINE
from sunspot.stack import Stack
from sunspot.targets.idling import no_policy


def watch(folder: ClusterFolder, stack: Stack) -> None:
    """Has a running cluster follow the stack's policy; without one, no process is needed.

    A process that is there already reads the record again.
    """
    before = folder.cluster().stack
    now = stack.model_dump(mode="json", include={"idle"})
    if before.get("idle") != now["idle"]:
        folder.update_cluster(stack={**before, **now})
    if stack.idle is not None and not folder.is_running(idle.NAME):
        _start(folder, stack.name)


def keep_alive(folder: ClusterFolder, stack: Stack, seconds: float) -> float:
    """Keeps a cluster for so long; returns when that ends, in seconds since the epoch.

    Raises:
        UsageError: nothing is done to the cluster when it is idle.
    """
    if stack.idle is None:
        raise no_policy(stack)
    return keeping.keep_alive(folder.notices, seconds)


def _start(folder: ClusterFolder, name: str) -> None:
    python = [sys.executable, "-P", "-m"]
    suspend = [*python, "sunspot.cli", "suspend", name, "--target", THIS_MACHINE]
    with (folder.path / "idle.log").open("ab") as log:
        subprocess.Popen(
            [*python, idle.__name__, str(folder.path), *suspend],
            env=os.environ | {CLUSTER_VARIABLE: str(folder.path)},
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
