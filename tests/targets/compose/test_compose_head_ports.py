"""A port of the head's container: a `docker exec` for each connection, and none when it ends."""

import shutil
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress

import psutil
import pytest
from ending import words_of
from job_api import serving
from waiting import wait_for

from sunspot.errors import SunspotError, UsageError
from sunspot.node.free_ports import free_port
from sunspot.node.processes import is_alive
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.head_ports import HeadPorts

# The container is this machine; it runs as long as there is the file.
DOCKER = """
case "$1" in
  exec) shift 3; exec "$@" ;;
  wait) while [ -e "$2" ]; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def head(tools, tmp_path):
    tools.add("docker", DOCKER)
    (tools.folder / "python").symlink_to(sys.executable)
    sleep = shutil.which("sleep", path="/bin:/usr/bin")
    assert sleep is not None
    (tools.folder / "sleep").symlink_to(sleep)
    container = tmp_path / "container"
    container.touch()
    return HeadPorts(Engine(""), str(container))


@pytest.fixture
def echo():
    """A server that answers with what it was sent, once the client has sent all."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    received = b"".join(iter(lambda c=connection: c.recv(65536), b""))
                    connection.sendall(received[::-1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _passes(process):
    words = words_of(process)
    return "-c" in words and "create_connection" in " ".join(words)


def test_a_port_of_the_container_answers_here_and_nothing_is_left(head):
    with serving() as (_, port), head.lead("host", port, None) as found:
        assert found.port != port
        with closing(socket.create_connection(("127.0.0.1", found.port), timeout=30)) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert client.recv(4) == b"HTTP"
        assert found.is_open()
    assert not [one for one in psutil.Process().children() if is_alive(one) and _passes(one)]


def test_each_end_of_a_connection_closes_for_itself(head, echo):
    sent = bytes(range(256)) * 4096
    with head.lead("host", echo, None) as found:
        for _ in range(2):
            with closing(socket.create_connection(("127.0.0.1", found.port), 30)) as client:
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                received = b"".join(iter(lambda c=client: c.recv(65536), b""))
            assert received == sent[::-1]


def test_the_port_here_is_the_one_that_was_asked_for(head, echo):
    wanted = free_port({echo})
    with head.lead("host", echo, wanted) as found:
        assert found.port == wanted


def test_ports_that_cannot_be_had_are_refused(head, echo):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        silent = bound.getsockname()[1]
        with (
            pytest.raises(UsageError, match=f"nothing listens on port {silent} of the head"),
            head.lead("host", silent, None),
        ):
            pass
        with (
            pytest.raises(UsageError, match=f"port {silent} of this machine is taken"),
            head.lead("host", echo, silent),
        ):
            pass


def test_what_docker_says_is_told(head, echo, tools):
    tools.add("docker", "echo 'Error response from daemon: container is paused' >&2; exit 1")
    with pytest.raises(SunspotError, match="container is paused"), head.lead("host", echo, None):
        pass


def test_a_container_that_stops_ends_it(head, echo, tmp_path):
    with head.lead("host", echo, None) as found:
        (tmp_path / "container").unlink()
        wait_for("the way to have ended", lambda: not found.is_open())


FORWARDS = """
import sys, time
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.head_ports import HeadPorts
with HeadPorts(Engine(""), sys.argv[1]).lead("host", int(sys.argv[2]), None) as found:
    print(found.port, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent")
def test_the_way_ends_with_a_command_that_is_killed(head, echo):
    command = [sys.executable, "-c", FORWARDS, head.container, str(echo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            port = int(forward.stdout.readline())
            with closing(socket.create_connection(("127.0.0.1", port), timeout=30)):
                below = wait_for("both processes", lambda: _below(forward.pid, 2))
                forward.kill()
                wait_for("them to end", lambda: not any(map(is_alive, below)))
        finally:
            forward.kill()


def _below(pid, count):
    """The processes below one, if there are so many without the stand-in's `sleep`."""
    found = psutil.Process(pid).children(recursive=True)
    return found if len([one for one in found if _lasts(one)]) >= count else None


def _lasts(process):
    with suppress(psutil.Error):  # it has ended meanwhile
        return is_alive(process) and process.name() != "sleep"
    return False
