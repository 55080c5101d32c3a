"""What every target does, and what a command is told of a cluster and its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, runtime_checkable

from sunspot.errors import SunspotError
from sunspot.stack import Stack

if TYPE_CHECKING:
    from sunspot.targets.ssh import Ssh

Progress = Callable[[str], None]
"""Called with one short line whenever something that a person waits for has happened."""


UP_TIMEOUT_S = 900.0


@dataclass(frozen=True, kw_only=True)
class ClusterHandle:
    """How to reach a cluster that is up.

    Attributes:
        name: the stack's name.
        target: where it runs, "local" for instance.
        head_address: HOST:PORT of the GCS, for `ray.init(address=...)`.
        job_address: URL of Ray's job API and dashboard.
        token_path: file (mode 0600) that holds the authentication token.
        monitoring: URLs by name, "Grafana" and "Prometheus", where the target runs them.
    """

    name: str
    target: str
    head_address: str
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
        return {
            "RAY_ADDRESS": self.head_address,
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


class HeadLostError(SunspotError):
    """The cluster's head died: nothing of the cluster can be used any more."""


class Target(Protocol):
    """A place where clusters run. Every method may raise SunspotError."""

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
    ) -> ClusterHandle:
        """Brings the stack's cluster up, or returns the one that is up already.

        It returns when every minimum worker is a member and the job API answers. If it fails, is
        interrupted or takes longer than `timeout_s`, what it began is taken away again. `port`
        and `dashboard_port` ask for ports on this machine: the GCS's, and the job API's.
        """
        ...

    def down(self, name: str, progress: Progress) -> bool:
        """Takes a cluster away, whatever state it is in; False if there was nothing."""
        ...

    def names(self) -> list[str]:
        """The stacks that have a cluster here, also one that is broken."""
        ...

    def stack(self, name: str) -> Stack:
        """The stack as it was when the cluster was brought up."""
        ...

    def handle(self, name: str) -> ClusterHandle:
        """The way to a cluster. Raises HeadLostError, or SunspotError if it is not up."""
        ...

    def nodes(self, name: str) -> list[NodeStatus]:
        """The nodes of a cluster, the head first, lost ones last."""
        ...

    def scale(self, name: str, group: str, count: int, progress: Progress) -> None:
        """Starts nodes of a group, or drains and stops some, until it has `count`."""
        ...

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


@runtime_checkable
class Remote(Protocol):
    """What a target also does whose clusters somebody else may have made, on other machines."""

    def adopt(self, name: str) -> bool:
        """Whether a cluster of that name is up that no record here tells of; writes one if so."""
        ...

    def take_down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> list[str] | None:
        """`down`, with or without what was to outlive the cluster.

        Returns what was kept, one sentence each, or None if there was nothing to take away.
        Raises SunspotError, with a list, if anything else still exists.
        """
        ...

    def outputs(self, name: str) -> Mapping[str, Any]:
        """What the program told of the cluster when it was last asked."""
        ...

    def ssh(self, name: str) -> Ssh:
        """The way to a shell on the head."""
        ...
