"""How a container gets a secret or a config: readable for its user, whoever that is."""

from __future__ import annotations

from typing import Any


class Mode(int):
    """A file's mode, written in octal digits, as Compose's specification writes it."""

    __slots__ = ()


# Compose's own default differs by its version: 0444; in 2.34.0 0440 and root's, which the
# containers' user cannot read (docker/compose#12658); later the image's user (#13288).
READABLE = Mode(0o444)


def secrets(*names: str) -> list[dict[str, Any]]:
    """Secrets that a service gets, each at `secret_files.inside`."""
    return [{"source": name, "mode": READABLE} for name in names]


def config(source: str, target: str) -> dict[str, Any]:
    """A config that a service gets, at the path `target`."""
    return {"source": source, "target": target, "mode": READABLE}
