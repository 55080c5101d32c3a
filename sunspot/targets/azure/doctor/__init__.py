"""What a stack needs before it can be created on Azure, each precondition on its own.

Nothing is created. Importing this loads none of it: every command imports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sunspot.errors import SunspotError
from sunspot.stack import Stack
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.settings import TARGET
from sunspot.targets.protocol import Finding, Progress


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A stack that is examined.

    Attributes:
        stack: the stack as its file describes it.
        folder: the project's folder.
        group: the name of its resource group, if it exists.
        endpoints: the addresses of Azure.
    """

    stack: Stack
    folder: Path
    group: str | None = None
    endpoints: Endpoints = field(default_factory=Endpoints)


def check(subject: Subject, progress: Progress) -> list[Finding]:
    """Everything that a stack needs.

    Raises:
        UsageError: the stack is wrong in itself; the message names every problem.
    """
    from sunspot.targets.azure.doctor import examine

    return examine.check(subject, progress)


def quick(stack: Stack, folder: Path) -> list[Finding]:
    """What `up` checks first: a login and a subscription, asked of this machine and `az` only."""
    from sunspot.targets.azure.doctor import login

    return list(login.find(stack.name, folder).findings)


def refuse(stack: Stack, findings: Iterable[Finding]) -> None:
    """Refuses a stack for what failed.

    Raises:
        SunspotError: something did; the message has each failure with what mends it.
    """
    failed = [one for one in findings if one.level == "failure"]
    if failed:
        lines = [f"{one.check}: {one.detail}. To mend it: {one.remedy}" for one in failed]
        last = f"Nothing was created. To check everything: sunspot doctor {stack.name}"
        raise SunspotError("\n  ".join([f"stack {stack.name!r} on {TARGET}:", *lines, last]))
