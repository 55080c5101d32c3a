"""Why a job's runtime environment could not be set up, from the job's message."""

from __future__ import annotations

import textwrap

# How Ray begins such a message; what pip, uv or conda said is at its end
# (ray/dashboard/modules/job/job_manager.py, 2.60).
_BEGINS = "runtime_env setup failed"
_TELLING, _LINES, _WIDTH = ("ERROR", "WARNING"), 3, 300


def with_cause(first: str, message: str) -> str:
    """The first line of a job's message; of such a one, with the end of what was said.

    Args:
        first: the first line.
        message: the whole message.
    """
    if not first.startswith(_BEGINS):
        return first
    lines = [line.strip() for line in message.splitlines()[1:] if line.strip()]
    told = list(dict.fromkeys(line for line in lines if line.startswith(_TELLING)))
    chosen = told[-_LINES:] or lines[-1:]
    short = (textwrap.shorten(line, _WIDTH, placeholder=" ...") for line in chosen)
    return " ".join(filter(None, (first, "; ".join(short))))
