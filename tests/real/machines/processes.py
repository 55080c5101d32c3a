"""The programs and servers that a test runs."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from waiting import wait_for

from machines.needs import SYSTEM_PATH

# How long a state may take to come about. Generous: the machine may be busy.
DEADLINE_S = 600.0
STOP_S = 60.0


class StepError(AssertionError):
    """A program failed; the message has its output."""


def environment(**extra: str) -> dict[str, str]:
    """Little more than a PATH: nothing of the caller's steers what is tested, but its pace."""
    own = {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8"}
    return {**own, **kept_settings("GOGC"), **extra}


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
        wait_for(f"{command[0]}, see {log}", up, DEADLINE_S)
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
