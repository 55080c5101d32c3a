"""The tunnel to a head that is reached only by way of something: its job API and other servers.

It is a process such as `ssh -L` that stays in the background, for the next command to use again.
Its record has the process's start time, so that a recycled pid is never taken for it. Whoever opens
or closes it holds a lock beside its folder: in the folder, an open file would stay there on NFS.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil

from sunspot.errors import SunspotError
from sunspot.node.files import locked, write_private
from sunspot.node.free_ports import PortClaims, free_port
from sunspot.node.prctl import end_with_parent
from sunspot.node.processes import Process
from sunspot.targets.records import readable_disk_errors
from sunspot.targets.ssh import UnreachableError, no_program

LOOPBACK = "127.0.0.1"
OPEN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
# Longer than another command needs to end one tunnel and to open the next.
OTHERS_TIMEOUT_S = OPEN_TIMEOUT_S + 2 * CLOSE_TIMEOUT_S
POLL_S = 0.05
PORT_ATTEMPTS = 3


# OpenSSH's word for a channel that the server does not open (RFC 4254, 5.1), per connection.
_PROHIBITED = "administratively prohibited"
_TAKEN = ("Address already in use", "cannot listen to port")


class Way(Protocol):
    """A program that leads ports of this machine to a head, `Ssh` for instance."""

    @property
    def command(self) -> tuple[str, ...]:
        """What tells this way from others."""
        ...

    def leading(self, forwards: Sequence[tuple[int, int]], host: str) -> list[str]:
        """The command line that listens on the local ports until it is ended.

        Args:
            forwards: pairs: the head's port, the local one.
            host: the head's address as the far end of the way reaches it.
        """
        ...

    def failure(self, text: str) -> SunspotError:
        """The error for what the program printed before it ended."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Record:
    """A tunnel that was opened. `also` has further ports: (the head's, the local one)."""

    process: Process
    port: int
    command: list[str] = field(default_factory=list)
    host: str = LOOPBACK
    also: list[tuple[int, int]] = field(default_factory=list)

    def is_wanted(self, preferred: int | None, also: Sequence[int]) -> bool:
        """Whether it is open, at the wished port, and leads to these further ports."""
        is_like = preferred in (None, self.port) and list(dict(self.also)) == list(also)
        return is_like and _is_open(self)


