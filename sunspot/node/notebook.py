"""JupyterLab beside a head's Ray, for as long as somebody holds this program's stdin open.

It runs where Ray does, in the head's container for instance, as `python -c` with this text: nothing
of ours has to be there. Its first line of input is JSON:

    {"token": "...", "requirements": "...", "arguments": [...]}

so that the token is in no command line. What it prints are lines of JSON, one for each step, and
at last the port, or what is wrong. JupyterLab comes from the environment that Ray is in, or from
one of its own that sees Ray's packages: the requirements are installed there once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 20.0
POLL_S = 0.1
SHOWN_LINES = 5

# Ray's own folder, which outlives the container (cloud_init/files: ray.sh); made if need be.
NOTEBOOKS = Path("/tmp/ray/notebooks")  # noqa: S108
VARIABLE = "SUNSPOT_NOTEBOOKS"
"""Names another folder."""

# Otherwise every user of the machine reads, on a kernel's ports, what its cells are and print.
# A kernel that cannot do it runs as before (jupyter_client's manager.py, 8.10).
ENCRYPTED = "--KernelManager.transport_encryption=auto"


def main() -> None:
    """Runs JupyterLab until stdin ends or JupyterLab does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that JupyterLab is ended, too
    asked = json.loads(sys.stdin.readline())
    folder = Path(os.environ.get(VARIABLE, NOTEBOOKS))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    python = interpreter(asked["requirements"])
    port = _free_port()
    log = folder / f".jupyterlab-{port}.log"
    log.unlink(missing_ok=True)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        server = subprocess.Popen(
            command(python, port, asked["arguments"]),
            cwd=folder,
            env=os.environ | {"JUPYTER_TOKEN": asked["token"], "RAY_ADDRESS": _address()},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        _wait_until_it_listens(server, port, log)
        _tell(port=port, folder=str(folder))
        while server.poll() is None and not _stdin_ended():
            pass
        if server.poll():
            _fail("JupyterLab has failed", log.read_text(errors="replace"))
    finally:
        _end(server)
        log.unlink(missing_ok=True)


def interpreter(requirements: str) -> str:
    """The Python that has both Ray and JupyterLab; installs JupyterLab if none has it."""
    if importlib.util.find_spec("jupyterlab") is not None:
        return sys.executable
    # Other requirements are another folder, so that one that is half made is never taken.
    digest = hashlib.sha256(requirements.encode()).hexdigest()[:12]
    home = Path.home() / ".cache" / "sunspot" / f"jupyterlab-{digest}"
    python, ready = home / "bin" / "python", home / ".ready"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _install(home, python, requirements)
            ready.touch()
    return str(python)


def _install(home: Path, python: Path, requirements: str) -> None:
    _tell(step="installing JupyterLab on the head, once for each container of it")
    listed = home / "requirements.txt"
    listed.write_text(requirements)
    _run("make an environment", sys.executable, "-m", "venv", "--system-site-packages", home)
    # Where Ray is in an environment itself, that is not one of the system's packages.
    (site,) = home.glob("lib/python*/site-packages")
    beside = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    (site / "beside_ray.pth").write_text("".join(f"{path}\n" for path in sorted(beside)))
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    # The list is whole with what Ray's image has, and leaves out what only rare formats need.
    _run("install JupyterLab", *pip, "--require-hashes", "--no-deps", "--requirement", listed)


def command(python: str, port: int, arguments: Sequence[str]) -> list[str]:
    """What starts JupyterLab on the loopback address."""
    # -P of Python 3.11: a random.py among somebody's notebooks is no module of JupyterLab's.
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    server = [python, *safe, "-m", "jupyterlab", "--no-browser"]
    server += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    server.append(ENCRYPTED)
    if os.geteuid() == 0:  # the image's own user
        server.append("--allow-root")
    return [*server, *arguments]


def _address() -> str:
    return os.environ.get("RAY_ADDRESS") or "auto"


def _run(what: str, *words: object) -> None:
    done = subprocess.run(
        list(map(str, words)),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        _fail(f"cannot {what} on the head", done.stdout)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_it_listens(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", port)):
            if server.poll() is not None or time.monotonic() > deadline:
                _fail("JupyterLab did not start", log.read_text(errors="replace"))
            if _stdin_ended():
                sys.exit(0)


def _stdin_ended() -> bool:
    """Whether whoever started this has gone; looks for POLL_S."""
    readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1024)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ends JupyterLab, which ends its kernels."""
    if server.poll() is None:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def _fail(what: str, printed: str) -> NoReturn:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    _tell(error="; ".join([what, *lines[-SHOWN_LINES:]]))
    sys.exit(1)


if __name__ == "__main__":
    main()
