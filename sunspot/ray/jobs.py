"""Jobs on a cluster that is up, over Ray's job API (REST) with the cluster's token.

Ray itself is not imported: its REST API is documented, and importing Ray would take longer than
submitting.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import requests

from sunspot.errors import SunspotError, UsageError
from sunspot.ray import packaging
from sunspot.ray.feasibility import NodeType, Request
from sunspot.targets.protocol import ClusterHandle

REQUEST_TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 600.0
# The head's agent connects to the cluster as a driver when its first job comes
# (init_ray_and_catch_exceptions, 2.60), which takes a busy or small head long.
SUBMIT_TIMEOUT_S = 300.0

# A job's state is asked for this often: at first often, so that a short job ends at once.
FIRST_POLL_S, LAST_POLL_S = 0.1, 0.5

# A log up to this long is read once more when the job ends, instead of waiting the seconds that
# Ray's log stream takes to notice the end (JobManager.LOG_TAIL_SLEEP_S, 2.60).
REREAD_CHARACTERS = 1_000_000

STOP_TIMEOUT_S = 20.0

JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

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
        """The first line of the message, without the copy of the log that Ray appends to it."""
        return self.message.partition("\n")[0].partition(", last available logs")[0]

    @property
    def has_ended(self) -> bool:
        return self.status in {"SUCCEEDED", "FAILED", "STOPPED"}

    @classmethod
    def from_api(cls, fields: Mapping[str, Any]) -> Job:
        return cls(
            id=fields["submission_id"] or fields["job_id"] or "",
            ray_id=fields.get("job_id") or "",
            status=fields["status"],
            entrypoint=fields["entrypoint"],
            message=fields.get("message") or "",
            exit_code=fields.get("driver_exit_code"),
            started=_seconds(fields.get("start_time")),
            ended=_seconds(fields.get("end_time")),
        )


class JobClient:
    """Talks to the job API of one cluster."""

    def __init__(self, handle: ClusterHandle) -> None:
        self._handle = handle
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {handle.token()}"
        self._session.trust_env = False  # no proxy between us and our own cluster or tunnel

    def list(self) -> list[Job]:
        """The cluster's jobs, the newest first. Drivers that joined by `ray.init` are left out."""
        jobs = [
            Job.from_api(f) for f in self._call("GET", "/api/jobs/") if f["type"] == "SUBMISSION"
        ]
        return sorted(jobs, key=lambda job: job.started or 0, reverse=True)

    def get(self, job_id: str) -> Job:
        """One job. Raises UsageError, with the ids that exist, if there is none of that id."""
        try:
            return Job.from_api(self._call("GET", _path(job_id)))
        except _NotFoundError:
            known = ", ".join(job.id for job in self.list()[:10]) or "none"
            raise UsageError(f"there is no job {job_id!r}; jobs: {known}") from None

    def logs(self, job_id: str) -> str:
        """All that a job has printed so far."""
        self.get(job_id)
        return self._call("GET", _path(job_id) + "/logs")["logs"]

    def submit(
        self,
        entrypoint: Sequence[str],
        *,
        request: Request,
        runtime_env: Mapping[str, Any],
        job_id: str | None = None,
    ) -> str:
        """Hands a job to the cluster and returns its id; it does not wait for it.

        Raises:
            UsageError: a job of that id exists already.
        """
        amounts = request.amounts()
        memory = amounts.pop("memory", None)
        body = {
            "entrypoint": shlex.join(entrypoint),
            "submission_id": new_id(entrypoint) if job_id is None else check_id(job_id),
            "runtime_env": dict(runtime_env),
            "metadata": {},
            "entrypoint_num_cpus": amounts.pop("CPU", None),
            "entrypoint_num_gpus": amounts.pop("GPU", None),
            "entrypoint_memory": None if memory is None else int(memory),
            "entrypoint_resources": amounts or None,
        }
        try:
            answer = self._call("POST", "/api/jobs/", timeout=SUBMIT_TIMEOUT_S, json=body)
        except _RefusedError as error:
            if "already exists" in str(error):
                raise UsageError(
                    f"there is a job {job_id!r} already; give another --name, or see it with: "
                    f"sunspot logs {job_id}"
                ) from None
            raise
        return answer["submission_id"]

    def stop(self, job_id: str) -> Job:
        """Stops a job and returns it as it ended; one that has ended already is left as it is.

        Raises:
            SunspotError: it did not end within STOP_TIMEOUT_S.
        """
        deadline = time.monotonic() + STOP_TIMEOUT_S
        job = self.get(job_id)
        if not job.has_ended:
            self._call("POST", _path(job_id) + "/stop")
        while not job.has_ended:
            if time.monotonic() > deadline:
                raise SunspotError(
                    f"job {job_id!r} was told to stop and is still {job.status} after "
                    f"{STOP_TIMEOUT_S:.0f} s; look again with: sunspot jobs"
                )
            time.sleep(FIRST_POLL_S)
            job = self.get(job_id)
        return job

    def upload(
        self, directory: Path, files: Sequence[packaging.File], tell: Callable[[str], None]
    ) -> str:
        """Sends a working directory unless the cluster has that very content; returns its URI."""
        with packaging.package(directory, list(files)) as package:
            path = "/api/packages/" + package.uri.replace("://", "/")
            what = f"{directory.resolve()} ({len(files)} files, {_size(package.size)})"
            try:
                self._call("GET", path)
                tell(f"{what} is on the cluster already")
            except _NotFoundError:
                tell(f"uploading {what}")
                self._call("PUT", path, data=package.file, timeout=UPLOAD_TIMEOUT_S)
        return package.uri

    def state(self, kind: str) -> list[dict[str, Any]]:
        """All "nodes" or "tasks" (at most 10,000) as Ray's state API has them, in full."""
        answer = self._call("GET", f"/api/v0/{kind}?detail=True&limit={STATE_LIMIT}")
        return answer["data"]["result"]["result"]

    def live_nodes(self) -> list[NodeType]:
        """The nodes that are in the cluster now, also such as nobody declared."""
        return [
            NodeType(name=f"node {node['node_name']}", resources=node["resources_total"])
            for node in self.state("nodes")
            if node["state"] == "ALIVE"
        ]

    def node_summary(self) -> dict[str, Any]:
        """The dashboard's summary of the nodes, with their logical resources in use."""
        return self._call("GET", "/nodes?view=summary")["data"]

    def send_working_dir(self, env: dict[str, Any], tell: Callable[[str], None]) -> None:
        """Uploads a local `working_dir` of the environment and puts its URI in its place.

        Raises:
            UsageError: the folder is missing, too large, or holds what cannot be read or what
                goes away meanwhile.
        """
        place = str(env["working_dir"])
        if "://" in place:
            return
        directory = Path(place)
        try:
            files = packaging.collect(directory, env.get("excludes", ()))
            if files:
                env["working_dir"] = self.upload(directory, files, tell)
            else:
                del env["working_dir"]
        except PermissionError as error:
            raise UsageError(
                f"cannot read {error.filename}; make it readable or name it in .rayignore"
            ) from error
        except FileNotFoundError as error:
            raise UsageError(
                f"{error.filename} went away while the folder was packed; try again, or name what "
                "changes all the time in .rayignore"
            ) from error

    def follow(self, job_id: str, out: TextIO, tell: Callable[[str], None]) -> Job:
        """Prints a job's log to `out` as it grows and returns the job when it has ended."""
        return asyncio.run(_Follower(self._handle, job_id, out, tell).run())

    def _call(
        self, method: str, path: str, *, timeout: float = REQUEST_TIMEOUT_S, **kwargs: Any
    ) -> Any:
        url = self._handle.job_address + path
        try:
            response = self._session.request(method, url, timeout=timeout, **kwargs)
        except requests.RequestException as error:
            raise unreachable(self._handle, error) from error
        _raise_for(response.status_code, response.text, self._handle)
        return (
            response.json() if "json" in response.headers.get("Content-Type", "") else response.text
        )


