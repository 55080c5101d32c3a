"""Jobs on a cluster that is up, over Ray's job API (REST) with the cluster's token.

Ray itself is not imported, which takes longer than submitting; the REST API is documented.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from sunspot.errors import SunspotError, UsageError
from sunspot.node.processes import way
from sunspot.ray import api_errors, environment_errors, job_log, packaging
from sunspot.ray.api_errors import NotFoundError, RefusedError, SilentError
from sunspot.ray.entrypoint import shell_line, shown
from sunspot.ray.feasibility import NodeType, Request
from sunspot.ray.handle import ClusterHandle

# How often the state of a job that should stop is polled.
POLL_S = 0.1

REQUEST_TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 600.0
# The head's agent connects to the cluster as a driver when its first job arrives
# (init_ray_and_catch_exceptions, 2.60), which takes a busy or small head long.
SUBMIT_TIMEOUT_S = 300.0
# On a busy machine the head is a member before its agent answers. The dashboard waits 10 s for that
# agent, and then takes no job (JobHead.submit_job, 2.60). Less than the 300 s after which the same
# words may mean a job that an agent has taken.
NO_AGENT, AGENT_TIMEOUT_S, AGENT_POLL_S = "No available agent", 60.0, 1.0
STOP_TIMEOUT_S, STOP_AGAIN_S = 20.0, 1.0

JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
MAX_JOB_ID = 128

# More in one answer is refused (RAY_MAX_LIMIT_FROM_API_SERVER, 2.60).
STATE_LIMIT = 10_000


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the cluster knows it. Times are unix seconds; `exit_code` is its driver's.

    `ray_id` is Ray's own id of the driver, which its tasks carry; "" before the driver has one.
    """

    id: str
    ray_id: str
    status: str
    entrypoint: str
    message: str
    exit_code: int | None
    started: float | None
    ended: float | None

    @property
    def reason(self) -> str:
        """The message's first line, without the log that Ray appends, but with why pip failed."""
        if self.exit_code is not None and self.exit_code < 0:
            return f"its command {way(self.exit_code)}"
        first = self.message.partition("\n")[0].partition(", last available logs")[0]
        return environment_errors.with_cause(first, self.message)

    @property
    def has_ended(self) -> bool:
        return self.status in {"SUCCEEDED", "FAILED", "STOPPED"}

    @classmethod
    def from_api(cls, fields: Mapping[str, Any]) -> Job:
        return cls(
            id=fields["submission_id"] or fields["job_id"] or "",
            ray_id=fields.get("job_id") or "",
            status=fields["status"],
            entrypoint=shown(fields["entrypoint"]),
            message=fields.get("message") or "",
            exit_code=fields.get("driver_exit_code"),
            started=_seconds(fields.get("start_time")),
            ended=_seconds(fields.get("end_time")),
        )


