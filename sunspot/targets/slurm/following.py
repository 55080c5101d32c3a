"""A file on the other side that grows, printed here."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable
from typing import TextIO

from sunspot.targets.slurm.commands import Slurm
from sunspot.targets.slurm.life import pauses


def follow(slurm: Slurm, file: str, out: TextIO, goes_on: Callable[[], bool]) -> None:
    """Prints a file and what is added to it, as long as `goes_on` is true."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    printed, pause = 0, pauses()
    while True:
        # Asked before the file is read, so that its last lines are not missed.
        again = goes_on()
        data = slurm.rest(file, printed)
        printed += len(data)
        out.write(decode(data, final=not again))
        out.flush()
        if not again:
            return
        time.sleep(next(pause))