class _Follower:
    """Follows one job: its log by Ray's web socket, its state by asking."""

    def __init__(
        self, handle: ClusterHandle, job_id: str, out: TextIO, tell: Callable[[str], None]
    ) -> None:
        self._handle, self._job_id, self._out, self._tell = handle, job_id, out, tell
        self._printed = 0

    async def run(self) -> Job:
        import aiohttp

        headers = {"Authorization": f"Bearer {self._handle.token()}"}
        try:
            async with aiohttp.ClientSession(self._handle.job_address, headers=headers) as session:
                return await self._run(session)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unreachable(self._handle, error) from error

    async def _run(self, session: Any) -> Job:
        tail: asyncio.Task[None] | None = None
        try:
            delay, started, told = FIRST_POLL_S, time.monotonic(), False
            while not (job := Job.from_api(await self._get(session, ""))).has_ended:
                if job.status == "RUNNING" and tail is None:
                    tail = asyncio.create_task(self._tail(session))
                if job.status == "PENDING" and not told and time.monotonic() - started > 5:
                    told = self._say_pending(job)
                await asyncio.sleep(delay)
                delay = min(delay * 1.2, LAST_POLL_S)
            if tail and self._printed > REREAD_CHARACTERS:
                await tail
        finally:
            if tail:
                tail.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await tail
        if self._printed <= REREAD_CHARACTERS:
            text = (await self._get(session, "/logs"))["logs"]
            self._print(text[self._printed :])
        return job

    async def _tail(self, session: Any) -> None:
        import aiohttp

        async with session.ws_connect(_path(self._job_id) + "/logs/tail", max_msg_size=0) as socket:
            async for message in socket:
                if message.type == aiohttp.WSMsgType.TEXT:
                    self._print(message.data)

    async def _get(self, session: Any, path: str) -> Any:
        async with session.get(_path(self._job_id) + path) as response:
            _raise_for(response.status, await response.text(), self._handle)
            return await response.json()

    def _print(self, text: str) -> None:
        self._printed += len(text)
        self._out.write(text)
        self._out.flush()

    def _say_pending(self, job: Job) -> bool:
        self._tell(f"waiting for a node that can hold the job ({' '.join(job.message.split())})")
        return True


