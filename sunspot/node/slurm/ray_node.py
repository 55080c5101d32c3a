"""One node's `ray start --block`, a child of the task that Slurm started."""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sunspot.node import gcs, prctl
from sunspot.node.slurm.plan import HEAD, announced_gcs

POLL_S = 0.1
CONNECT_TIMEOUT_S = 2.0

# The caller's settings that would make these nodes belong to another node, cluster or token.
FOREIGN_VARIABLES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_JOB_ID")


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """One node: what `ray start` gets, and where it prints.

    Attributes:
        name: the node's name in Ray.
        address: HOST:PORT of the cluster's GCS.
        cluster_file: where the head says that its GCS listens there.
        flags: the flags of `ray start`.
        environment: the variables of the node's processes.
        log: the file that it prints into; a job that starts again appends to it.
        join_s: how long a worker waits for the head, in seconds.
    """

    name: str
    address: str
    cluster_file: Path
    flags: list[str]
    environment: Mapping[str, str]
    log: Path
    join_s: float

    def start(self) -> int:
        """Starts the node; returns its process, which leads a session of its own."""
        task = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._run(task)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(1)  # never fall back into the task that forked us
        return pid

    def _run(self, task: int) -> None:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # the task has handlers of its own
        prctl.end_with_parent(task)
        _print_into(self.log)
        os.environ.update(self.environment)
        from ray.scripts import scripts

        if self.name != HEAD:
            self._wait_for_head()
        scripts.cli(["start", *self.flags], prog_name="ray", standalone_mode=False)

    def _wait_for_head(self) -> None:
        """Waits until the head is a member of its GCS.

        A worker that starts earlier asks for it only every two seconds (ray/_private/utils.py,
        get_all_node_info_until_retrieved, 2.60).

        Raises:
            TimeoutError: it did not become one in time.
        """
        from ray.exceptions import AuthenticationError

        deadline = time.monotonic() + self.join_s
        # Not by a connection: until the head has looked, anyone may listen there.
        while announced_gcs(self.cluster_file.read_text()) != self.address:
            _check(deadline, f"the head did not say within {self.join_s:g} s that its GCS listens")
        client, members = gcs.connect(self.address), dict[str, str]()
        while HEAD not in members:
            try:
                members = gcs.patiently(functools.partial(gcs.alive_nodes, client), deadline)
            except AuthenticationError:  # WrongClusterID: the GCS was started anew
                client = gcs.connect(self.address)
            if HEAD not in members:
                _check(deadline, f"the head did not join its GCS within {self.join_s:g} s")


Answer = Literal["accepts", "refuses", "silent"]


def answer(address: str) -> Answer:
    """What a connection to HOST:PORT meets: "refuses" means that nothing listens there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S):
            return "accepts"
    except ConnectionRefusedError:
        return "refuses"
    except OSError:
        return "silent"


def accepts(address: str) -> bool:
    """Whether a server at HOST:PORT accepts connections."""
    return answer(address) == "accepts"


def _check(deadline: float, message: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(message)
    time.sleep(POLL_S)


def _print_into(log: Path) -> None:
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
