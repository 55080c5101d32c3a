"""SSH to a head that nothing else reaches: commands, copies, and a tunnel to its job API.

The tunnel is an `ssh -L` that stays in the background and is used again by the next command. It is
written down as a process with its start time, so that a recycled pid is never taken for it.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from sunspot.errors import SunspotError, UsageError
from sunspot.node.local import Process, free_port, port_is_free, write_private

LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 10
# Azure's network forgets a silent connection after 4 minutes; a dead one is noticed in 45 s.
ALIVE_INTERVAL_S, ALIVE_COUNT = 15, 3
OPEN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
POLL_S = 0.05
PORT_ATTEMPTS = 3

HEAD_PREFIX = "head:"

_TAKEN = ("Address already in use", "cannot listen to port")
_REFUSED_KEY = ("Permission denied", "Too many authentication failures")
_CHANGED_HOST = ("Host key verification failed", "IDENTIFICATION HAS CHANGED")


class UnreachableError(SunspotError):
    """Nobody answered at a machine's SSH port. It may be booting, or no way leads there."""


class RemoteCommandError(SunspotError):
    """SSH works, but the command on the machine ended with an error."""


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """How to run ssh to one machine, the head unless another is named (sunspot/jump.py).

    Attributes:
        command: what the stack's output `ssh_command` says, in words: `ssh ... USER@HOST`, or
            `az network bastion ssh ...`.
        key: the private key, or None for those that ssh finds by itself.
        known_hosts: the file that keeps the head's host key; the first one is taken as it is.
        alias: the name that the host key is kept by, where that is not the address.
        called: what messages call the machine.
        connect_timeout_s: how long the way there may take.
    """

    command: tuple[str, ...]
    key: Path | None
    known_hosts: Path
    alias: str | None = None
    called: str = "the head"
    connect_timeout_s: int = CONNECT_TIMEOUT_S

    @classmethod
    def parse(cls, command: str, *, key: Path | None, known_hosts: Path) -> Ssh:
        words = tuple(shlex.split(command))
        if len(words) < 2 or words[0] not in {"ssh", "az"}:
            raise SunspotError(f"the stack's output ssh_command is no ssh command: {command!r}")
        return cls(command=words, key=key, known_hosts=known_hosts)

    def arguments(
        self, *options: str, remote: Sequence[str] = (), interactive: bool = False
    ) -> list[str]:
        """The whole command line. Unless `interactive`, it asks for nothing and fails instead."""
        ours = [*self._options(interactive=interactive), *options]
        if self.command[0] == "az":
            return [*self.command, "--", *ours, *remote]
        return ["ssh", *ours, *self.command[1:], *remote]

    def read(self, *remote: str, timeout_s: float = OPEN_TIMEOUT_S) -> str:
        """What a command on the machine prints. Raises as `failure` does."""
        try:
            done = subprocess.run(
                self.arguments(remote=[shlex.join(remote)]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"{self.called} did not answer within {timeout_s:g} s") from None
        except FileNotFoundError:
            raise _no_program(self.command[0]) from None
        if done.returncode == 255:
            raise self.failure(done.stderr)
        if done.returncode:
            raise RemoteCommandError(
                f"`{shlex.join(remote)}` on {self.called} ended with {done.returncode}: "
                f"{_last_lines(done.stderr)}"
            )
        return done.stdout

    def run(self, remote: Sequence[str]) -> int:
        """A shell on the head, or a command there, at this terminal; returns its exit code.

        One word is a line for the head's shell, several are one command with its arguments.
        """
        line = list(remote) if len(remote) < 2 else [shlex.join(remote)]
        try:
            return subprocess.call(self.arguments(remote=line, interactive=True))
        except FileNotFoundError:
            raise _no_program(self.command[0]) from None

    def copy(self, source: str, destination: str) -> int:
        """Copies files with rsync, to the head or from it; returns rsync's exit code."""
        ends = [source, destination]
        if sum(end.startswith(HEAD_PREFIX) for end in ends) != 1:
            raise UsageError(
                f"one of SOURCE and DEST is on the head: write it as {HEAD_PREFIX}PATH, for "
                f"instance: sunspot rsync data/ {HEAD_PREFIX}data/"
            )
        if self.command[0] == "az":
            raise UsageError(
                "rsync does not go through Azure Bastion; put files into the stack's storage "
                "(its output storage_url), or open SSH in sunspot:access"
            )
        *options, host = self.command[1:]
        shell = shlex.join(["ssh", *self._options(interactive=True), *options])
        places = [
            f"{host}:{end.removeprefix(HEAD_PREFIX)}" if end.startswith(HEAD_PREFIX) else end
            for end in ends
        ]
        try:
            command = ["rsync", "-az", "--partial", "-e", shell, "--", *places]
            return subprocess.call(command)
        except FileNotFoundError:
            raise _no_program("rsync") from None

    def failure(self, stderr: str) -> SunspotError:
        """The error that tells what ssh complained of."""
        said = _last_lines(stderr)
        if any(sign in stderr for sign in _REFUSED_KEY):
            which = f"the key {self.key}" if self.key else "every key that ssh has"
            return SunspotError(
                f"{self.called} refuses {which} ({said}). It takes the key that sunspot:access "
                "names in the stack file; one with a passphrase must be in your agent: ssh-add"
            )
        if any(sign in stderr for sign in _CHANGED_HOST):
            file = shlex.quote(str(self.known_hosts))
            forget = f"ssh-keygen -f {file} -R {self.alias}" if self.alias else f"rm {file}"
            return SunspotError(
                f"another machine than before answers at the address of {self.called} ({said}). If "
                f"you replaced it yourself, forget the old one: {forget}"
            )
        return UnreachableError(f"no SSH to {self.called}: {said or 'ssh ended without a word'}")

    def _options(self, *, interactive: bool) -> list[str]:
        settings = {
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": f'"{self.known_hosts}"',
            "ConnectTimeout": self.connect_timeout_s,
            "ServerAliveInterval": ALIVE_INTERVAL_S,
            "ServerAliveCountMax": ALIVE_COUNT,
        }
        if self.alias:
            settings["HostKeyAlias"] = self.alias
        if not interactive:
            settings["BatchMode"] = "yes"
        options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
        return [*options, "-i", str(self.key)] if self.key else options


@dataclass(frozen=True, kw_only=True)
class _Record:
    """A tunnel that was opened. `also` are further ports: [the head's, the one here]."""

    process: Process
    port: int
    command: list[str] = field(default_factory=list)
    also: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Tunnel:
    """The tunnel of one cluster; its record and log lie in `folder`."""

    folder: Path

    def port(self) -> int | None:
        """The local port of the tunnel, or None where none is alive."""
        record = self._read()
        if record is None or not record.process.is_running() or not _answers(record.port):
            return None
        return record.port

    def also(self) -> dict[int, int]:
        """Where the live tunnel leads besides: the head's ports, and the local ones to them."""
        record = self._read()
        if record is None or self.port() is None:
            return {}
        return dict(record.also)

    def open(
        self,
        ssh: Ssh,
        remote_port: int,
        *,
        preferred: int | None = None,
        also: Sequence[int] = (),
    ) -> int:
        """The local port of a tunnel to the head's own `remote_port`; a live one is used again.

        It leads to the head's ports of `also` as well, whether or not anything listens there.
        Raises as `Ssh.failure` does.
        """
        record = self._read()
        if record is not None and record.command == list(ssh.command):
            port = self.port()
            led_to = [remote for remote, _ in record.also]
            if port is not None and preferred in (None, port) and led_to == list(also):
                return port
        self.close()
        for attempt in range(PORT_ATTEMPTS):
            forwards = _local_ports([(remote_port, preferred), *((p, None) for p in also)], attempt)
            if self._start(ssh, forwards):
                return forwards[0][1]
        raise SunspotError("no local port could be had for the tunnel; try again")

    def close(self) -> None:
        """Ends the tunnel, if there is one."""
        record = self._read()
        if record is not None and record.process.is_running():
            with contextlib.suppress(psutil.Error):
                end(psutil.Process(record.process.pid))
        self._record_file.unlink(missing_ok=True)

    @property
    def _record_file(self) -> Path:
        return self.folder / "tunnel.json"

    @property
    def _log(self) -> Path:
        return self.folder / "tunnel.log"

    def _start(self, ssh: Ssh, forwards: Sequence[tuple[int, int]]) -> bool:
        """Starts ssh and waits for its ports; False if somebody took one meanwhile.

        `forwards` are pairs, the head's port and the one here.
        """
        options = ["-N", "-o", "ExitOnForwardFailure=yes"]
        for remote, local in forwards:
            options += ["-L", f"{LOOPBACK}:{local}:{LOOPBACK}:{remote}"]
        arguments = ssh.arguments(*options)
        (_, port), *others = forwards
        try:
            with self._log.open("wb") as log:
                process = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C ends the command, not the tunnel
                )
        except FileNotFoundError:
            raise _no_program(ssh.command[0]) from None
        try:
            for _, local in forwards:
                self._wait(process, local)
            started = psutil.Process(process.pid).create_time()
        except (psutil.Error, ChildProcessError):
            process.wait()
            text = self._log.read_text(errors="replace")
            if any(sign in text for sign in _TAKEN):
                return False
            raise ssh.failure(text) from None
        except BaseException:
            process.kill()
            process.wait()
            raise
        record = _Record(
            process=Process(pid=process.pid, start_time=started),
            port=port,
            command=list(ssh.command),
            also=others,
        )
        write_private(self._record_file, json.dumps(asdict(record)))
        return True

    def _wait(self, process: subprocess.Popen[bytes], port: int) -> None:
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        while not _listens(process.pid, port):
            if process.poll() is not None:
                raise ChildProcessError
            if time.monotonic() > deadline:
                raise UnreachableError(f"the tunnel was not open after {OPEN_TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    def _read(self) -> _Record | None:
        try:
            fields = json.loads(self._record_file.read_text())
            return _Record(**fields | {"process": Process(**fields["process"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None


def _local_ports(wishes: Sequence[tuple[int, int | None]], attempt: int) -> list[tuple[int, int]]:
    """A free local port for each of the head's; at the first attempt the wished or the same one."""
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for remote, wish in wishes:
        usual = wish or remote
        usable = not attempt and usual not in taken and port_is_free(usual)
        local = usual if usable else free_port(taken)
        taken.add(local)
        found.append((remote, local))
    return found


def _listens(pid: int, port: int) -> bool:
    """Whether this process, or one that it started, listens there: not just anybody."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for one in (process, *process.children(recursive=True))
            for connection in one.net_connections("tcp")
        )
    return False


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


def end(process: psutil.Process) -> None:
    """Ends a process and those that it started (`az` starts the ssh itself)."""
    family = [*process.children(recursive=True), process]
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.terminate()
    _, alive = psutil.wait_procs(family, timeout=CLOSE_TIMEOUT_S)
    for one in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def _last_lines(text: str, count: int = 2) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(line for line in lines[-count:])


def _no_program(name: str) -> SunspotError:
    package = {"ssh": "openssh-client", "rsync": "rsync", "az": "azure-cli"}.get(name, name)
    return SunspotError(f"there is no `{name}` on this machine; install it (package {package})")
