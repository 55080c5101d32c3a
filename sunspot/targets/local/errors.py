"""What goes wrong with the files of a local cluster, told with what to do."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from sunspot.errors import SunspotError, UsageError
from sunspot.node.local.folder import BrokenRecordError

STATE_DIRECTORY_VARIABLE = "SUNSPOT_STATE_DIR"

# What says that a file cannot be written, beside all the other things an OSError can be.
DISK_ERRORS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


@contextlib.contextmanager
def readable_disk_errors(clusters: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise SunspotError(str(error)) from error
        _explain(error, clusters)


@contextlib.contextmanager
def readable_records(name: str) -> Iterator[None]:
    try:
        yield
    except (BrokenRecordError, ValidationError) as error:
        raise SunspotError(
            f"the records of {name!r} are broken: {error}. Take the cluster away and start again: "
            f"sunspot down {name} && sunspot up {name}"
        ) from error


def _explain(error: OSError, clusters: Path) -> NoReturn:
    raise UsageError(
        f"cannot write the cluster's state in {clusters}: {error.strerror or error}. Make room or "
        f"set {STATE_DIRECTORY_VARIABLE} to a folder that you can write"
    ) from error
