"""The `Target` protocol, the abilities that only some targets have, and the types of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TextIO, runtime_checkable

from sunspot.errors import SunspotError
from sunspot.ray.handle import ClusterHandle
from sunspot.spec_values import HEAD
from sunspot.stack import Stack

Progress = Callable[[str], None]
"""Called with one short line for each step of what a person waits for."""

UP_TIMEOUT_S = 900.0


class Lasting(str):
    """A step that must still be readable when the next one has come, such as a warning."""

    __slots__ = ()


class WaitsForOthers(str):
    """A step in which nothing is done yet, since another command works on the same cluster."""

    __slots__ = ()


def silent(_step: str) -> None:
    """The `Progress` of a caller that shows none."""


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One node of a cluster, as its target knows it.

    Attributes:
        name: the node's name in Ray.
        group: the group's name, or its node type's; "head" for the head.
        market: how the node was bought, "spot" or "on-demand".
        state: "lost" for a node that died without being stopped.
        cpus: Ray's CPUs.
        gpus: Ray's GPUs.
        memory_gb: Ray's memory in GiB.
        log: the end of a lost node's log; "" for others.
        notes: what happened to it, a line each, the oldest first.
    """

    name: str
    group: str
    market: str
    state: Literal["starting", "up", "draining", "lost"]
    cpus: float
    gpus: float
    memory_gb: float
    log: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_head(self) -> bool:
        """Whether this is the head."""
        return self.group == HEAD


class Up(NamedTuple):
    """The result of `up`.

    Attributes:
        handle: how to reach the cluster.
        was_up: whether it was up already and nothing changed.
        notes: what is not as one would expect it, a sentence or two each.
    """

    handle: ClusterHandle
    was_up: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The result of taking a cluster down.

    Attributes:
        looked_for: what was looked for afterwards, such as "process, port or file".
        kept: what was kept on purpose, one sentence each.
        left: what still exists and should not, one line each.
        remedy: how to remove what is left.
    """

    looked_for: str
    kept: Sequence[str] = ()
    left: Sequence[str] = ()
    remedy: str = ""

    def check(self, name: str) -> None:
        """Checks that nothing is left of the cluster `name`.

        Raises:
            SunspotError: something is left; the message lists it.
        """
        if self.left:
            lines = [f"{name!r} was taken down, but this still exists:", *self.left, self.remedy]
            raise SunspotError("\n  ".join(filter(None, lines)))


Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One precondition of a stack on a target, and whether it is met.

    Attributes:
        check: what was looked at, such as "memory" or "quota standardDSv5Family".
        level: "failure" if `up` would fail or the stack could not get what it names; "warning" if
            it may surprise, or could not be checked.
        detail: what was found, in one line.
        remedy: the command that mends it, or what to change; "" where nothing has to be.
    """

    check: str
    level: Level
    detail: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class HourlyCost:
    """What a cluster costs now, in USD an hour, by what is known without asking anyone.

    Attributes:
        machines: its nodes.
        others: what is not a machine, partly guessed.
        price_unknown: sizes without a known price, which `machines` leaves out.
        prices: where the prices come from, as a phrase.
    """

    machines: float
    others: float
    price_unknown: tuple[str, ...]
    prices: str


class Target(Protocol):
    """Where clusters run. Every method may raise SunspotError."""

    @property
    def name(self) -> str:
        """The target's name in the registry."""
        ...

    def check(self, stack: Stack) -> None:
        """Checks a stack, and creates nothing.

        Raises:
            UsageError: `up` would refuse the stack; the message has every problem.
        """
        ...

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
        client: bool = False,
    ) -> Up:
        """Brings the stack's cluster up; one that is up already stays as it is, or is updated.

        It checks the stack first, and returns when every minimum worker is a member and the job
        API answers. If it fails, is interrupted or times out, it either removes what it created,
        or the error says what remains (for Ctrl-C as a note of the exception, PEP 678).

        Args:
            stack: the stack, fitted to this target.
            progress: called with each step.
            timeout_s: seconds that it may take.
            port: the GCS's port on this machine; by default Ray's usual one, or if it is taken, a
                free one. A target whose GCS is elsewhere refuses it.
            dashboard_port: the job API's port on this machine; by default as for `port`.
            client: start a server for `ray://` addresses, where a head has one only on request.
        """
        ...

    def down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> Removal | None:
        """Takes a cluster down, whatever its state, and then looks for what is left of it.

        Protected results are kept, unless `delete_storage`. Returns None if there was no cluster.
        """
        ...

    def names(self) -> list[str]:
        """The stacks that have a cluster, by this machine's records; broken records too."""
        ...

    def discover(self, name: str) -> bool:
        """Whether a cluster of that name exists, also without a record, which it then writes."""
        ...

    def stack(self, name: str) -> Stack:
        """The stack as it was when the cluster was brought up."""
        ...

    def handle(self, name: str, progress: Progress = silent) -> ClusterHandle:
        """How to reach a cluster.

        Args:
            name: the stack's name.
            progress: called with a line for each thing that is waited for.

        Raises:
            HeadLostError: the cluster's head is dead.
            NotUpError: the cluster is not up.
        """
        ...

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:
        """The nodes of a cluster, the head first, lost ones last; `progress` as for `handle`."""
        ...


