"""Following real jobs: through a connection that breaks, and where Ray cannot read the log."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from harness import Sunspot
from sunspot_command import DEADLINE_S, fresh
from waiting import wait_for

from sunspot.ray.feasibility import Request
from sunspot.ray.following import follow
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.jobs import JobClient

LINES = 60

# Ray's own line comes late on a busy machine, and then in the middle of ours (2.60).
AFTER_RAYS_LINE = """
import os, sys, time
while b"entrypoint" not in open(os.readlink("/proc/self/fd/1"), "rb").read():
    time.sleep(0.05)
"""

# Numbered lines for some seconds, flushed also in the middle of a line and of a letter; the last of
# them only once a file is there, whose path is its argument.
COUNTING = f"""{AFTER_RAYS_LINE}
for number in range({LINES}):
    while number == 40 and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    for piece in (b"line ", b"%d gr\\xc3" % number, b"\\xbc\\xc3\\x9f\\n"):
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        time.sleep(0.05)
sys.exit(5)
"""

LATIN_1 = f"""{AFTER_RAYS_LINE}
sys.stdout.buffer.write(b"gr\\xfc\\xdfe\\r\\n")
sys.stdout.flush()
time.sleep(2)
print("größe")
sys.exit(int(sys.argv[1]))
"""


class Proxy:
    """A TCP port that leads to another one, unless it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._connections: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.port = 0

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuses connections, and breaks those that there are."""
        if self._listener:
            _break(self._listener)
        for connection in self._connections:
            _break(connection)
        self._connections.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._connections += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=ends, daemon=True).start()


def _copy(source: socket.socket, destination: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            destination.sendall(data)
    _break(destination)


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@pytest.fixture
def proxy(cluster: ClusterHandle) -> Iterator[Proxy]:
    made = Proxy(int(cluster.job_address.rpartition(":")[2]))
    made.open()
    yield made
    made.cut()


@pytest.mark.parametrize("until", ["it goes on", "it has ended"])
def test_a_job_is_followed_through_a_connection_that_breaks(
    sunspot: Sunspot, cluster: ClusterHandle, proxy: Proxy, until: str, tmp_path: Path
):
    direct = JobClient(cluster)
    far = JobClient(replace(cluster, job_address=f"http://127.0.0.1:{proxy.port}"))
    out, told, go_on = io.StringIO(), [], tmp_path / "go-on"
    command = ["python", "-c", COUNTING, str(go_on)]
    job_id = far.submit(command, request=Request(), runtime_env={})
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as at_the_end:
        at_the_end.callback(go_on.touch)  # the following ends only with the job
        following = pool.submit(follow, far, job_id, out, told.append)
        wait_for("the first lines", lambda: "line 5 " in out.getvalue())
        proxy.cut()
        wait_for("the loss", lambda: of_the_connection(told))
        seen = out.getvalue()
        if until == "it goes on":
            wait_for("more lines", lambda: "line 30 " in direct.logs(job_id))
        else:
            go_on.touch()
            wait_for("the end", lambda: direct.get(job_id).has_ended)
        assert out.getvalue() == seen
        proxy.open()
        if until == "it goes on":
            wait_for("the same lines here", lambda: "line 30 " in out.getvalue())
        go_on.touch()
        job = following.result(timeout=DEADLINE_S)
    assert (job.status, job.exit_code) == ("FAILED", 5)
    own = [line for line in out.getvalue().splitlines() if line.startswith("line ")]
    assert own == [f"line {number} grüß" for number in range(LINES)]
    assert out.getvalue() == direct.logs(job_id)
    assert len(of_the_connection(told)) == 2, told


def of_the_connection(told: list[str]) -> list[str]:
    """On a busy machine it is also told that the job waits."""
    return [line for line in told if "connect" in line]


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_that_prints_what_is_not_utf_8(sunspot: Sunspot, cluster: ClusterHandle, code: int):
    name = fresh(f"latin-1-{code}")
    done = sunspot("submit", "--name", name, "--", "python", "-c", LATIN_1, str(code))
    assert done.returncode == code, done.stderr
    assert done.stdout.endswith("gr\ufffd\ufffde\ngröße\n")
    assert sunspot.ok("logs", name) == done.stdout
