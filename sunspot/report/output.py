"""The output of a report: files in a folder, and a table for the terminal."""

import errno
import os
import tempfile
from pathlib import Path

from rich.table import Table
from rich.text import Text

from sunspot.errors import SunspotError, UsageError
from sunspot.report.drawing import picture
from sunspot.report.model import Report
from sunspot.report.page import page
from sunspot.report.text import seconds, speed_up

IGNORE_FILE = ".gitignore"
INDEX = "index.html"
TIMELINE = "timeline.svg"


def write(report: Report, folder: Path) -> Path:
    """Writes the page and its main picture into the folder; returns the page's path.

    Each file is replaced atomically.

    Raises:
        UsageError: the folder cannot be written.
        SunspotError: the disk is full.
    """
    # Drawn before anything is written: input that cannot be drawn leaves the old report.
    files = {TIMELINE: picture(report), INDEX: page(report)}
    try:
        _make(folder)
        for name, text in files.items():
            _write_whole(folder / name, text)
    except OSError as error:
        raise _explained(error, folder) from error
    return folder / INDEX


def check_folder(folder: Path) -> None:
    """Raises at once what `write` would raise at the end; makes nothing."""
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise _explained(error, folder) from error


def _make(folder: Path) -> None:
    """Makes the folder if need be; a new one is kept out of git and of the next job's upload."""
    try:
        folder.mkdir(parents=True)
    except OSError:
        if not folder.is_dir():
            raise
        return
    try:
        _write_whole(folder / IGNORE_FILE, "*\n")
    except OSError:
        folder.rmdir()
        raise


def table(report: Report) -> Table:
    """The results, one row per workload, for the terminal."""
    made = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    made.add_column("workload", overflow="fold")
    for heading in ("tasks", "nodes used", "seconds", "speed-up over one worker"):
        made.add_column(heading, justify="right")
    for result in report.results:
        made.add_row(
            Text(result.workload),  # as Text: a name may hold what rich reads as markup
            f"{result.tasks:,}",
            str(result.nodes),
            seconds(result.seconds),
            speed_up(result.speed_up),
        )
    return made


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _explained(error: OSError, folder: Path) -> SunspotError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SunspotError(f"the report cannot be written to {folder}: {reason}. Free some space.")
    return UsageError(
        f"the report cannot be written to {folder}: {reason}. Choose a folder you may write to."
    )
