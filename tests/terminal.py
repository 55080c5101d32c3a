"""A program at a terminal of its own, and what that shows."""

import os
import pty
import re
import subprocess
from collections.abc import Sequence


def shown(program: Sequence[str], *, stdout: int | None = None) -> str:
    """What a terminal shows of a program, without colours and the cursor's moves.

    Args:
        program: The program and its arguments; it must succeed.
        stdout: Where its output goes instead of the terminal.
    """
    ours, theirs = pty.openpty()
    output = theirs if stdout is None else stdout
    with subprocess.Popen(
        program, stdin=subprocess.DEVNULL, stdout=output, stderr=theirs
    ) as process:
        os.close(theirs)
        text = b""
        while chunk := _read(ours):
            text += chunk
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()).replace("\r\n", "\n")
    assert process.returncode == 0, plain
    return plain


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's answer when no process has the other end open any more
        return b""
