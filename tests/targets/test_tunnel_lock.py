"""Commands that open and close the same tunnel at the same moment."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import locked
from sunspot.node.free_ports import free_port
from sunspot.targets import tunnel as tunnels
from sunspot.targets.ssh import UnreachableError
from sunspot.targets.tunnel import Tunnel

LISTENER = """
import os, signal, socket, sys, time
folder, after, *ports = sys.argv[1:]
open(f"{folder}/{os.getpid()}", "w").close()
time.sleep(float(after))
kept = [socket.create_server(("127.0.0.1", int(port))) for port in ports]
signal.pause()
"""


@dataclass(frozen=True)
class Listener:
    """A way whose program listens after a while, and leaves a file where it began."""

    folder: Path
    after_s: float = 0.0
    command: tuple[str, ...] = ("listener",)

    def leading(self, forwards: Sequence[tuple[int, int]], host: str) -> list[str]:  # noqa: ARG002
        ports = [str(local) for _, local in forwards]
        return [sys.executable, "-c", LISTENER, str(self.folder), str(self.after_s), *ports]

    def failure(self, text: str) -> SunspotError:
        return SunspotError(f"the listener ended: {text}")

    def began(self) -> list[int]:
        return [int(file.name) for file in self.folder.iterdir()]


@pytest.fixture
def tunnel(tmp_path):
    tunnel = Tunnel(tmp_path / "state" / "mine")
    tunnel.folder.mkdir(parents=True)
    yield tunnel
    tunnel.close()


@pytest.fixture
def listener(tmp_path):
    """Makes a way; what is left of it ends with the test."""
    folder = tmp_path / "began"
    folder.mkdir()
    yield lambda after_s=0.0: Listener(folder, after_s)
    for pid in Listener(folder).began():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def others():
    with ThreadPoolExecutor() as pool:
        yield pool


@contextlib.contextmanager
def held(tunnel):
    """The lock, as a command has it that was stopped while it opened the tunnel."""
    with locked(tunnel.folder.parent / ".mine.tunnel-lock"):
        yield


def left(tunnel):
    return sorted(file.name for file in tunnel.folder.parent.iterdir())


def test_two_commands_at_once_open_one_tunnel(tunnel, listener, others):
    way, start, port = listener(after_s=1.0), threading.Barrier(2), free_port(set())

    def open_it():
        start.wait()
        return tunnel.open(way, port)

    found = [others.submit(open_it) for _ in range(2)]
    assert [one.result() for one in found] == [port, port]
    assert len(way.began()) == 1
    assert left(tunnel) == ["mine"]


def test_a_tunnel_that_is_slow_to_open_is_waited_for(tunnel, listener, others):
    way, port = listener(after_s=6.0), free_port(set())
    first = others.submit(tunnel.open, way, port)
    wait_for("its beginning", way.began)
    assert tunnel.open(way, port) == first.result() == port
    assert len(way.began()) == 1


def test_closing_ends_a_tunnel_that_is_being_opened(tunnel, listener, others):
    way = listener(after_s=60.0)
    opening = others.submit(tunnel.open, way, free_port(set()))
    wait_for("its record", lambda: (tunnel.folder / "tunnel.json").exists())
    began = time.monotonic()
    tunnel.close()
    assert time.monotonic() - began < tunnels.OPEN_TIMEOUT_S / 2
    with pytest.raises(SunspotError, match="the listener ended"):
        opening.result()
    assert not any(map(psutil.pid_exists, way.began()))
    assert not (tunnel.folder / "tunnel.json").exists()
    assert left(tunnel) == ["mine"]


def test_closing_waits_only_a_moment_for_a_command_that_was_stopped(tunnel, listener, monkeypatch):
    monkeypatch.setattr(tunnels, "CLOSE_TIMEOUT_S", 0.2)
    way = listener()
    tunnel.open(way, free_port(set()))
    with held(tunnel):
        tunnel.close()
    assert not any(map(psutil.pid_exists, way.began()))
    assert tunnel.port() is None


def test_a_command_that_was_stopped_is_waited_for_in_vain(tunnel, listener, monkeypatch):
    monkeypatch.setattr(tunnels, "OTHERS_TIMEOUT_S", 0.2)
    with held(tunnel), pytest.raises(UnreachableError, match="another command has been opening"):
        tunnel.open(listener(), free_port(set()))


def test_ctrl_c_ends_the_wait_for_another_command(tunnel, listener):
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with held(tunnel):
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            tunnel.open(listener(), free_port(set()))
    assert listener().began() == []


def test_a_cluster_that_was_taken_down_meanwhile_gets_no_tunnel(tunnel, listener, others):
    with tunnel.closed():
        opening = others.submit(tunnel.open, listener(), free_port(set()))
        time.sleep(4 * tunnels.POLL_S)
        assert not opening.done()
        shutil.rmtree(tunnel.folder)
    with pytest.raises(SunspotError, match="another command took the cluster down"):
        opening.result()
    assert listener().began() == []
    assert left(tunnel) == []


def test_a_folder_that_goes_while_the_tunnel_opens_does_not_come_back(tunnel, listener, others):
    opening = others.submit(tunnel.open, listener(after_s=60.0), free_port(set()))
    wait_for("its record", lambda: (tunnel.folder / "tunnel.json").exists())
    (process,) = wait_for("its beginning", listener().began)
    shutil.rmtree(tunnel.folder)
    os.kill(process, signal.SIGTERM)
    with pytest.raises(SunspotError, match="another command took the cluster down"):
        opening.result()
    assert left(tunnel) == []


def test_closing_what_is_not_there_makes_nothing(tmp_path):
    Tunnel(tmp_path / "state" / "mine").close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_does_not_stop_closing(tunnel, listener, monkeypatch):
    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    tunnel.open(listener(), free_port(set()))
    monkeypatch.setattr(tunnels, "locked", full)
    tunnel.close()
    assert not any(map(psutil.pid_exists, listener().began()))


def test_a_live_tunnel_is_used_where_nothing_can_be_written(tunnel, listener, monkeypatch):
    def read_only(*_, **__):
        raise OSError(30, os.strerror(30))

    remote = free_port(set())
    port = tunnel.open(listener(), remote)
    monkeypatch.setattr(tunnels, "locked", read_only)
    assert tunnel.open(listener(), remote) == port
    with pytest.raises(UsageError, match=r"cannot write the cluster's state in .*Read-only"):
        tunnel.open(listener(), remote, also=[1])


def test_the_further_ports_of_a_tunnel_that_has_ended_are_told(tunnel, listener):
    port, other = free_port(set()), free_port(set())
    tunnel.open(listener(), port, also=[other])
    assert tunnel.local([other]) == tunnel.also()
    tunnel.close()
    with pytest.raises(SunspotError, match="has ended just now: try again"):
        tunnel.local([other])


def test_a_further_port_that_another_process_has_is_not_the_tunnels(tunnel, listener):
    """The record is written before the ports are open, and the token goes to these too."""
    tunnel.open(listener(), free_port(set()), also=[1])
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        record = json.loads((tunnel.folder / "tunnel.json").read_text())
        record["also"] = [[1, theirs.getsockname()[1]]]
        (tunnel.folder / "tunnel.json").write_text(json.dumps(record))
        assert tunnel.also() == {}
        assert tunnel.port() is None