@dataclass(frozen=True)
class Tunnel:
    """The tunnel of one cluster; its record and its log are in `folder`."""

    folder: Path

    def port(self) -> int | None:
        """The local port of the tunnel, or None if no tunnel is alive."""
        record = self._read()
        return None if record is None or not _is_open(record) else record.port

    def also(self) -> dict[int, int]:
        """The further ports of a live tunnel: the head's port -> the local one."""
        record = self._read()
        return {} if record is None or not _is_open(record) else dict(record.also)

    def local(self, ports: Sequence[int]) -> dict[int, int]:
        """As `also`, of these ports of the head and no others.

        Raises:
            SunspotError: the tunnel has ended since it was opened.
        """
        also = self.also()
        if not also.keys() >= set(ports):
            raise SunspotError("the tunnel to the head has ended just now: try again")
        return {port: also[port] for port in ports}

    def open(
        self,
        way: Way,
        remote_port: int,
        *,
        preferred: int | None = None,
        also: Sequence[int] = (),
        host: str = LOOPBACK,
        lasting: bool = True,
    ) -> int:
        """Opens the tunnel, or uses the live one again; returns its local port.

        Waits while another command opens it.

        Args:
            way: how to reach the head.
            remote_port: the port on the head that the tunnel leads to.
            preferred: the local port to take, if it is free.
            also: further ports on the head, whether or not anything listens there.
            host: the head's address as the far end of the way reaches it, where that is another
                machine.
            lasting: whether it stays when this process ends, by SIGKILL even.

        Raises:
            SunspotError: the head cannot be reached, there was no free local port, the cluster was
                taken down meanwhile, or the disk is full.
        """
        if (before := self._like(way, host)) and before.is_wanted(preferred, also):
            return before.port
        with readable_disk_errors(self.folder.parent), self._locked():
            return self._open(way, remote_port, preferred, also, host, lasting=lasting)

    def _open(
        self,
        way: Way,
        remote_port: int,
        preferred: int | None,
        also: Sequence[int],
        host: str,
        *,
        lasting: bool,
    ) -> int:
        if before := self._like(way, host):
            if before.is_wanted(preferred, also):  # another command has just opened it
                return before.port
            preferred = preferred or before.port  # somebody may have noted it
        ports = dict(before.also) if before else {}
        self._end()
        self._forget()
        wishes = [(remote_port, preferred), *((p, ports.get(p)) for p in also)]
        for attempt in range(PORT_ATTEMPTS):
            # A cluster that comes up here must not choose one before the process has it.
            with PortClaims() as claims:
                forwards = _local_ports(wishes, attempt, claims)
                if self._start(way, forwards, host, lasting=lasting):
                    return forwards[0][1]
        raise SunspotError("found no free local port for the tunnel; try again")

    def is_open(self) -> bool:
        """Whether the tunnel's process runs; nothing is sent through it to find out."""
        record = self._read()
        return record is not None and record.process.is_running()

    def is_refused(self) -> bool:
        """Whether the machine has refused to lead a connection on (sshd's AllowTcpForwarding)."""
        return _PROHIBITED in self._log.read_text(errors="replace")

    def close(self) -> None:
        """Ends the tunnel, if there is one, also one that another command is just opening."""
        with self.closed():
            pass

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """As `close`; until the block ends, no other command opens the tunnel again.

        One that wants to then fails, if the block removes the folder.
        """
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):  # a full disk must not stop `down`
                # Whoever is opening it gives up, and frees the lock, when its process has ended.
                while self.folder.is_dir() and not self._lock(held):
                    self._end()
                    if time.monotonic() > deadline:  # it was stopped, by Ctrl-Z for instance
                        break
                    time.sleep(POLL_S)
            self._end()
            self._forget()
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock; waits while another command has it."""
        deadline = time.monotonic() + OTHERS_TIMEOUT_S
        with contextlib.ExitStack() as held:
            while not self._lock(held):
                if time.monotonic() > deadline:
                    raise UnreachableError(
                        f"another command has been opening the tunnel for {OTHERS_TIMEOUT_S:g} s; "
                        "try again"
                    )
                time.sleep(POLL_S)
            yield

    def _lock(self, held: contextlib.ExitStack) -> bool:
        """Takes the lock until `held` is closed; False if another command has it."""
        file = self.folder.with_name(f".{self.folder.name}.tunnel-lock")
        try:
            held.enter_context(locked(file, wait=False))
        except BlockingIOError:
            return False
        held.callback(file.unlink, missing_ok=True)
        return True

    def _end(self) -> None:
        """Ends the recorded process."""
        record = self._read()
        if record is not None and record.process.is_running():
            with contextlib.suppress(psutil.Error):
                end(psutil.Process(record.process.pid))

    @property
    def _record_file(self) -> Path:
        return self.folder / "tunnel.json"

    @property
    def _log(self) -> Path:
        return self.folder / "tunnel.log"

    def _start(
        self, way: Way, forwards: Sequence[tuple[int, int]], host: str, *, lasting: bool
    ) -> bool:
        """Starts the process and waits for its ports; False if another process has taken one.

        `forwards` has pairs: the head's port, the local one.
        """
        process = self._process(way.leading(forwards, host), lasting=lasting)
        try:
            # Before its ports are waited for: `close` finds it although this process was killed.
            self._write(way, forwards, host, Process.of(process.pid))
            self._wait(process, {local for _, local in forwards})
        except (psutil.Error, ChildProcessError):
            process.wait()
            self._forget()
            self._check_folder()
            text = self._log.read_text(errors="replace")
            if any(sign in text for sign in _TAKEN):
                return False
            raise way.failure(text) from None
        except BaseException:
            process.kill()
            process.wait()
            self._forget()
            raise
        return True

    def _process(self, arguments: Sequence[str], *, lasting: bool) -> subprocess.Popen[bytes]:
        self._check_folder()
        with self._log.open("wb") as log:
            try:
                return subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C ends the command, not the tunnel
                    preexec_fn=None if lasting else partial(end_with_parent, os.getpid()),
                )
            except FileNotFoundError:
                raise no_program(arguments[0]) from None

    def _check_folder(self) -> None:
        """Raises if `down` has removed the folder: a record must not make it again."""
        if not self.folder.is_dir():
            raise SunspotError(f"{self.folder} is gone: another command took the cluster down")

    def _write(
        self, way: Way, forwards: Sequence[tuple[int, int]], host: str, process: Process
    ) -> None:
        self._check_folder()
        (_, port), *others = forwards
        command = list(way.command)
        record = _Record(process=process, port=port, command=command, host=host, also=others)
        write_private(self._record_file, json.dumps(asdict(record)))

    def _forget(self) -> None:
        """Removes the record of a process that has ended; left behind, it does no harm."""
        with contextlib.suppress(OSError):
            self._record_file.unlink(missing_ok=True)

    def _wait(self, process: subprocess.Popen[bytes], ports: set[int]) -> None:
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        while not _listens(process.pid, ports):
            if process.poll() is not None:
                raise ChildProcessError
            if time.monotonic() > deadline:
                raise UnreachableError(f"the tunnel was not open after {OPEN_TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    def _like(self, way: Way, host: str) -> _Record | None:
        """The record of a tunnel that goes the same way, alive or not."""
        record = self._read()
        is_like = record and (record.command, record.host) == (list(way.command), host)
        return record if is_like else None

    def _read(self) -> _Record | None:
        try:
            fields = json.loads(self._record_file.read_text())
            pid, started = fields["process"]["pid"], fields["process"]["start_time"]
            process = Process(pid=int(pid), start_time=float(started))
            return _Record(**fields | {"process": process})
        except (OSError, ValueError, TypeError, KeyError):
            return None


def _local_ports(
    wishes: Sequence[tuple[int, int | None]], attempt: int, claims: PortClaims
) -> list[tuple[int, int]]:
    """A free local port for each of the head's: the wish, or the same number, or any.

    `wishes` has pairs: the head's port, and the wished local one, if any. Another process may
    take a port before ssh does. The next attempt then leaves the usual numbers, but not the wish:
    it may have been another port that was taken. Only the last attempt gives up the wish too.
    """
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for remote, wish in wishes:
        usual = wish or remote
        tries = PORT_ATTEMPTS - 1 if wish else 1
        usable = attempt < tries and usual not in taken and claims.take(usual)
        local = usual if usable else free_port(taken)
        taken.add(local)
        found.append((remote, local))
    return found


def _is_open(record: _Record) -> bool:
    """Whether the tunnel has its ports: if another user has one, the token must not go there."""
    ports = {record.port, *dict(record.also).values()}
    return record.process.is_running() and _listens(record.process.pid, ports)


def _listens(pid: int, ports: set[int]) -> bool:
    """Whether this process or a child of it listens on the ports, and not some other process."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        missing = ports - _listening(process)
        return not missing or missing <= set[int]().union(
            *map(_listening, process.children(recursive=True))
        )
    return False


def _listening(process: psutil.Process) -> set[int]:
    return {
        connection.laddr.port
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def end(process: psutil.Process) -> None:
    """Ends a process and its children (`az` starts ssh as a child)."""
    family = [*process.children(recursive=True), process]
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.terminate()
    _, alive = psutil.wait_procs(family, timeout=CLOSE_TIMEOUT_S)
    for one in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
