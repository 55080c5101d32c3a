"""SSH to a cluster's machines: commands, copies, and connections to a node through its head.

A node that only the head can reach has `ssh HEAD -W NODE:22` as its ProxyCommand, so that any
connection to the head works, `az network bastion ssh` included. User and key are the head's.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sunspot.errors import SunspotError, UsageError

SSH_PORT = 22

CONNECT_TIMEOUT_S = 10
# Azure's network drops an idle connection after 4 minutes; a dead one is noticed in 45 s.
ALIVE_INTERVAL_S, ALIVE_COUNT = 15, 3
READ_TIMEOUT_S = 30.0
HEAD_PREFIX = "head:"
_REFUSED_KEY = ("Permission denied", "Too many authentication failures")
_CHANGED_HOST = ("Host key verification failed", "IDENTIFICATION HAS CHANGED")

# Two connections, one after the other; through Azure Bastion, `az` starts and logs in first.
JUMP_CONNECT_TIMEOUT_S = 45


class UnreachableError(SunspotError):
    """A machine's SSH port does not answer: it may be booting, or cannot be reached from here."""


class RemoteCommandError(SunspotError):
    """SSH works, but the command on the machine failed."""


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """How to run ssh to one machine: the head, or with `through` a node behind it.

    Attributes:
        command: the words of the stack's output `ssh_command`: `ssh ... USER@HOST`, or
            `az network bastion ssh ...`.
        key: the private key, or None for those that ssh finds by itself.
        known_hosts: the file that keeps the machine's host key; the first key is accepted.
        alias: the name that the host key is kept by, if that is not the address.
        called: what messages call the machine.
        connect_timeout_s: how many seconds a connection may take.
    """

    command: tuple[str, ...]
    key: Path | None
    known_hosts: Path
    alias: str | None = None
    called: str = "the head"
    connect_timeout_s: int = CONNECT_TIMEOUT_S

    @classmethod
    def parse(cls, command: str, *, key: Path | None, known_hosts: Path) -> Ssh:
        """The way to the head, from the stack's output `ssh_command`.

        Raises:
            SunspotError: the output is not an ssh command.
        """
        words = tuple(shlex.split(command))
        if len(words) < 2 or words[0] not in {"ssh", "az"}:
            raise SunspotError(f"the stack's output ssh_command is not an ssh command: {command!r}")
        return cls(command=words, key=key, known_hosts=known_hosts)

    def arguments(
        self, *options: str, remote: Sequence[str] = (), interactive: bool = False
    ) -> list[str]:
        """The whole command line. Unless `interactive`, ssh fails instead of asking."""
        ours = [*self._options(interactive=interactive), *options]
        if self.command[0] == "az":
            return [*self.command, "--", *ours, *remote]
        return ["ssh", *ours, *self.command[1:], *remote]

    def leading(self, forwards: Sequence[tuple[int, int]], host: str) -> list[str]:
        """The command line of a tunnel (`Way` in tunnel.py), from ports of this machine's loopback.

        Args:
            forwards: pairs: the remote port, the local one.
            host: the address that the machine leads to, as it reaches it itself.
        """
        options = ["-N", "-o", "ExitOnForwardFailure=yes"]
        for remote, local in forwards:
            options += ["-L", f"127.0.0.1:{local}:{host}:{remote}"]
        return self.arguments(*options)

    def read(self, *remote: str, timeout_s: float = READ_TIMEOUT_S) -> str:
        """What a command on the machine prints.

        Args:
            *remote: the command and its arguments.
            timeout_s: how many seconds the command may take.

        Raises:
            UnreachableError: the machine does not answer.
            RemoteCommandError: the command failed.
            SunspotError: the machine refuses the key, or its host key has changed.
        """
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
            raise no_program(self.command[0]) from None
        if done.returncode == 255:
            raise self.failure(done.stderr)
        if done.returncode:
            raise RemoteCommandError(
                f"`{shlex.join(remote)}` on {self.called} exited with {done.returncode}: "
                f"{_last_lines(done.stderr)}"
            )
        return done.stdout

    def run(self, remote: Sequence[str]) -> int:
        """Runs a shell, or a command, on the machine at this terminal; returns its exit code.

        One word is a line for the machine's shell, several are a command with its arguments.
        """
        line = list(remote) if len(remote) < 2 else [shlex.join(remote)]
        try:
            return subprocess.call(self.arguments(remote=line, interactive=True))
        except FileNotFoundError:
            raise no_program(self.command[0]) from None

    def copy(self, source: str, destination: str) -> int:
        """Copies files with rsync, to the head or from it; returns rsync's exit code.

        Raises:
            UsageError: not exactly one path is on the head, or SSH goes through Azure Bastion.
        """
        paths = [source, destination]
        if sum(path.startswith(HEAD_PREFIX) for path in paths) != 1:
            raise UsageError(
                f"exactly one of SOURCE and DEST must be on the head, written {HEAD_PREFIX}PATH; "
                f"for instance: sunspot rsync data/ {HEAD_PREFIX}data/"
            )
        if self.command[0] == "az":
            raise UsageError(
                "rsync does not work through Azure Bastion; put files into the stack's storage "
                "(its output storage_url), or open SSH in sunspot:access"
            )
        *options, host = self.command[1:]
        shell = shlex.join(["ssh", *self._options(interactive=True), *options])
        ends = [
            f"{host}:{path.removeprefix(HEAD_PREFIX)}" if path.startswith(HEAD_PREFIX) else path
            for path in paths
        ]
        try:
            command = ["rsync", "-az", "--partial", "-e", shell, "--", *ends]
            return subprocess.call(command)
        except FileNotFoundError:
            raise no_program("rsync") from None

    def failure(self, text: str) -> SunspotError:
        """The error that explains what ssh printed to text."""
        said = _last_lines(text)
        if any(sign in text for sign in _REFUSED_KEY):
            which = f"the key {self.key}" if self.key else "every key that ssh has"
            return SunspotError(
                f"{self.called} refuses {which} ({said}). It accepts the key that sunspot:access "
                "names in the stack file; one with a passphrase must be in your agent: ssh-add"
            )
        if any(sign in text for sign in _CHANGED_HOST):
            file = shlex.quote(str(self.known_hosts))
            forget = f"ssh-keygen -f {file} -R {self.alias}" if self.alias else f"rm {file}"
            return SunspotError(
                f"the host key of {self.called} has changed ({said}): another machine answers at "
                f"its address. If you replaced it yourself, remove the old key: {forget}"
            )
        return UnreachableError(f"no SSH to {self.called}: {said or 'ssh printed no error'}")

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


