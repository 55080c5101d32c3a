"""JupyterLab on a head, reached through SSH: for targets whose head is another machine."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sunspot.errors import SunspotError
from sunspot.node import notebook as on_head
from sunspot.targets import forwarding
from sunspot.targets.forwarding import Forward
from sunspot.targets.protocol import Progress
from sunspot.targets.ssh import Ssh, no_program

# How long the head may need to end JupyterLab and its kernels.
END_TIMEOUT_S = on_head.END_TIMEOUT_S + 10.0

SSH_FAILED = 255  # ssh(1), EXIT STATUS

_PACKAGED = Path(__file__).with_name("jupyter.txt")  # in a wheel
_IN_PROJECT = Path(__file__).parents[2] / "docker" / "requirements" / "jupyter.txt"


@dataclass(frozen=True, kw_only=True)
class HeadNotebook:
    """JupyterLab on a head.

    Attributes:
        url: its address here, with the token.
        folder: where its notebooks lie on the head.
        is_open: whether it still runs; a SunspotError says that it has failed, or that the way to
            it has ended.
    """

    url: str
    folder: str
    is_open: Callable[[], bool]


@runtime_checkable
class HeadNotebooks(Protocol):
    """The head, and not this machine, runs JupyterLab."""

    def notebook(
        self, name: str, arguments: Sequence[str], progress: Progress
    ) -> AbstractContextManager[HeadNotebook]:
        """JupyterLab on a cluster's head while the block lasts.

        Args:
            name: the stack's name.
            arguments: what JupyterLab gets besides.
            progress: called with a line for each thing that is waited for.

        Raises:
            SunspotError: it cannot be installed or started there, or the head not be reached.
        """
        ...


def requirements() -> str:
    """JupyterLab's packages, pinned, without those that Ray's image has."""
    file = _PACKAGED if _PACKAGED.exists() else _IN_PROJECT
    return file.read_text()


@contextlib.contextmanager
def through(
    to: Ssh, name: str, python: Sequence[str], arguments: Sequence[str], progress: Progress
) -> Iterator[HeadNotebook]:
    """JupyterLab on a head that SSH reaches, while the block lasts.

    Args:
        to: the way to the head.
        name: the stack's name.
        python: the command there that runs the Python that has Ray, with its stdin.
        arguments: what JupyterLab gets besides.
        progress: called with each step.

    Raises:
        SunspotError: it cannot be installed or started there, or the head not be reached.
    """
    token = secrets.token_hex(24)
    code = Path(on_head.__file__).read_text()
    line = shlex.join([*python, "-c", code])
    asked = {"token": token, "requirements": requirements(), "arguments": list(arguments)}
    try:
        session = subprocess.Popen(
            to.arguments(remote=[line]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C ends JupyterLab in order, by the end of its input
        )
    except FileNotFoundError:
        raise no_program(to.command[0]) from None
    with session:
        try:
            started = _started(session, asked, to, progress)
            with forwarding.through(to, name, started["port"], None) as way:
                yield HeadNotebook(
                    url=f"http://127.0.0.1:{way.port}/lab?token={token}",
                    folder=started["folder"],
                    is_open=lambda: _is_open(session, way, to),
                )
        finally:
            _end(session)


def _started(
    session: subprocess.Popen[str], asked: dict[str, Any], to: Ssh, progress: Progress
) -> dict[str, Any]:
    """What the program on the head says when JupyterLab listens."""
    assert session.stdin is not None  # noqa: S101 - pipes, as asked for
    assert session.stdout is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):  # its end says why
        session.stdin.write(json.dumps(asked) + "\n")
        session.stdin.flush()
    progress("starting JupyterLab on the head")
    while text := session.stdout.readline():
        said = _parsed(text)
        if "error" in said:
            raise SunspotError(said["error"])
        if "port" in said:
            return said
        if "step" in said:
            progress(said["step"])
    raise _failure(session, to)


def _failure(session: subprocess.Popen[str], to: Ssh) -> SunspotError:
    """What went wrong, of a session that has ended or is about to."""
    printed, errors = session.communicate()
    if session.returncode == SSH_FAILED:
        return to.failure(errors)
    said = [one["error"] for one in map(_parsed, printed.splitlines()) if "error" in one]
    last = [one.strip() for one in errors.splitlines() if one.strip()][-2:]
    what = "; ".join(said or last) or "it said nothing"
    return SunspotError(
        f"JupyterLab does not run on {to.called}: {what}. To see whether Ray runs there: sunspot "
        "status"
    )


def _parsed(text: str) -> dict[str, Any]:
    """The fields of a line; none if it is something that a login shell prints."""
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    return {}


def _is_open(session: subprocess.Popen[str], way: Forward, to: Ssh) -> bool:
    code = session.poll()
    if code:
        raise _failure(session, to)
    if code is None and way.is_open is not None and not way.is_open():
        raise SunspotError(
            f"the connection to {to.called} has ended, and JupyterLab there ends with it; its "
            "notebooks stay. Start again: sunspot notebook"
        )
    return code is None


def _end(session: subprocess.Popen[str]) -> None:
    """Ends JupyterLab by the end of its input, and SSH if that takes too long."""
    assert session.stdin is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):
        session.stdin.close()
    try:
        session.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        session.kill()
