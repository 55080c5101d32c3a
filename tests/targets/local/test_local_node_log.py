"""`sunspot logs --node` on this machine: real files and processes, no Ray."""

import io
import os
import subprocess
import sys
import threading

import psutil
import pytest
from local_stacks import WORKERS, stack, write
from typer.testing import CliRunner
from waiting import wait_for

from sunspot.cli.app import app
from sunspot.errors import UsageError
from sunspot.node.processes import Process
from sunspot.targets.local import node_log as local_node_log
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

DEADLINE_S = 30.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cluster "dev" of a head and a worker, as far as its records say."""
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
    clusters = LocalTarget(tmp_path / "state" / "clusters").clusters
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    folder.add_node(folder.cluster().shapes["workers"])
    folder.record_process("head", Process.current())
    folder.log("head").write_text("\x1b[36mone\x1b[0m\nRay runtime started.")
    return folder


def run(*arguments):
    return CliRunner().invoke(app, ["logs", *arguments])


def test_the_log_of_a_node_without_colours_and_where_it_lies(folder):
    result = run("--node", "head")
    assert (result.exit_code, result.stdout) == (0, "one\nRay runtime started.")
    assert str(folder.log("head")) in result.stderr
    assert "Ray's own logs" not in result.stderr  # there are none


def test_where_rays_own_logs_lie(folder):
    logs = folder.temp_dir / "0" / "session_latest" / "logs"
    logs.mkdir(parents=True)
    try:
        assert f"of all nodes of this cluster: {logs}" in run("--node", "head").stderr
    finally:
        for path in (logs, *logs.parents):
            if path == folder.temp_dir.parent:
                break
            path.rmdir()


def test_an_unknown_node_lists_those_that_there_are(folder):
    for name in ("workers-9", "../cluster", ""):
        result = run("--node", name)
        assert result.exit_code == 2
        assert f"no node {name!r}; it has: head, workers-0" in result.stderr


def test_a_node_that_has_printed_nothing_yet(folder):
    result = run("--node", "workers-0")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "workers-0 has printed nothing yet" in result.stderr


def test_nodes_that_are_lost_or_never_came_up_and_a_dead_head(folder):
    gone = Process(pid=os.getpid(), start_time=1.0)
    folder.log("workers-0").write_text("cannot join\n")
    for name in ("head", "workers-0"):
        folder.record_process(name, gone)
    assert run("--node", "workers-0").stdout == "cannot join\n"
    assert run("--node", "workers-0", "-f").stdout == "cannot join\n"
    assert "started" in run("--node", "head").stdout


def test_broken_records_hide_no_log(folder):
    for file in ("cluster.json", "nodes/head.json", "nodes/head.pid"):
        (folder.path / file).write_text("{")
    assert "started" in run("--node", "head").stdout
    result = run("--node", "head", "-f")
    assert result.exit_code == 1
    assert "sunspot down dev" in result.stderr


@pytest.fixture
def sleeper(folder):
    """A process that stands in for the worker's, until the test ends it."""
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(command) as process:
        started = psutil.Process(process.pid).create_time()
        folder.record_process("workers-0", Process(pid=process.pid, start_time=started))
        yield process
        process.kill()


class Screen(io.StringIO):
    """Lets a test wait until something was printed."""

    def wait_for(self, text):
        wait_for(repr(text), lambda: text in self.getvalue(), DEADLINE_S, seen=self.getvalue)


def followed(folder, out):
    arguments = (folder, "workers-0", out, lambda _: None)
    thread = threading.Thread(
        target=local_node_log.show, args=arguments, kwargs={"follow": True}, daemon=True
    )
    thread.start()
    return thread


def test_a_log_is_followed_until_its_node_ends(folder, sleeper):
    log, out = folder.log("workers-0"), Screen()
    thread = followed(folder, out)
    log.write_text("one\n")
    out.wait_for("one\n")
    with log.open("ab") as file:
        file.write(b"\x1b[3")
        file.flush()
        file.write(b"6mtwo\n\xc3")
        file.flush()
        out.wait_for("two\n")
        file.write(b"\xa4 the end")
    sleeper.kill()
    sleeper.wait()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert out.getvalue() == "one\ntwo\nä the end"


def test_a_log_is_followed_until_its_cluster_is_taken_away(folder):
    out = Screen()
    folder.log("workers-0").write_text("one\n")
    thread = followed(folder, out)  # the worker's process has not started yet
    out.wait_for("one\n")
    for file in (folder.path / "nodes").iterdir():
        file.unlink()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_a_node_of_no_cluster(folder):
    with pytest.raises(UsageError, match="it has: none"):
        local_node_log.show(type(folder)(folder.path.parent / "moon"), "head", io.StringIO(), print)