class JobClient:
    """Talks to the job API of one cluster.

    `reconnect`, if given, returns the target's current handle, whose tunnel is a new one if the
    first has died.
    """

    def __init__(
        self, handle: ClusterHandle, *, reconnect: Callable[[], ClusterHandle] | None = None
    ) -> None:
        self._reconnect = reconnect
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between us and our own cluster or tunnel
        self._use(handle)

    @property
    def handle(self) -> ClusterHandle:
        """The handle in use."""
        return self._handle

    def reconnect(self) -> None:
        """Switches to the target's current handle; raises what getting it raises."""
        if self._reconnect:
            self._use(self._reconnect())

    def _use(self, handle: ClusterHandle) -> None:
        self._handle = handle
        self._session.headers["Authorization"] = f"Bearer {handle.token()}"

    def list(self) -> list[Job]:
        """The cluster's jobs, the newest first. Drivers that joined by `ray.init` are left out."""
        jobs = [
            Job.from_api(f) for f in self.call("GET", "/api/jobs/") if f["type"] == "SUBMISSION"
        ]
        return sorted(jobs, key=lambda job: job.started or 0, reverse=True)

    def get(self, job_id: str) -> Job:
        """One job.

        Raises:
            UsageError: there is no job of that id; the message lists the ids that exist.
        """
        return Job.from_api(self._fields(job_id))

    def logs(self, job_id: str) -> str:
        """All that a job has printed so far, with U+FFFD for what is not UTF-8."""
        fields = self._fields(job_id)
        try:
            return self.call("GET", job_path(job_id) + "/logs")["logs"]
        except RefusedError as error:
            if not job_log.is_undecodable(error):
                raise
        data = self._request("GET", job_log.file_path(fields)).content
        return job_log.decode(data, final=True)

    def submit(
        self,
        entrypoint: Sequence[str],
        *,
        request: Request,
        runtime_env: Mapping[str, Any],
        job_id: str | None = None,
    ) -> str:
        """Submits a job and returns its id, without waiting for it.

        Where the head's agent is not up yet, it is waited for.

        Raises:
            UsageError: a job of that id exists already.
        """
        amounts = request.amounts()
        memory = amounts.pop("memory", None)
        body = {
            "entrypoint": shell_line(entrypoint),
            "submission_id": new_id(entrypoint) if job_id is None else check_id(job_id),
            "runtime_env": dict(runtime_env),
            "metadata": {},
            "entrypoint_num_cpus": amounts.pop("CPU", None),
            "entrypoint_num_gpus": amounts.pop("GPU", None),
            "entrypoint_memory": None if memory is None else int(memory),
            "entrypoint_resources": amounts or None,
        }
        until = time.monotonic() + AGENT_TIMEOUT_S
        while True:
            try:
                answer = self.call("POST", "/api/jobs/", timeout=SUBMIT_TIMEOUT_S, json=body)
            except RefusedError as error:
                if "already exists" in str(error):
                    raise _taken(job_id) from None
                if NO_AGENT not in error.reason or time.monotonic() > until:
                    raise
                time.sleep(AGENT_POLL_S)
            else:
                return answer["submission_id"]

    def check_unused(self, job_id: str) -> None:
        """Checks that no job has this id.

        Raises:
            UsageError: one has.
        """
        if any(job.id == job_id for job in self.list()):
            raise _taken(job_id)

    def stop(self, job_id: str, *, late_s: float = 0.0) -> Job:
        """Stops a job and returns it as it ended; one that has ended already is left as it is.

        Args:
            job_id: the job's id.
            late_s: how long it may take until the cluster knows the job, in seconds.

        Raises:
            UsageError: there is no job of that id.
            SunspotError: it did not end within STOP_TIMEOUT_S.
        """
        job = self._get_late(job_id, late_s)
        deadline, ask_at = time.monotonic() + STOP_TIMEOUT_S, 0.0
        while not job.has_ended:
            if time.monotonic() > ask_at:
                # Again, since nothing stops a job whose supervisor is about to start (2.60).
                self.call("POST", job_path(job_id) + "/stop")
                ask_at = time.monotonic() + STOP_AGAIN_S
            if time.monotonic() > deadline:
                raise SunspotError(
                    f"job {job_id!r} should have stopped but is still {job.status} after "
                    f"{STOP_TIMEOUT_S:.0f} s; look again with: sunspot jobs"
                )
            time.sleep(POLL_S)
            job = self.get(job_id)
        return job

    def _get_late(self, job_id: str, late_s: float) -> Job:
        deadline = time.monotonic() + late_s
        while True:
            try:
                return self.get(job_id)
            except UsageError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)

    def upload(
        self, directory: Path, files: Sequence[packaging.File], note: Callable[[str], None]
    ) -> str:
        """Sends a working directory unless the cluster has the same content; returns its URI."""
        with packaging.package(directory, list(files)) as package:
            path = "/api/packages/" + package.uri.replace("://", "/")
            what = f"{directory.resolve()} ({len(files)} files, {_size(package.size)})"
            try:
                self.call("GET", path)
                note(f"{what} is on the cluster already")
            except NotFoundError:
                note(f"uploading {what}")
                self.call("PUT", path, data=package.file, timeout=UPLOAD_TIMEOUT_S)
        return package.uri

    def state(
        self,
        kind: str,
        *,
        limit: int = STATE_LIMIT,
        timeout: float = REQUEST_TIMEOUT_S,
        **filters: str,
    ) -> list[dict[str, Any]]:
        """The "nodes", "tasks" and so on as Ray's state API has them, in full.

        Args:
            kind: Ray's word for what is listed.
            limit: the most entries; Ray allows 10,000.
            timeout: how long the answer may take, in seconds.
            filters: the values that an entry's fields must have.
        """
        query: dict[str, Any] = {"detail": "True", "limit": limit}
        if filters:
            query |= {"filter_keys": list(filters), "filter_values": list(filters.values())}
            query["filter_predicates"] = ["="] * len(filters)
        answer = self.call("GET", f"/api/v0/{kind}", params=query, timeout=timeout)
        return answer["data"]["result"]["result"]

    def timeline(self, job_id: str | None = None) -> list[dict[str, Any]]:
        """The tasks that have run, of one job or of all, as Chrome's tracing shows them.

        Raises:
            UsageError: there is no job of that id.
        """
        job = {} if job_id is None else {"job_id": self.get(job_id).ray_id}
        if "" in job.values():
            return []  # its driver has not connected, so it has no task
        return self.call("GET", "/api/v0/tasks/timeline", params=job)

    def live_nodes(self) -> list[NodeType]:
        """The nodes that are in the cluster now, also nodes that the stack does not declare."""
        return [
            NodeType(name=f"node {node['node_name']}", resources=node["resources_total"])
            for node in self.state("nodes")
            if node["state"] == "ALIVE"
        ]

    def node_summary(self) -> dict[str, Any]:
        """The dashboard's summary of the nodes, with their logical resources in use."""
        return self.call("GET", "/nodes?view=summary")["data"]

    def send_working_dir(self, env: dict[str, Any], note: Callable[[str], None]) -> None:
        """Uploads a local `working_dir` of the environment and puts its URI in its place.

        Raises:
            UsageError: the folder is missing or too large, or a file cannot be read or disappears
                while the folder is packed.
        """
        given = str(env["working_dir"])
        if "://" in given:
            return
        directory = Path(given)
        with packaging.reading():
            files = packaging.collect(directory, env.get("excludes", ()))
            if files:
                env["working_dir"] = self.upload(directory, files, note)
            else:
                del env["working_dir"]

    def _fields(self, job_id: str) -> dict[str, Any]:
        try:
            return self.call("GET", job_path(job_id))
        except NotFoundError:
            known = ", ".join(job.id for job in self.list()[:10]) or "none"
            raise UsageError(f"there is no job {job_id!r}; jobs: {known}") from None

    def call(self, method: str, path: str, **kwargs: Any) -> Any:
        """What the dashboard's REST API answers, parsed if JSON. Raises what api_errors has."""
        response = self._request(method, path, **kwargs)
        is_json = "json" in response.headers.get("Content-Type", "")
        try:
            return response.json() if is_json else response.text
        except requests.JSONDecodeError as error:
            raise SilentError(self._handle, error) from error

    def _request(
        self, method: str, path: str, *, timeout: float = REQUEST_TIMEOUT_S, **kwargs: Any
    ) -> requests.Response:
        url = self._handle.job_address + path
        try:
            response = self._session.request(method, url, timeout=timeout, **kwargs)
        except requests.RequestException as error:
            raise SilentError(self._handle, error) from error
        if not response.ok:
            api_errors.check(response.status_code, response.text, self._handle)
        return response


