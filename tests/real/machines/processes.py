"""Servers that a test starts, and waiting for what they come to."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from machines.needs import SYSTEM_PATH

T = TypeVar("T")

# How long a state may take to come about. Generous: the machine may be busy.
DEADLINE_S = 600.0
POLL_INTERVAL_S = 0.2
STOP_S = 60.0


class StepError(AssertionError):
    """A program failed; the message has its output."""


def environment(**extra: str) -> dict[str, str]:
    """Little more than a PATH: nothing of the caller's steers what is tested."""
    return {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8", **extra}


def checked(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float = DEADLINE_S,
) -> str:
    """Runs a command to its end; what it printed. Raises StepError unless it exits with 0."""
    done = subprocess.run(
        [str(part) for part in command],
        env=env or environment(),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    if done.returncode:
        raise StepError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_for(what: str, answer: Callable[[], T | None], seconds: float = DEADLINE_S) -> T:
    """The first answer that is true. Raises StepError naming `what` at the deadline."""
    deadline = time.monotonic() + seconds
    while not (got := answer()):
        if time.monotonic() > deadline:
            raise StepError(f"waited {seconds:g} s in vain for {what}; last answer: {got!r}")
        time.sleep(POLL_INTERVAL_S)
    return got


@contextlib.contextmanager
def server(
    command: Sequence[str | Path],
    log: Path,
    *,
    ready: Callable[[], object],
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is ready; told to stop, waited for and at last killed when the block ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=env or environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def up() -> object:
        if process.poll() is not None:
            tail = log.read_text(errors="replace")[-3000:]
            raise StepError(f"{command[0]} ended with {process.returncode}:\n{tail}")
        return ready()

    try:
        wait_for(f"{command[0]}, see {log}", up)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL after a minute."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def kept_settings(*names: str) -> dict[str, str]:
    """Those of the caller's environment variables that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}
