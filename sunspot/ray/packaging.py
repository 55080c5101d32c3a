"""A working directory as Ray's job API takes it: one zip, named by its content.

`.gitignore` and `.rayignore` files apply in every folder, as git applies the former.
"""

from __future__ import annotations

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

from sunspot.errors import UsageError

IGNORE_FILES = (".gitignore", ".rayignore")

# Ray leaves these out itself (ray_constants.RAY_RUNTIME_ENV_DEFAULT_EXCLUDES, 2.60).
ALWAYS_IGNORED = frozenset({".git", ".venv", "venv", "__pycache__"})

# Ray's limit for an upload is 512 MiB since 2.40; over 100 MiB, it probably contains a data set.
LIMIT_BYTES = 100 * 2**20

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


def collect(directory: Path, excludes: Sequence[str] = ()) -> list[File]:
    """The files of a working directory that go to the cluster, in a stable order.

    Links to files are followed, links to folders are left out. `excludes` are further lines in the
    form of an ignore file, as a runtime environment may have them.

    Raises:
        UsageError: it is not a directory, or its files exceed LIMIT_BYTES in total; the message
            lists the largest paths.
    """
    if not directory.is_dir():
        what = "is a file, not a directory" if directory.exists() else "does not exist"
        raise UsageError(
            f"the working directory {directory} {what}; give another with --working-dir"
        )
    specs = [(Path(), GitIgnoreSpec.from_lines(excludes))]
    files = sorted(_walk(directory, Path(), specs), key=lambda file: file.path.as_posix())
    total = sum(file.size for file in files)
    if total > LIMIT_BYTES:
        raise UsageError(_too_large(directory, files, total))
    return files


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


def _walk(root: Path, folder: Path, specs: list[tuple[Path, GitIgnoreSpec]]) -> Iterator[File]:
    specs = specs + [(folder, spec) for spec in _specs(root / folder)]
    with os.scandir(root / folder) as entries:
        for entry in entries:
            path = folder / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in ALWAYS_IGNORED or _ignored(path, is_folder, specs):
                continue
            if is_folder:
                yield from _walk(root, path, specs)
            elif size := _regular_size(entry):
                yield File(path, size[0])


def _regular_size(entry: os.DirEntry[str]) -> tuple[int] | None:
    """The size of a file, also behind a link; None for sockets, pipes and dangling links."""
    try:
        status = entry.stat()
    except OSError:
        return None
    return (status.st_size,) if stat.S_ISREG(status.st_mode) else None


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


def _too_large(directory: Path, files: list[File], total: int) -> str:
    largest = sorted(files, key=lambda file: file.size, reverse=True)[:5]
    rows = "\n".join(f"  {file.size / MIB:8.1f} MiB  {file.path.as_posix()}" for file in largest)
    return (
        f"the working directory {directory} holds {total / MIB:.0f} MiB in {len(files)} files; at "
        f"most {LIMIT_BYTES // MIB} MiB can be sent with a job. The largest:\n{rows}\n"
        f"Leave out what the job does not read by a line in .rayignore (same form as .gitignore), "
        f"for instance:\n  echo {shlex.quote(_pattern(largest[0].path))} >> "
        f"{shlex.quote(str(directory / '.rayignore'))}\n"
        f"and put data where the nodes can read it (the stack's storage)."
    )
