"""The Docker engine that a cluster runs on, and its Compose plugin: their commands."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import write_private
from sunspot.node.processes import Process
from sunspot.signals import deferred
from sunspot.targets.compose.errors import (
    EngineError,
    MissingPluginError,
    explained,
    no_docker,
)
from sunspot.targets.protocol import Progress
from sunspot.targets.ssh import Ssh
from sunspot.targets.tunnel import end

READ_TIMEOUT_S = 60.0
# The first with `content` of configs (its release notes).
OLDEST_COMPOSE = (2, 23, 1)
KEPT_LINES = 40
_WAITS = (" Waiting", " Running")

# Each call of the engine is a connection of its own by SSH, and sshd drops some where more than 10
# begin at once (MaxStartups of sshd_config; docker/compose#10117).
_PARALLEL, SSH_PARALLEL = "COMPOSE_PARALLEL_LIMIT", "2"

COMPOSE_FILE = "compose.yaml"

# Labels that Compose gives to what it makes (its pkg/api/labels.go, 2.40).
PROJECT_LABEL = "com.docker.compose.project"
SERVICE_LABEL = "com.docker.compose.service"
ONE_OFF_LABEL = "com.docker.compose.oneoff"

OWNER_LABEL = "sunspot.owner"
"""Of all that we make: which state directory has the record of it."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container of a project. `state` is Docker's word: running, exited, created."""

    id: str
    service: str
    state: str
    owner: str


