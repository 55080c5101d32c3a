"""The probe as jobs on the head: sent, followed, and its answers."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sunspot.errors import SunspotError
from sunspot.ray.api_errors import SilentError
from sunspot.ray.feasibility import Request
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.jobs import JobClient
from sunspot.targets.azure.doctor.findings import short
from sunspot.targets.azure.first_contact import probe
from sunspot.targets.azure.first_contact.steps import NotTriedError
from sunspot.targets.protocol import silent
from sunspot.targets.ssh import UnreachableError

# The copy of the autoscaler's config that Ray reads, on the head: cloud_init/render.py.
CONFIG = "/run/sunspot/autoscaler/config.yaml"

POLL_S = 2.0
# How long the head may be silent: a tunnel that broke is opened again meanwhile.
SILENCE_S = 120.0
# Longer than all that the probe itself waits for.
JOB_S = 5400.0

T = TypeVar("T")
Answer = Mapping[str, Any]


@dataclass
class HeadJobs:
    """Runs the probe on a cluster.

    Attributes:
        connect: returns the cluster's handle, through a live tunnel.
        group: the name of the workers' group.
        config: the path of the autoscaler's config on the head.
    """

    connect: Callable[[], ClusterHandle]
    group: str
    config: str
    _answers: dict[str, Answer] = field(default_factory=dict)

    def part(self, trial: str, name: str) -> str:
        """What a trial says of one thing, if that is as it should be; each trial runs once.

        Raises:
            NotTriedError: there was nothing to try.
            SunspotError: it is not as it should be, or the probe failed; the message says why.
        """
        if trial not in self._answers:
            self._answers[trial] = self._kept(trial)
        return read(self._answers[trial], name)

    def run(self, trial: str, hear: Callable[[Answer], None]) -> Answer:
        """Runs a trial to its end, and returns its last answer; `hear` gets the earlier ones.

        Raises:
            SunspotError: the head does not answer, or the probe ended without an answer.
        """
        client = JobClient(self.connect(), reconnect=self.connect)
        job_id = self._submit(client, trial)
        deadline, heard = time.monotonic() + JOB_S, 0
        while True:
            job = _patiently(client, lambda: client.get(job_id))
            answers = _answers(_patiently(client, lambda: client.logs(job_id)))
            early = answers[heard:] if not job.has_ended else answers[heard:-1]
            for answer in early:
                hear(answer)
            heard += len(early)
            if job.has_ended:
                break
            if time.monotonic() > deadline:
                client.stop(job_id)
                raise SunspotError(f"the probe {trial!r} did not end within {JOB_S:.0f} s")
            time.sleep(POLL_S)
        if not answers:
            said = client.logs(job_id).strip().rpartition("\n")[2] or job.reason
            raise SunspotError(f"the probe {trial!r} ended as {job.status}: {short(said)}")
        return answers[-1]

    def ids(self) -> set[str]:
        """The ids of the cluster's jobs."""
        return {job.id for job in JobClient(self.connect()).list()}

    def head_node(self) -> str:
        """Ray's id of the head's node, which another start of Ray changes."""
        nodes = JobClient(self.connect()).state("nodes")
        alive = [one for one in nodes if one.get("is_head_node") and one["state"] == "ALIVE"]
        return str(alive[0].get("node_id", "")) if alive else ""

    def _kept(self, trial: str) -> Answer:
        try:
            return self.run(trial, lambda _: None)
        except SunspotError as error:
            return {"error": str(error)}

    def _submit(self, client: JobClient, trial: str) -> str:
        words = ["python", "probe.py", trial, "--config", self.config, "--group", self.group]
        with tempfile.TemporaryDirectory(prefix="first-contact-") as folder:
            shutil.copy(probe.__file__, Path(folder) / "probe.py")
            env = {"working_dir": folder}
            client.send_working_dir(env, silent)
        return client.submit(words, request=Request(), runtime_env=env)


def read(answer: Answer, name: str) -> str:
    """The detail of one thing in a probe's answer.

    Raises:
        NotTriedError: there was nothing to try.
        SunspotError: it is not as it should be.
    """
    if "error" in answer:
        raise SunspotError(str(answer["error"]))
    if name not in answer:
        raise SunspotError(f"the probe ended without a word on {name}")
    said = answer[name]
    if said["outcome"] == "ok":
        return said["detail"]
    kind = NotTriedError if said["outcome"] == "not tried" else SunspotError
    raise kind(said["detail"])


def _answers(log: str) -> list[Answer]:
    return list(_parsed(log))


def _parsed(log: str) -> Iterator[Answer]:
    for line in log.splitlines():
        if line.startswith(probe.MARK):
            try:
                yield json.loads(line.removeprefix(probe.MARK))
            except ValueError:  # half a line, so far
                return


def _patiently(client: JobClient, ask: Callable[[], T]) -> T:
    """An answer of the head, also after a silence in which the tunnel is opened again."""
    deadline = time.monotonic() + SILENCE_S
    while True:
        try:
            return ask()
        except (SilentError, UnreachableError):
            if time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)
        try:
            client.reconnect()
        except UnreachableError:
            continue
