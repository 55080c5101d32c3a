"""What a person at a terminal sees while a `RayCluster` starts and stops."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from sunspot.cluster_states import ResourceState, StateCallback

_TITLES = {
    ResourceState.ACTIVATING: "starting Ray cluster",
    ResourceState.DEACTIVATING: "taking down Ray cluster",
}


def in_terminal(name: str) -> StateCallback | None:
    """Shows the states of cluster `name` on stderr; None where stderr is not a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    return _Spinner(name)


class _Spinner:
    """A line with the latest step and the seconds, gone while the block's body runs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._title: str | None = None
        self._shown = contextlib.ExitStack()
        self._show: Callable[[str], None] | None = None

    def __call__(self, state: ResourceState, message: str) -> None:
        title = _TITLES.get(state)
        if title != self._title:
            self._shown.close()
            self._title, self._show = title, self._opened(title) if title else None
        elif self._show:
            self._show(message)

    def _opened(self, title: str) -> Callable[[str], None]:
        from sunspot import console

        # Ray's logging keeps the stderr that it finds when it starts: it must find the real one.
        return self._shown.enter_context(console.progress(f"{title} {self._name}", redirect=False))
