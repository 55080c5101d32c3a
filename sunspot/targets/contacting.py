"""A first contact: what no test decides is tried with a real account. An ability of targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from sunspot.stack import Stack
from sunspot.targets.protocol import Finding, Progress

Outcome = Literal["ok", "failed", "not tried"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One step of a first contact, and how it went.

    Attributes:
        step: what was tried, such as "simulated eviction".
        outcome: "not tried" where an earlier step failed, or there is nothing to try.
        seconds: how long it took.
        detail: what was seen, in one line.
    """

    step: str
    outcome: Outcome
    seconds: float
    detail: str


@dataclass(frozen=True, kw_only=True)
class ContactReport:
    """The result of a first contact.

    Attributes:
        trials: its steps, in order.
        interrupted: whether Ctrl-C ended it early.
        remains: what still exists and how to remove it; "" if nothing does.
        document: the report as plain data, without what names the user or the account.
    """

    trials: Sequence[Trial]
    interrupted: bool
    remains: str
    document: Mapping[str, Any]


class Contact(Protocol):
    """A first contact that is prepared: the smallest cluster of a stack, which does not exist."""

    @property
    def name(self) -> str:
        """The name of the small cluster's own stack."""
        ...

    def findings(self, progress: Progress) -> list[Finding]:
        """The preconditions of the small cluster."""
        ...

    def cost(self) -> str:
        """What is made, how long it takes and what it costs at most, in some lines."""
        ...

    def make(self, report: Path, progress: Progress, note: Progress) -> ContactReport:
        """Makes the cluster, tries each step, takes everything away.

        A step that fails is part of the result, and so is the first Ctrl-C.

        Args:
            report: the file that gets the report, written again after each step.
            progress: called with each step.
            note: called with lines for people that are to stay on the terminal.

        Raises:
            KeyboardInterrupt: taking down was interrupted too; a note says what remains.
        """
        ...


@runtime_checkable
class Contacting(Protocol):
    """What no test decides can be tried with a real account: a first contact."""

    def first_contact(self, stack: Stack) -> AbstractContextManager[Contact]:
        """A first contact in the place that a stack describes, prepared while the block lasts.

        Raises:
            UsageError: it cannot be made of this stack.
        """
        ...