@dataclass(frozen=True)
class Engine:
    """One engine, by its address: what DOCKER_HOST would have."""

    address: str

    @classmethod
    def current(cls) -> Engine:
        """The engine of DOCKER_HOST, or else of Docker's current context.

        Raises:
            EngineError: there is no `docker` command.
            UsageError: DOCKER_CONTEXT names a context that does not exist.
        """
        if address := os.environ.get("DOCKER_HOST"):
            return cls(address)
        asked = ("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
        done = _run(["docker", *asked], dict(os.environ))
        if done.returncode:
            raise UsageError(
                f"Docker's current context cannot be read: {done.stderr.strip()}. See `docker "
                "context ls`, and set DOCKER_CONTEXT to one of those, or unset it"
            )
        return cls(done.stdout.strip())

    @classmethod
    def current_or_here(cls) -> Engine:
        """As `current`; this machine's own where there is no `docker` command."""
        try:
            return cls.current()
        except EngineError:
            return cls("")

    @property
    def ssh(self) -> Ssh | None:
        """How to reach its host; None if that is this machine.

        Raises:
            UsageError: it is neither here nor reached by SSH.
        """
        parts = urlsplit(self.address)
        if parts.scheme in ("", "unix"):
            return None
        if parts.scheme != "ssh" or not parts.hostname:
            raise UsageError(
                f"the Docker engine at {self.address} is neither on this machine nor reached by "
                "SSH, so its dashboards could not be: set DOCKER_HOST=ssh://USER@HOST"
            )
        port = ("-p", str(parts.port)) if parts.port else ()
        login = f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname
        return Ssh(
            command=("ssh", *port, login),
            key=None,
            # Docker's own connections use the same one.
            known_hosts=Path("~/.ssh/known_hosts").expanduser(),
            called=f"the host {parts.hostname}",
        )

    def check(self) -> None:
        """Checks that the engine can be used, answers, and that there is a Compose plugin.

        Raises:
            UsageError: something is missing; the message says what to do.
        """
        _ = self.ssh
        self.read("version", "--format", "{{.Server.Version}}")
        version = self.read("compose", "version", "--short").strip()
        numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
        # A plugin that was built without a version calls itself "dev".
        if numbers and tuple(map(int, numbers.groups())) < OLDEST_COMPOSE:
            raise MissingPluginError(
                f"Docker's Compose plugin is {version}, and Sunspot needs "
                f"{'.'.join(map(str, OLDEST_COMPOSE))} or newer: update it"
            )

    def run(self, *arguments: str, timeout_s: float = READ_TIMEOUT_S) -> str:
        """`docker ARGUMENTS` to its end; what it printed, errors included, whatever its code."""
        done = _run(["docker", *arguments], self.environment(), timeout_s)
        return done.stdout + done.stderr

    def read(self, *arguments: str, timeout_s: float = READ_TIMEOUT_S) -> str:
        """What `docker ARGUMENTS` prints.

        Raises:
            SunspotError: it failed; the message says why.
        """
        done = _run(["docker", *arguments], self.environment(), timeout_s)
        if done.returncode:
            raise explained(done.stderr or done.stdout, f"`docker {arguments[0]}` failed")
        return done.stdout

    def inspect(self, *names: str, kind: str = "container") -> list[dict[str, Any]]:
        """What Docker knows of those of the named things that exist."""
        done = _run(["docker", kind, "inspect", *names], self.environment())
        missing = "no such" in done.stderr.lower()
        if done.returncode and not missing:
            raise explained(done.stderr, f"`docker {kind} inspect` failed")
        return json.loads(done.stdout or "[]")

    def containers(self, project: str) -> list[Container]:
        """The containers of a project, in no order, without those of `docker compose run`."""
        ids = self.read("ps", "--all", "--quiet", "--filter", _of(project)).split()
        found = self.inspect(*ids) if ids else []
        return [
            Container(
                id=one["Id"],
                service=one["Config"]["Labels"].get(SERVICE_LABEL, ""),
                state=one["State"]["Status"],
                owner=one["Config"]["Labels"].get(OWNER_LABEL, ""),
            )
            for one in found
            if one["Config"]["Labels"].get(ONE_OFF_LABEL) != "True"
        ]

    def volumes(self, project: str) -> dict[str, str]:
        """The volumes of a project: name -> owner."""
        names = self.read("volume", "ls", "--quiet", "--filter", _of(project)).split()
        found = self.inspect(*names, kind="volume") if names else []
        return {one["Name"]: (one["Labels"] or {}).get(OWNER_LABEL, "") for one in found}

    def published_ports(self) -> set[int]:
        """The host's ports that lead to some container."""
        shown = self.read("ps", "--format", "{{.Ports}}")
        found: set[int] = set()
        # Docker shows ports one after the other as a range: 0.0.0.0:9000-9001->9000-9001/tcp.
        for first, last in re.findall(r":(\d+)(?:-(\d+))?->", shown):
            found.update(range(int(first), int(last or first) + 1))
        return found

    def images(self, project: str, services: Sequence[str], folder: Path) -> dict[str, str]:
        """The image of each of these services that has one, as the file in `folder` says.

        Raises:
            SunspotError: the file is wrong; the message says where.
        """
        where = ("--project-name", project, "--file", str(folder / COMPOSE_FILE))
        document = json.loads(self.read("compose", *where, "config", "--format", "json", *services))
        found = {name: document["services"].get(name, {}) for name in services}
        return {name: one["image"] for name, one in found.items() if "image" in one}

    def left(self, project: str, owner: str | None = None) -> list[str]:
        """The containers and networks of a project, or only one owner's, one line each."""
        mine = () if owner is None else ("--filter", f"label={OWNER_LABEL}={owner}")
        return [
            f"{kind} {name}"
            for kind, command in (
                ("container", ("ps", "--all", "--format", "{{.Names}}")),
                ("network", ("network", "ls", "--format", "{{.Name}}")),
            )
            for name in self.read(*command, "--filter", _of(project), *mine).split()
        ]

    def compose(
        self,
        project: str,
        *arguments: str,
        folder: Path | None,
        progress: Progress,
        secrets: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """`docker compose ARGUMENTS` for a project, with its lines as progress.

        It does not see a Ctrl-C in the terminal, and is ended if the caller is interrupted. While
        it runs its process is recorded in `folder`.

        Args:
            project: the project's name.
            *arguments: the command.
            folder: where the file compose.yaml lies; None for a project without its file.
            progress: called with what it prints.
            secrets: the variables that the file's secrets are read from.
            timeout_s: seconds that it may take.

        Raises:
            SunspotError: it failed, or took too long.
        """
        where = () if folder is None else ("--file", str(folder / COMPOSE_FILE))
        command = ["docker", "compose", "--progress", "plain", "--ansi", "never"]
        command += ["--project-name", project, *where, *arguments]
        with contextlib.ExitStack() as at_end:
            with deferred():
                process = _start(command, self.environment() | dict(secrets or {}))
                at_end.callback(_end, process)
                if folder is not None:
                    at_end.enter_context(_recorded(process, folder))
            _follow(process, arguments[0], progress, timeout_s)

    def environment(self) -> dict[str, str]:
        """The environment of its commands: the caller's, without what would steer Compose."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == _PARALLEL or not (name.startswith("COMPOSE_") or name == "DOCKER_CONTEXT")
        }
        # A builder in a container has no images of the host (docker/buildx#2024).
        kept["BUILDX_BUILDER"] = "default"
        # Our Dockerfiles need it, and engines before 23 do not choose it by themselves.
        kept["DOCKER_BUILDKIT"] = "1"
        if urlsplit(self.address).scheme == "ssh":
            kept.setdefault(_PARALLEL, SSH_PARALLEL)
        return kept | ({"DOCKER_HOST": self.address} if self.address else {})


def end_recorded(folder: Path, progress: Progress) -> None:
    """Ends the `docker compose` of a command that was killed, if it still runs."""
    with contextlib.suppress(OSError, ValueError, TypeError, psutil.Error):
        process = Process(**json.loads((folder / _RECORD).read_text()))
        if process.is_running():
            progress(f"ending docker compose (process {process.pid}), whose command was killed")
            end(psutil.Process(process.pid))


_RECORD = "running.json"


@contextlib.contextmanager
def _recorded(process: subprocess.Popen[str], folder: Path) -> Any:
    file = folder / _RECORD
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid).create_time()
        write_private(file, json.dumps(asdict(Process(pid=process.pid, start_time=started))))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _of(project: str) -> str:
    return f"label={PROJECT_LABEL}={project}"


def _run(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float = READ_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=dict(environment),
            # With `docker compose --project-name` alone it must find no file of somebody's.
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError:
        raise no_docker() from None
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"the Docker engine did not answer within {timeout_s:g} s; is it running?"
        ) from None


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise no_docker() from None


def _follow(
    process: subprocess.Popen[str], what: str, progress: Progress, timeout_s: float | None
) -> None:
    said: deque[str] = deque(maxlen=KEPT_LINES)
    late = threading.Event()

    def stop() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(timeout_s or threading.TIMEOUT_MAX, stop)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        for line in process.stdout:
            shown = " ".join(line.split())
            # Compose says of each container, several times, that it waits for others.
            if shown and shown not in said and not shown.endswith(_WAITS):
                said.append(shown)
                progress(shown)
        process.wait()
    finally:
        timer.cancel()
    if late.is_set():
        last = said[-1] if said else "none"
        raise SunspotError(
            f"timed out: `docker compose {what}` took more than {timeout_s:g} s; its last line "
            f"was: {last}"
        )
    if process.returncode:
        raise explained("\n".join(said), f"`docker compose {what}` failed")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(psutil.Error):
            end(psutil.Process(process.pid))
        process.wait()
