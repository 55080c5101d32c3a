"""The limits of a local cluster's groups, in the autoscaler's file, which it re-reads at each tick.

While the cluster sleeps, because nothing uses it, the file has no minimums; another file keeps the
whole config of before. The limits of a group are those that it has awake.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sunspot.node.asleep import asleep
from sunspot.node.files import locked, write_private
from sunspot.node.local.folder import BrokenRecordError, ClusterFolder


def limits(folder: ClusterFolder, group: str) -> tuple[int, int]:
    """The minimum and the maximum of a group. Raises BrokenRecordError."""
    node_type = _awake(folder)["available_node_types"][group]
    return node_type["min_workers"], node_type["max_workers"]


def set_limits(folder: ClusterFolder, group: str, minimum: int, maximum: int | None) -> None:
    """Sets the limits of a group, and wakes the cluster; without a maximum, that one stays.

    Raises:
        BrokenRecordError: the file cannot be read.
    """
    with _locked(folder):
        config = _awake(folder)
        node_type = config["available_node_types"][group]
        most = max(minimum, node_type["max_workers"])
        node_type["min_workers"] = minimum
        node_type["max_workers"] = most if maximum is None else maximum
        _write(folder.autoscaler_config, config)
        folder.awake_config.unlink(missing_ok=True)


def sleep(folder: ClusterFolder) -> None:
    """Lets workers go that do nothing, those of the minimum too. Raises BrokenRecordError."""
    with _locked(folder):
        config = _awake(folder)
        _write(folder.awake_config, config)
        _write(folder.autoscaler_config, asleep(config))


def wake(folder: ClusterFolder) -> None:
    """Lets the minimum of each group come back. Raises BrokenRecordError."""
    with _locked(folder):
        if folder.awake_config.exists():
            _write(folder.autoscaler_config, _awake(folder))
            folder.awake_config.unlink()


@contextlib.contextmanager
def _locked(folder: ClusterFolder) -> Iterator[None]:
    with locked(folder.path / ".sizes.lock"):
        yield


def _awake(folder: ClusterFolder) -> dict[str, Any]:
    kept = folder.awake_config
    return _read(kept if kept.exists() else folder.autoscaler_config)


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(yaml.safe_load(file.read_text()))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise BrokenRecordError(f"{file} cannot be read ({error})") from error


def _write(file: Path, config: dict[str, Any]) -> None:
    write_private(file, yaml.safe_dump(config, sort_keys=False))
