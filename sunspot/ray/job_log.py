"""A job's log: which part was printed already, and how to read one that is not UTF-8."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from sunspot.ray.api_errors import RefusedError


class Printer:
    """Prints each character of a log once, though the log is read from its beginning repeatedly.

    `printed` counts characters, as Ray's answers do, not the bytes of the file. `seen` gets what is
    printed too.
    """

    def __init__(self, out: TextIO, seen: Callable[[str], None] | None = None) -> None:
        self._out, self._seen = out, seen
        self.printed = 0

    def reading(self) -> Callable[[str], None]:
        """Starts to read from the beginning; call the result with each piece of the log in turn."""
        read = 0

        def take(piece: str) -> None:
            nonlocal read
            fresh = piece[max(0, self.printed - read) :]
            read += len(piece)
            if fresh:
                self.printed = read
                self._out.write(fresh)
                self._out.flush()
                if self._seen is not None:
                    self._seen(fresh)

        return take


def is_undecodable(error: RefusedError) -> bool:
    """Whether Ray failed to read a log because it is not UTF-8.

    It decodes logs strictly (JobLogStorageClient.get_logs, file_tail_iterator, 2.60): it fails at
    any invalid byte, also when a program has written only part of a character so far.
    """
    return "UnicodeDecodeError" in error.reason


def file_path(job: Mapping[str, Any]) -> str:
    """Where Ray's API of log files has the log of a job (the job API's fields), as bytes."""
    node, job_id = job["driver_node_id"], job["submission_id"]
    return f"/api/v0/logs/file?node_id={node}&submission_id={job_id}&lines=-1"


def decode(data: bytes, *, final: bool) -> str:
    """The text of a log file, with U+FFFD for what is not UTF-8 and line endings as Ray reads them.

    Unless it is `final`, an incomplete character at the end is left out: the rest will come.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return io.IncrementalNewlineDecoder(decoder, translate=True).decode(data, final=final)