# What only some targets can do. A command looks an ability up with abilities.need.


@runtime_checkable
class NodeLogs(Protocol):
    """The log of each node can be read."""

    def node_log(
        self, name: str, node: str, out: TextIO, note: Progress, *, follow: bool = False
    ) -> int:
        """Prints the log of one node.

        It also works for a node that has not joined or is lost, and while the head is dead.

        Args:
            name: the stack's name.
            node: the node's name.
            out: where the log is printed.
            note: called with notes for people.
            follow: whether to go on until the node ends, or until an interrupt.

        Returns:
            The exit code of the command that read the log, 0 for success.

        Raises:
            UsageError: there is no such node; the message lists the nodes.
        """
        ...


@runtime_checkable
class Preconditions(Protocol):
    """What a stack needs before `up` can succeed can be checked one by one."""

    def preconditions(self, stack: Stack, progress: Progress) -> list[Finding]:
        """Checks everything that the stack needs, and creates nothing.

        What is missing is a finding, never an exception.

        Args:
            stack: the stack as its file describes it, not yet fitted to this target.
            progress: called with each step.
        """
        ...


@runtime_checkable
class GpuMakers(Protocol):
    """The maker of the host's GPUs can be chosen."""

    def with_gpus(self, stack: Stack, maker: str) -> Stack:
        """The stack, for GPUs of that maker.

        Raises:
            UsageError: there is no such maker; the message lists them.
        """
        ...


@runtime_checkable
class Places(Protocol):
    """Where its clusters run can be chosen, in kubectl's words."""

    def at_place(self, stack: Stack, context: str | None, namespace: str | None) -> Stack:
        """The stack, for that context and that namespace; None keeps what it says itself.

        Raises:
            UsageError: a namespace cannot have that name.
        """
        ...


class Shell(Protocol):
    """Commands and copies on a cluster's head."""

    def run(self, remote: Sequence[str]) -> int:
        """Runs a command, or without one a shell, at this terminal; returns its exit code."""
        ...

    def copy(self, source: str, destination: str) -> int:
        """Copies files; a path on the head is written head:PATH. Returns the exit code."""
        ...


@runtime_checkable
class Shells(Protocol):
    """The head accepts logins."""

    def shell(self, name: str) -> Shell:
        """The shell on a cluster's head."""
        ...


@runtime_checkable
class Outputs(Protocol):
    """A program made the cluster and has outputs."""

    def outputs(self, name: str) -> Mapping[str, Any]:
        """The outputs of the program, as they were last read."""
        ...


@runtime_checkable
class Manifests(Protocol):
    """What the target is given for a stack is a text that also works without Sunspot."""

    def manifest(self, stack: Stack) -> str:
        """The text. Nothing is asked of the place itself.

        Args:
            stack: the stack, fitted to this target.

        Raises:
            UsageError: the stack is wrong for this target.
        """
        ...


@runtime_checkable
class Rights(Protocol):
    """What a person must be allowed to do at the place can be written out."""

    def rights(self, stack: Stack) -> str:
        """The rights for the stack's cluster, as a text that grants them. Raises as `manifest`."""
        ...


@runtime_checkable
class Batches(Protocol):
    """A cluster can be brought up for one command."""

    def run(
        self,
        stack: Stack,
        command: Sequence[str],
        out: TextIO,
        progress: Progress,
        *,
        follow: bool = True,
    ) -> int:
        """Runs a command on a cluster that exists only for it.

        An interrupt cancels it, with everything that it started.

        Args:
            stack: the stack, fitted to this target.
            command: the command and its arguments; it runs on the head.
            out: where its output is printed.
            progress: called with each step.
            follow: whether to wait for its end; otherwise it goes on by itself.

        Returns:
            The command's exit code; 0 without `follow`.

        Raises:
            UsageError: as `Target.check` does.
        """
        ...


@runtime_checkable
class Costing(Protocol):
    """Clusters cost money."""

    def hourly_cost(self, name: str, nodes: Sequence[NodeStatus]) -> HourlyCost | None:
        """What these nodes of a cluster cost now; None if that cannot be said."""
        ...

    def hourly_prices(self, name: str) -> Mapping[str, float]:
        """USD an hour of a machine of each node type, the head's among them, where it is known."""
        ...