def job_path(job_id: str) -> str:
    """The job API's path of a job.

    Raises:
        UsageError: the id is not a job id.
    """
    return f"/api/jobs/{check_id(job_id)}"


def _taken(job_id: str | None) -> UsageError:
    return UsageError(
        f"there is a job {job_id!r} already; give another --name, or see it with: "
        f"sunspot logs {job_id}"
    )


def check_id(job_id: str) -> str:
    """The id, if it is valid.

    Raises:
        UsageError: it could not be part of a path or a file name.
    """
    if len(job_id) > MAX_JOB_ID:
        raise UsageError(
            f"{job_id[:20] + '...'!r} has {len(job_id)} characters, a job id has at most "
            f"{MAX_JOB_ID}: shorten it"
        )
    if not JOB_ID.fullmatch(job_id):
        raise UsageError(
            f"{job_id!r} is not a job id: use letters, digits, periods, hyphens and underscores, "
            "no period or hyphen first"
        )
    return job_id


def new_id(entrypoint: Sequence[str]) -> str:
    """A job id that says what runs: `python workloads/primes.py` -> `primes-3f9a1c`."""
    script = next((word for word in entrypoint if word.endswith((".py", ".sh"))), entrypoint[0])
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(script).stem).strip("-") or "job"
    return f"{stem[: MAX_JOB_ID - 7]}-{secrets.token_hex(3)}"


def exit_code(job: Job) -> int:
    """The job's own exit code; 1 if it failed without one, 130 if it was stopped.

    One that signal N ended has 128 + N, as in a shell.
    """
    if job.status == "SUCCEEDED":
        return 0
    if job.status == "STOPPED":
        return 130
    code = job.exit_code or 1
    return code if code > 0 else 128 - code


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.1f} KiB"


def _seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000