class _RefusedError(SunspotError):
    """The API answered with an error."""


class _NotFoundError(_RefusedError):
    """The API knows no such thing."""


def _path(job_id: str) -> str:
    return f"/api/jobs/{check_id(job_id)}"


def check_id(job_id: str) -> str:
    """The id, if it is one. Raises UsageError for what could not stand in a path or a file name."""
    if not JOB_ID.fullmatch(job_id):
        raise UsageError(
            f"{job_id!r} is no job id: use letters, digits, periods, hyphens and underscores"
        )
    return job_id


def unreachable(handle: ClusterHandle, error: Exception) -> SunspotError:
    """The error for a job API that does not answer."""
    return SunspotError(
        f"the job API of {handle.name!r} at {handle.job_address} does not answer "
        f"({type(error).__name__}). See what is the matter with: sunspot status {handle.name}"
    )


def _raise_for(status: int, text: str, handle: ClusterHandle) -> None:
    if status < 400:
        return
    if status in {401, 403}:
        raise SunspotError(
            f"{handle.job_address} refuses the token in {handle.token_path} (HTTP {status}); "
            f"another cluster may have taken this address"
        )
    if status == 404:
        raise _NotFoundError(text)
    # Ray answers with a traceback: what it raised stands at the end, from its class on.
    raised = re.split(r"^(?=[\w.]*(?:Error|Exception)\b)", text.strip(), flags=re.MULTILINE)[-1]
    raise _RefusedError(" ".join(raised.split()) or f"HTTP {status}")


def new_id(entrypoint: Sequence[str]) -> str:
    """A job id that tells what runs: `python workloads/primes.py` -> `primes-3f9a1c`."""
    script = next((word for word in entrypoint if word.endswith((".py", ".sh"))), entrypoint[0])
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(script).stem).strip("-") or "job"
    return f"{stem}-{secrets.token_hex(3)}"


def exit_code(job: Job) -> int:
    """The job's own exit code; 1 if it failed without one, 130 if it was stopped."""
    if job.status == "SUCCEEDED":
        return 0
    if job.status == "STOPPED":
        return 130
    return job.exit_code or 1


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 1024:.1f} KiB"


def _seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000
