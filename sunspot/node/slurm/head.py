"""The head's life: its cluster, the command that runs on it, and the notice before the end."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sunspot.node import dashboard, gcs
from sunspot.node.collector import GROUP_LABEL
from sunspot.node.slurm import listeners
from sunspot.node.slurm.plan import (
    CLUSTER_FILE,
    FAILED,
    HEAD,
    KILL_MARGIN_S,
    TERM_MARGIN_S,
    Published,
    drain_message,
)
from sunspot.node.slurm.task import Node, Task, say

POLL_S = 0.1
HTTP_TIMEOUT_S = 10.0


def live(node: Node) -> int:
    """Runs the job's command; without one, stays until the job ends. Returns the exit code."""
    return Life(node, read_command(node.task.folder)).run()


def read_command(folder: Path) -> list[str]:
    """What runs on the head, with its arguments; none if there is no such file in the folder."""
    with contextlib.suppress(FileNotFoundError):
        return [os.fsdecode(one) for one in (folder / "command").read_bytes().split(b"\0")[:-1]]
    return []


class Life:
    """What the head does, step by step."""

    def __init__(self, node: Node, command: Sequence[str]) -> None:
        self._node = node
        self._task: Task = node.task
        self._command = list(command)
        self._client: Any = None

    def run(self) -> int:
        """Brings the cluster up and stays with it; returns the exit code of the job."""
        published = self._published()
        gcs_port = _port(published.gcs)
        self._wait(lambda: listeners.listens(gcs_port), "the GCS to listen")
        # Only now may a worker show the token there.
        self._write(json.dumps({"gcs": published.gcs}))
        self._client = gcs.connect(self._task.address)
        dashboard.announce(self._client, published.dashboard)
        if not self._command:
            self._wait(lambda: _has_job_api(published, self._task), "the job API to answer")
            self._write(published.to_json())
            return self._stay()
        if short := self._wait_for_workers():
            say(f"{short}; see {self._task.log.parent}")
            return 1
        self._write(published.to_json())
        return self._run_command(published)

    def _published(self) -> Published:
        host, first = self._task.address.rpartition(":")[0], _port(self._task.address)
        names = self._task.group.ports
        ports = {name: f"{host}:{first + number}" for number, name in enumerate(names)}
        return Published(
            gcs=ports["gcs"],
            dashboard=ports["dashboard"],
            client=ports["client"],
            node=self._task.has.node,
        )

    def _write(self, text: str) -> None:
        # Into the same file: over NFS a new one may stay unseen for a minute.
        (self._task.folder / CLUSTER_FILE).write_text(text)

    def _check(self) -> None:
        self._node.check()
        first = _port(self._task.address)
        listeners.check(range(first, first + len(self._task.group.ports)))

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._task.plan.join_s
        while True:
            self._check()
            if ready():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {self._task.plan.join_s} s for {what}")
            time.sleep(POLL_S)

    def _wait_for_workers(self) -> str:
        """Waits for every node of the job; returns why some will not join, or ""."""
        deadline = time.monotonic() + self._task.plan.join_s
        while short := self._missing():
            self._check()
            failed = [file.name for file in self._task.folder.glob(f"{FAILED}*")]
            if failed:
                names = ", ".join(sorted(name.removeprefix(FAILED) for name in failed))
                return f"{short}, and Ray ended on {names}"
            if time.monotonic() > deadline:
                return f"{short} within {self._task.plan.join_s} s"
            if self._task.noticed:
                return f"{short} before the job ends"
            time.sleep(POLL_S)
        return ""

    def _missing(self) -> str:
        from ray.exceptions import RpcError

        try:
            alive = gcs.alive_labels(self._client)
        except RpcError:  # too busy to answer in time: it is asked again
            return "the GCS does not answer"
        members = Counter(labels.get(GROUP_LABEL) for labels in alive)
        return ", ".join(
            f"{members[group.name]} of {group.nodes} nodes of {group.name} joined"
            for group in self._task.plan.groups
            if members[group.name] < group.nodes
        )

    # Without a command

    def _stay(self) -> int:
        until = None
        while until is None or time.time() < until:
            self._node.check()
            if until is None and self._task.noticed:
                until = self._drain()
            time.sleep(POLL_S * 5)
        say("the cluster ends with its job")
        return 0

    # With a command

    def _run_command(self, published: Published) -> int:
        own = {"RAY_ADDRESS": published.gcs, "RAY_API_SERVER_ADDRESS": _url(published)}
        try:
            command = subprocess.Popen(self._command, env=os.environ | own)
        except OSError as error:
            say(f"{self._command[0]!r} cannot be run: {error.strerror}")
            return 127
        noticed_at = None
        try:
            while (code := command.poll()) is None:
                self._node.check()
                if noticed_at is None and self._task.noticed:
                    noticed_at = time.time()
                    self._drain()
                if noticed_at is not None:
                    self._hurry(command, time.time() - noticed_at)
                time.sleep(POLL_S)
        finally:
            if command.poll() is None:
                command.terminate()
        if code and noticed_at is not None and self._task.plan.requeue:
            say("the command was cut off: the job is put back into the queue")
            (self._task.folder / "requeue").touch()
        return code if code >= 0 else 128 - code

    def _hurry(self, command: subprocess.Popen[bytes], seconds: float) -> None:
        left = self._task.plan.notice_s - seconds
        if left < KILL_MARGIN_S:
            command.kill()
        elif left < TERM_MARGIN_S:
            command.terminate()

    # Both

    def _drain(self) -> float:
        """Drains the workers; returns until when they may go on, in seconds since the epoch.

        The head is not drained: the command's driver would end with its raylet.
        """
        until = time.time() + self._task.plan.notice_s - TERM_MARGIN_S
        say(f"the job {self._task.has.job} ends soon: draining the workers")
        message = drain_message(self._task.has.job)
        last = time.monotonic() + until - time.time()
        nodes = gcs.patiently(lambda: gcs.alive_nodes(self._client), last)
        for node_id in (nodes[name] for name in nodes.keys() - {HEAD}):
            drain = functools.partial(gcs.drain_node, self._client, node_id, message)
            gcs.patiently(functools.partial(drain, int(until * 1000)), last)
        return until


def _url(published: Published) -> str:
    return f"http://{published.dashboard}"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _has_job_api(published: Published, task: Task) -> bool:
    host, _, port = published.dashboard.rpartition(":")
    if not listeners.listens(int(port)):
        return False
    token = (task.folder / "token").read_text().strip()
    connection = http.client.HTTPConnection(host, int(port), timeout=HTTP_TIMEOUT_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/api/jobs/", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status == http.client.OK
    return False
