"""What a cluster's head wants said now: in `sunspot status`, and by nothing that has happened.

An event says what happened, once, for ever; a notice says what is so until it is put otherwise or
dropped: a paused group, refused settings, a cluster that is about to be stopped as idle.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sunspot.node.files import locked, write_private


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One notice; times are in seconds since the epoch.

    Attributes:
        about: what it is about, of which there is one notice: "group:gpu", "settings", "idle".
        text: a sentence or two for people, with what to do about it.
        since: when it began.
        until: when it ends by itself; None for one that stays until it is dropped.
    """

    about: str
    text: str
    since: float = field(default_factory=time.time)
    until: float | None = None


@dataclass(frozen=True)
class Notices:
    """The notices of one cluster, in the file `path`, which only its owner can read.

    Several processes of one user may write it.
    """

    path: Path

    def put(self, notice: Notice) -> None:
        """Says this, instead of the notice before about the same; `since` stays for equal text.

        Raises:
            OSError: the file cannot be written.
        """

        def change(notices: dict[str, Notice]) -> None:
            before = notices.get(notice.about)
            same = before is not None and before.text == notice.text
            since = before.since if before is not None and same else notice.since
            notices[notice.about] = Notice(**{**asdict(notice), "since": since})

        self._change(change)

    def drop(self, about: str) -> None:
        """Takes back what was said about this; nothing if nothing was.

        Raises:
            OSError: the file cannot be written.
        """
        self._change(lambda notices: notices.pop(about, None))

    def read(self) -> list[Notice]:
        """What is so now, the oldest first."""
        return current(self._all())

    def _all(self) -> dict[str, Notice]:
        try:
            return parse(self.path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return {}

    def _change(self, change: Callable[[dict[str, Notice]], object]) -> None:
        with locked(self.path.with_suffix(".lock")):
            before = self._all()
            after = dict(before)
            change(after)
            if after != before:
                write_private(self.path, json.dumps([asdict(one) for one in after.values()]))


def current(notices: Mapping[str, Notice]) -> list[Notice]:
    """Those that have not ended by themselves, the oldest first."""
    now = time.time()
    lasting = [one for one in notices.values() if one.until is None or one.until > now]
    return sorted(lasting, key=lambda one: one.since)


def parse(text: str) -> dict[str, Notice]:
    """The notices of a file's text, by what they are about; what cannot be read is left out."""
    try:
        items = json.loads(text)
        return {item["about"]: Notice(**item) for item in items}
    except (ValueError, TypeError, KeyError):
        return {}