def through(head: Ssh, address: str, name: str) -> Ssh:
    """The way to the node at this private address, through the head.

    Its host key is kept by `name`: an evicted node's address is soon another node's.
    """
    host = f"[{address}]" if ":" in address else address
    proxy = shlex.join(head.arguments("-W", f"{host}:{SSH_PORT}"))
    user = _user(head)
    return replace(
        head,
        command=(
            "ssh",
            "-p",
            str(SSH_PORT),
            "-o",
            # ssh would expand %h and the like in it.
            f"ProxyCommand={proxy.replace('%', '%%')}",
            f"{user}@{address}" if user else address,
        ),
        alias=name,
        called=name if name == address else f"{name} ({address})",
        connect_timeout_s=JUMP_CONNECT_TIMEOUT_S,
    )


def _user(head: Ssh) -> str:
    """The user that logs in to the head; "" if its command does not name one."""
    if head.command[0] == "az":
        given = dict(zip(head.command, head.command[1:], strict=False))
        return given.get("--username", "")
    return head.command[-1].rpartition("@")[0]


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-2:])


def no_program(name: str) -> SunspotError:
    """The error for a program that is not on the PATH."""
    package = {"ssh": "openssh-client", "rsync": "rsync", "az": "azure-cli"}.get(name, name)
    return SunspotError(f"there is no `{name}` on this machine; install it (package {package})")
