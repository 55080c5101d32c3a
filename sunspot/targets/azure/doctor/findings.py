"""Short ways to make findings, and the one for what could not be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sunspot.errors import SunspotError
from sunspot.targets.protocol import Finding

LONGEST_REASON = 300


def ok(check: str, detail: str) -> Finding:
    """It is as it should be."""
    return Finding(check=check, level="ok", detail=detail)


def warning(check: str, detail: str, remedy: str = "") -> Finding:
    """It may surprise."""
    return Finding(check=check, level="warning", detail=detail, remedy=remedy)


def failure(check: str, detail: str, remedy: str = "") -> Finding:
    """`up` would fail, or the stack could not get what it names."""
    return Finding(check=check, level="failure", detail=detail, remedy=remedy)


def not_checked(check: str, reason: str, remedy: str = "") -> Finding:
    """It could not be asked."""
    return warning(check, f"not checked: {reason}", remedy)


def short(text: object) -> str:
    """A reason in one line of bounded length."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."


def unreachable(error: Exception) -> str:
    """Why a server could not be reached, without the names of the libraries that tried."""
    reason = getattr(error.args[0], "reason", error) if error.args else error
    return short(str(reason).rpartition(": ")[2])


def tried(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of `look`; the last says why if it could not ask all."""
    found: list[Finding] = []
    try:
        found.extend(look())
    except SunspotError as error:
        remedy = "; ".join(getattr(error, "__notes__", ()))
        found.append(not_checked(check, short(error), remedy))
    return found
