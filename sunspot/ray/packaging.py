"""A working directory as Ray's job API takes it: one zip, named by its content.

`.gitignore` and `.rayignore` files apply in every folder, as git applies the former.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pathspec import GitIgnoreSpec

from sunspot.errors import SunspotError, UsageError

IGNORE_FILES = (".gitignore", ".rayignore")

# Ray leaves these out itself (ray_constants.RAY_RUNTIME_ENV_DEFAULT_EXCLUDES, 2.60).
ALWAYS_IGNORED = frozenset({".git", ".venv", "venv", "__pycache__"})

# Ray's limit for an upload is 512 MiB since 2.40; over 100 MiB, it probably contains a data set.
LIMIT_BYTES = 100 * 2**20

# More files and folders than this are a home or a data set, and would take minutes to look at.
LIMIT_ENTRIES = 100_000
# In a directory that is too large, so many are looked at to name its largest files.
ENTRIES_TO_NAME = 20_000

MIB = 2**20


@dataclass(frozen=True)
class File:
    """One file to upload; `path` is relative to the working directory, `size` in bytes."""

    path: Path
    size: int


@dataclass(frozen=True)
class Package:
    """A zip, open for reading, and the URI under which the cluster keeps it."""

    file: IO[bytes]
    uri: str
    size: int


@contextmanager
def reading() -> Iterator[None]:
    """Tells what went wrong where the block reads or packs a working directory.

    Raises:
        UsageError: a file or folder cannot be read, disappeared meanwhile, or has too long a name.
        SunspotError: the disk on which the folder is packed is full.
    """
    try:
        yield
    except PermissionError as error:
        raise UsageError(
            f"cannot read {error.filename}; make it readable or name it in .rayignore"
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename} disappeared while the folder was read; try again, or name files "
            "that keep changing in .rayignore"
        ) from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise UsageError(f"cannot read the folder to send: {error}") from error
        raise SunspotError(
            f"the disk of {tempfile.gettempdir()} is full, where the folder is packed. Free some "
            "space, or set TMPDIR to another folder"
        ) from error


def collect(directory: Path, excludes: Sequence[str] = ()) -> list[File]:
    """The files of a working directory that go to the cluster, in a stable order.

    Links to files are followed, links to folders are left out. `excludes` are further lines in the
    form of an ignore file, as a runtime environment may have them.

    Raises:
        UsageError: it is not a directory, it is the root, a home directory or above one, or its
            files exceed LIMIT_BYTES in total or LIMIT_ENTRIES; the message lists the largest paths.
    """
    if not directory.is_dir():
        what = "is a file, not a directory" if directory.exists() else "does not exist"
        raise UsageError(
            f"the working directory {directory} {what}; give another with --working-dir"
        )
    _check_place(directory)
    specs = [(Path(), GitIgnoreSpec.from_lines(excludes))]
    files: list[File] = []
    total = 0
    for entries, found in enumerate(_walk(directory, Path(), specs)):
        if entries >= (LIMIT_ENTRIES if total <= LIMIT_BYTES else ENTRIES_TO_NAME):
            raise UsageError(_too_large(directory, files, total, whole=False))
        if found is not None:
            files.append(found)
            total += found.size
    if total > LIMIT_BYTES:
        raise UsageError(_too_large(directory, files, total))
    return sorted(files, key=lambda file: file.path.as_posix())


@contextmanager
def package(directory: Path, files: list[File]) -> Iterator[Package]:
    """The files as one zip; the same content gives the same bytes and the same URI."""
    with tempfile.SpooledTemporaryFile(max_size=16 * MIB) as target:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for file in files:
                _add(archive, directory, file)
        size = target.tell()
        target.seek(0)
        digest = hashlib.file_digest(target, "sha256").hexdigest()[:40]  # type: ignore[arg-type]
        target.seek(0)
        yield Package(file=target, uri=f"gcs://_ray_pkg_{digest}.zip", size=size)


def _add(archive: zipfile.ZipFile, directory: Path, file: File) -> None:
    source = directory / file.path
    # A fixed date keeps the bytes, and so the URI, the same when only dates changed.
    entry = zipfile.ZipInfo(file.path.as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = (source.stat().st_mode & 0xFFFF) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    with source.open("rb") as content, archive.open(entry, "w") as target:
        while chunk := content.read(MIB):
            target.write(chunk)


def _check_place(directory: Path) -> None:
    """Refuses, before anything in it is read, a directory that is never a project's own."""
    place, home = directory.resolve(), _home()
    if place == Path(place.anchor):
        what = "the whole file system"
    elif home and (place == home or place in home.parents):
        what = "a home directory, with its keys and tokens"
    else:
        return
    raise UsageError(
        f"the working directory {place} is {what}: it is sent with the job, at most "
        f"{LIMIT_BYTES // MIB} MiB. Change to the project's folder, or name it with --working-dir"
    )


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:  # in a container, a user without a name may have none
        return None


def _walk(
    root: Path, folder: Path, specs: list[tuple[Path, GitIgnoreSpec]]
) -> Iterator[File | None]:
    """Each file to send, and None for each folder and for what is neither."""
    specs = specs + [(folder, spec) for spec in _specs(root / folder)]
    with os.scandir(root / folder) as entries:
        for entry in entries:
            path = folder / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in ALWAYS_IGNORED or _ignored(path, is_folder, specs):
                continue
            if is_folder:
                yield None
                yield from _walk(root, path, specs)
            else:
                size = _regular_size(entry)
                yield None if size is None else File(path, size)


def _regular_size(entry: os.DirEntry[str]) -> int | None:
    """The size of a file, also behind a link; None for sockets, pipes and dangling links."""
    try:
        status = entry.stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _specs(folder: Path) -> Iterator[GitIgnoreSpec]:
    for name in IGNORE_FILES:
        file = folder / name
        if file.is_file():
            yield GitIgnoreSpec.from_lines(file.read_text(errors="replace").splitlines())


def _ignored(path: Path, is_folder: bool, specs: list[tuple[Path, GitIgnoreSpec]]) -> bool:
    """The verdict of the deepest ignore file that has one, as in git."""
    ignored = False
    for base, spec in specs:
        relative = path.relative_to(base).as_posix() + ("/" if is_folder else "")
        verdict = spec.check_file(relative).include
        ignored = ignored if verdict is None else verdict
    return ignored


def _pattern(path: Path) -> str:
    """The line of an ignore file that means this path and no other."""
    return "/" + re.sub(r"([\\*?\[\]])", r"\\\1", path.as_posix())


def _too_large(directory: Path, files: list[File], total: int, *, whole: bool = True) -> str:
    """The message for a directory of which these files were seen, or `whole`, all of them."""
    largest = sorted(files, key=lambda file: file.size, reverse=True)[:5]
    rows = "".join(f"\n  {file.size / MIB:8.1f} MiB  {file.path.as_posix()}" for file in largest)
    example = shlex.quote(_pattern(largest[0].path if largest else Path("data")))
    return (
        f"the working directory {directory} holds {'' if whole else 'more than '}"
        f"{total / MIB:.0f} MiB in {len(files):,} files; at most {LIMIT_BYTES // MIB} MiB in "
        f"{LIMIT_ENTRIES:,} files can be sent with a job. The largest"
        f"{'' if whole else ' that were seen'}:{rows}\n"
        f"Leave out what the job does not read by a line in .rayignore (same form as .gitignore), "
        f"for instance:\n  echo {example} >> {shlex.quote(str(directory / '.rayignore'))}\n"
        f"and put data where the nodes can read it (the stack's storage). If this is not the "
        f"project's folder, name that one with --working-dir."
    )
