"""What uses a cluster now: jobs, drivers, living actors, and SSH sessions on its head.

    python -m sunspot.node.usage FILE PARENT

writes this machine's SSH sessions into FILE again and again, for a container that does not see the
machine's processes, as long as its parent has the pid PARENT. It needs only Python itself.

Ray's side is asked of the head's dashboard, which has all of it, with the token. What Ray and its
libraries start for themselves does not count: supervisors of jobs, the controller and the proxies
of Ray Serve (its replicas do count), the detached helpers of Ray Data and Ray Train.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 20.0
# Ray's own limit (RAY_MAX_LIMIT_FROM_API_SERVER, ray/util/state/common.py, 2.60).
LIMIT = 10_000

# An actor in one of these counts, also one that still waits for a node.
LIVING = ("ALIVE", "PENDING_CREATION", "RESTARTING", "DEPENDENCIES_UNREADY")

# Ray (2.60): dashboard/modules/job/common.py; and its libraries, of whose detached actors the
# namespaces are these, or begin with an underscore (data/_internal, train/v2/_internal/state).
SUPERVISORS = "SUPERVISOR_ACTOR_RAY_NAMESPACE"
SUPERVISOR_NAME = "_ray_internal_job_actor_{id}"
OF_LIBRARIES = {
    SUPERVISORS,
    "ActorLocationTracker",
    "AutoscalingCoordinator",
    "AutoscalingRequester",
    "DataUsageCollectionActor",
    "ray.dataset",
    "ray_data_shuffle_disk",
}
# Of all actors of Ray Serve, only its replicas serve (serve/_private/deployment_state.py, 2.60).
SERVE, REPLICA = "serve", "ServeReplica:"

# How often sessions are written, and when what was written is too old to be believed.
WRITE_S, OLD_S = 5.0, 60.0

# OpenSSH's processes on the server's side; since 9.8 a session has a program of its own.
SSH_SERVERS = {"sshd", "sshd-session", "sshd-auth"}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How a cluster is used at a moment.

    Attributes:
        uses: what uses it, a phrase each; none if nothing does.
        ended_s: how many seconds ago the last use ended that is known; infinite without one.
    """

    uses: tuple[str, ...] = ()
    ended_s: float = math.inf

    def __add__(self, other: Seen) -> Seen:
        return Seen(uses=self.uses + other.uses, ended_s=min(self.ended_s, other.ended_s))


class UnseenError(Exception):
    """The dashboard did not answer, or not as Ray's does."""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A head's dashboard. `token` is the file with the cluster's token."""

    host: str
    port: int
    token: Path

    def look(self) -> Seen:
        """How the cluster is used now.

        Raises:
            UnseenError: the dashboard did not answer in time, or not as Ray's does.
        """
        try:
            actors = [one for state in LIVING for one in self._actors(state)]
            return of(self._get("/api/jobs/"), actors, time.time())
        except (OSError, http.client.HTTPException) as error:
            raise UnseenError(f"{self.host}:{self.port}: {error}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UnseenError(f"not an answer of Ray's dashboard: {error!r}") from error

    def _actors(self, state: str) -> list[dict[str, Any]]:
        # By state, since the GCS has dead ones too, and answers with so many at most.
        query = "filter_keys=state&filter_predicates=%3D&filter_values=" + state
        answer = self._get(f"/api/v0/actors?limit={LIMIT}&{query}")
        if not answer["result"]:
            raise ValueError(answer["msg"])
        return answer["data"]["result"]["result"]

    def _get(self, path: str) -> Any:
        token = self.token.read_text().strip()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            body = response.read()
        if response.status != http.HTTPStatus.OK:
            raise ValueError(f"HTTP {response.status} for {path}")
        return json.loads(body)


def of(jobs: Sequence[Mapping[str, Any]], actors: Sequence[Mapping[str, Any]], now: float) -> Seen:
    """How a cluster is used, by Ray's lists of jobs and of living actors.

    Tasks belong to a driver or an actor, so they need no list. A job that is RUNNING and has no
    supervisor is one of a head before this one: Ray looks after those only when the next job is
    submitted (2.60).

    Args:
        jobs: as `/api/jobs/` has them, with drivers that no submission has started.
        actors: as the state API has them.
        now: seconds since the epoch.
    """
    uses = [*_jobs(jobs, {one.get("name") for one in actors}), *_actors(actors)]
    ends = [float(job["end_time"]) / 1000 for job in jobs if job.get("end_time")]
    return Seen(uses=tuple(uses), ended_s=max(now - max(ends), 0.0) if ends else math.inf)


def _jobs(jobs: Sequence[Mapping[str, Any]], names: set[str | None]) -> Iterator[str]:
    for job in jobs:
        identifier, status = job.get("submission_id"), job["status"]
        if job["type"] == "DRIVER" and status == "RUNNING":
            yield f"driver {job['job_id']}"
        elif job["type"] == "SUBMISSION" and (
            status == "PENDING"
            or (status == "RUNNING" and SUPERVISOR_NAME.format(id=identifier) in names)
        ):
            yield f"job {identifier}"


def _actors(actors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for actor in actors:
        namespace, kind = actor.get("ray_namespace") or "", actor.get("class_name") or ""
        if namespace in OF_LIBRARIES or namespace.startswith("_"):
            continue
        if namespace != SERVE or kind.startswith(REPLICA):
            yield f"actor {actor.get('name') or kind}"


def ssh_sessions(proc: Path = Path("/proc")) -> Seen:
    """Who is logged in by SSH: shells and commands, with a terminal or without.

    They are the processes that a server of OpenSSH has started. A connection that only forwards
    ports has none, and does not count: `sunspot` leaves one open between its commands. Nor does
    what goes on without its session, in tmux for instance.

    Args:
        proc: the proc file system of the machine.
    """
    programs: dict[int, tuple[str, int]] = {}
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a process that has ended
            text = stat.read_text(errors="replace")
            name = text[text.index("(") + 1 : text.rindex(")")]
            programs[int(stat.parent.name)] = name, int(text[text.rindex(")") + 1 :].split()[1])
    servers = {pid for pid, (name, _) in programs.items() if name in SSH_SERVERS}
    return Seen(
        uses=tuple(
            f"an SSH session ({name})"
            for name, parent in programs.values()
            if parent in servers and name not in SSH_SERVERS
        )
    )


def told_sessions(file: Path) -> Seen:
    """The SSH sessions that another process writes into a file.

    Raises:
        UnseenError: it has not done so lately.
    """
    try:
        age_s = time.time() - file.stat().st_mtime
        uses = tuple(str(one) for one in json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UnseenError(f"SSH sessions: {error}") from error
    if age_s > OLD_S:
        raise UnseenError(f"SSH sessions: {file} is {age_s:.0f} s old")
    return Seen(uses=uses)


def main(arguments: list[str]) -> int:
    """Writes the sessions until the parent has ended."""
    file, parent = Path(arguments[0]), int(arguments[1])
    while os.getppid() == parent:
        new = file.with_name(f".{file.name}.new")
        new.write_text(json.dumps(ssh_sessions().uses), encoding="utf-8")
        new.replace(file)
        time.sleep(WRITE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
