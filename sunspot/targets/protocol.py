"""What every target does, what some can do besides, and what they tell of their clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TextIO, runtime_checkable

from sunspot.errors import SunspotError
from sunspot.spec import HEAD
from sunspot.stack import Stack

Progress = Callable[[str], None]
"""Called with one short line whenever something that a person waits for has happened."""

UP_TIMEOUT_S = 900.0


def silent(_step: str) -> None:
    """The `Progress` of a caller that shows none."""


@dataclass(frozen=True, kw_only=True)
class ClusterHandle:
    """How to reach a cluster that is up.

    Attributes:
        name: the stack's name.
        target: the target's name, "local" for instance.
        head_address: HOST:PORT of the GCS, as the cluster's own nodes reach it.
        driver_address: what `ray.init(address=...)` takes on this machine; None where no driver
            reaches the cluster from here, so that work goes there as jobs.
        job_address: URL of Ray's job API and dashboard.
        token_path: file (mode 0600) that holds the authentication token.
        monitoring: URLs by name, "Grafana" and "Prometheus", where the target runs them.
    """

    name: str
    target: str
    head_address: str
    driver_address: str | None
    job_address: str
    token_path: Path
    monitoring: Mapping[str, str] = field(default_factory=dict)

    def token(self) -> str:
        """The token itself. Raises SunspotError if its file cannot be read."""
        try:
            return self.token_path.read_text().strip()
        except OSError as error:
            raise SunspotError(
                f"cannot read the token of {self.name!r} in {self.token_path}: {error.strerror}. "
                f"Take the cluster away and start again: sunspot down {self.name}"
            ) from error

    def environment(self) -> dict[str, str]:
        """The variables with which plain `ray` commands and drivers find and may use it."""
        driver = {} if self.driver_address is None else {"RAY_ADDRESS": self.driver_address}
        return driver | {
            "RAY_API_SERVER_ADDRESS": self.job_address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_path),
        }


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One node of a cluster as its target knows it. `memory_gb` is GiB.

    `state` is "lost" for a node that died while it was wanted; `log` is then the end of its log.
    """

    name: str
    group: str
    market: str
    state: Literal["starting", "up", "draining", "lost"]
    cpus: float
    gpus: float
    memory_gb: float
    log: str = ""

    @property
    def is_head(self) -> bool:
        return self.group == HEAD


class Up(NamedTuple):
    """A cluster that `up` was asked for. `was_up`: it found it up, and changed nothing."""

    handle: ClusterHandle
    was_up: bool


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What became of a cluster that was taken away.

    Attributes:
        looked_for: the kinds of things that were looked for afterwards, "process, port or file".
        kept: what was to outlive the cluster, one sentence each.
        left: what still exists and should not, one line each.
        remedy: how a person gets rid of what is left.
    """

    looked_for: str
    kept: Sequence[str] = ()
    left: Sequence[str] = ()
    remedy: str = ""

    def check(self, name: str) -> None:
        """Raises SunspotError, with a list, if anything is left."""
        if self.left:
            lines = [f"{name!r} was taken down, but this still exists:", *self.left, self.remedy]
            raise SunspotError("\n  ".join(filter(None, lines)))


class HeadLostError(SunspotError):
    """The cluster's head died: nothing of the cluster can be used any more."""


class Target(Protocol):
    """A place where clusters run. Every method may raise SunspotError."""

    @property
    def name(self) -> str:
        """Its name in the registry."""
        ...

    def check(self, stack: Stack) -> None:
        """Raises UsageError with everything that `up` would refuse. Makes nothing."""
        ...

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
    ) -> Up:
        """Brings the stack's cluster up; one that is up already stays as it is, or is updated.

        It checks the stack first, and returns when every minimum worker is a member and the job
        API answers. If it fails, is interrupted or takes longer than `timeout_s`, either what it
        began is taken away again, or the error says what stays (for Ctrl-C as a note of the
        exception, PEP 678). `port` and `dashboard_port` ask for ports on this machine: the GCS's,
        and the job API's.
        """
        ...

    def down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> Removal | None:
        """Takes a cluster away, whatever state it is in; None if there was nothing.

        What is to outlive a cluster is kept, unless `delete_storage`. Afterwards it looks for what
        is left.
        """
        ...

    def names(self) -> list[str]:
        """The stacks that have a cluster here, as far as this machine knows; broken ones too."""
        ...

    def discover(self, name: str) -> bool:
        """Asks the place itself whether it has a cluster of that name, and remembers it."""
        ...

    def stack(self, name: str) -> Stack:
        """The stack as it was when the cluster was brought up."""
        ...

    def handle(self, name: str, progress: Progress = silent) -> ClusterHandle:
        """The way to a cluster. Raises HeadLostError, or SunspotError if it is not up.

        `progress` is told what is waited for, if anything is.
        """
        ...

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:
        """The nodes of a cluster, the head first, lost ones last; `progress` as for `handle`."""
        ...


# What only some targets can do. A command asks for one with abilities.need.


@runtime_checkable
class Scaling(Protocol):
    """Groups get another number of workers by hand."""

    def scale(self, name: str, counts: Mapping[str, int], progress: Progress) -> None:
        """Starts nodes of each group, or drains and stops some, until it has its count.

        Raises UsageError, before anything changes, for a group that is not there or a count that
        it cannot have.
        """
        ...


@runtime_checkable
class NodeLogs(Protocol):
    """A node tells what it printed."""

    def node_log(
        self, name: str, node: str, out: TextIO, tell: Progress, *, follow: bool = False
    ) -> int:
        """Prints the log of one node to `out`; what a person should know besides goes to `tell`.

        It works for a node that has not joined, one that is lost, and where the head is dead. With
        `follow` it goes on until the node ends, or until it is interrupted. Returns the exit code
        of what read the log, 0 for success. Raises UsageError, with the nodes that there are, if
        `node` is none of them.
        """
        ...


class Shell(Protocol):
    """A shell on a cluster's head, and a way for files."""

    def run(self, remote: Sequence[str]) -> int:
        """Runs a command there at this terminal, or a shell without one; returns its exit code."""
        ...

    def copy(self, source: str, destination: str) -> int:
        """Copies files; the side on the head is written head:PATH. Returns the exit code."""
        ...


@runtime_checkable
class Shells(Protocol):
    """The head takes logins."""

    def shell(self, name: str) -> Shell:
        """The way to a shell on the head."""
        ...


@runtime_checkable
class Outputs(Protocol):
    """A program made the cluster and told of it."""

    def outputs(self, name: str) -> Mapping[str, Any]:
        """What the program told when it was last asked."""
        ...
