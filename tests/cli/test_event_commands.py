"""`sunspot events` and `sunspot evict`, without Ray: what they print, and what they refuse."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from cli_runs import failed, run
from local_stacks import WORKERS, stack, write
from waiting import wait_for

from sunspot.cli import event_commands
from sunspot.errors import NotUpError
from sunspot.node.events import Event
from sunspot.node.processes import Process
from sunspot.targets.clusters import Cluster
from sunspot.targets.history import Recorded
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import not_up
from sunspot.targets.ssh import UnreachableError

DEADLINE_S = 30.0

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def folder(clusters):
    """A cluster "dev" of a head and two workers, as far as its records say."""
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    for _ in range(2):
        folder.add_node(folder.cluster().shapes["workers"], "by the autoscaler")
    for node in folder.nodes():
        folder.record_process(node.name, Process.current())
    folder.events.path.unlink()
    folder.events.add(Event(kind="joined", group="workers", node="workers-0", time=1.5))
    folder.events.add(Event(kind="scaled", group="workers", reason="to 2 by hand", time=2))
    return folder


# Events


def test_events_are_a_line_each_in_order(folder):
    result = run("events", "dev")
    assert result.exit_code == 0, result.output
    joined, scaled = (line.split() for line in result.stdout.splitlines())
    assert joined[2:] == ["joined", "workers-0", "workers"]
    assert scaled[2:] == ["scaled", "-", "workers", "to", "2", "by", "hand"]


def test_events_as_json_lines_have_their_time_in_utc(folder):
    first, second = map(json.loads, run("events", "--json").stdout.splitlines())
    assert first == {
        "kind": "joined",
        "group": "workers",
        "node": "workers-0",
        "reason": "",
        "time": "1970-01-01T00:00:01.500+00:00",
    }
    assert second["kind"] == "scaled"


def test_a_cluster_of_an_older_version_has_no_events(folder):
    folder.events.path.unlink()
    result = run("events", "dev")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no events of 'dev' yet" in result.stderr


def answer_in_turn(monkeypatch, *answers):
    """Has the record be each of these in turn, without a pause; then the cluster is down."""
    left = iter(answers)

    def answer(_self, name):
        if (found := next(left, None)) is None:
            raise not_up(name)
        return Recorded(events=found)

    monkeypatch.setattr(event_commands, "FOLLOW_POLL_S", 0)
    monkeypatch.setattr(LocalTarget, "recorded", answer)


def test_events_are_followed_until_the_cluster_is_down(folder, monkeypatch):
    lost = Event(kind="lost", group="workers", node="workers-1")
    first = folder.events.read()
    answer_in_turn(monkeypatch, first, first, [*first, lost], [*first, lost])
    result = run("events", "dev", "-f")
    assert result.exit_code == 0, result.output
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["joined", "scaled", "lost"]
    assert "'dev' was taken down" in result.stderr


def test_events_are_followed_while_a_head_adds_up_the_old_ones(folder, monkeypatch):
    first = folder.events.read()
    sums = {"joined": 1.0, "scaled": 1.0, "hours": 0.5}
    earlier = Event(kind="earlier", group="workers", time=2, earlier=sums)
    lost = Event(kind="lost", group="workers", node="workers-1")
    answer_in_turn(monkeypatch, first, [earlier], [earlier, lost], [earlier, lost])
    result = run("events", "dev", "-f")
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["joined", "scaled", "lost"]


def test_a_head_that_does_not_answer_for_a_while_is_asked_again(folder, monkeypatch):
    found = Recorded(events=folder.events.read())
    away = UnreachableError("no SSH to the head: it restarts")
    answers = iter([found, away, away, found])

    def answer(_self, name):
        answered = next(answers, None) or not_up(name)
        if isinstance(answered, Exception):
            raise answered
        return answered

    monkeypatch.setattr(event_commands, "FOLLOW_POLL_S", 0)
    monkeypatch.setattr(LocalTarget, "recorded", answer)
    result = run("events", "dev", "-f")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.count("it restarts") == 1


def test_a_cluster_that_was_taken_down_has_no_events(folder):
    target = LocalTarget(folder.path.parent)
    assert len(target.recorded("dev").events) == 2
    shutil.rmtree(folder.path)
    with pytest.raises(NotUpError):
        target.recorded("dev")


def test_ctrl_c_ends_the_following_with_one_line(folder):
    command = [str(Path(sys.executable).with_name("sunspot")), "events", "dev", "--follow"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as following:
        assert following.stdout is not None
        following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=DEADLINE_S)
    assert following.returncode == 130
    assert errors.splitlines() == ["error: interrupted"]
    assert folder.exists()


class Bare:
    """A target with nothing but a name."""

    name = "bare"


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("events", "dev"), "a record of what happened to its nodes"),
        (("evict", "dev", "workers-0"), "rehearsing an eviction"),
    ],
)
def test_a_target_without_the_ability_says_so(monkeypatch, command, what):
    found = Cluster(Bare(), "dev")  # type: ignore[arg-type]
    monkeypatch.setattr(event_commands.clusters, "find", lambda *_: found)
    assert f"target 'bare' does not support {what}" in failed(2, *command)


# Evict


@pytest.mark.parametrize("notice", ["0", "-1", "nan", "inf", "3601"])
def test_a_notice_that_cannot_be_is_refused(folder, notice):
    told = failed(2, "evict", "dev", "workers-0", f"--notice={notice}")
    assert f"--notice {float(notice):g}" in told
    assert "at most 3600 seconds" in told
    assert "evicted" not in folder.events.kinds("workers-0")


def test_an_unknown_node_is_refused_with_those_that_exist(folder):
    told = failed(2, "evict", "dev", "workers-9")
    assert "has no node 'workers-9'; it has: head, workers-0, workers-1" in told


def test_the_head_is_refused_with_the_workers(folder):
    told = failed(2, "evict", "dev", "head")
    assert "'head' is the head of 'dev'" in told
    assert "workers-0, workers-1" in told


def test_a_worker_that_is_lost_is_refused(folder):
    folder.record_process("workers-0", Process(pid=os.getpid(), start_time=1.0))
    assert "'workers-0' of 'dev' is not up but lost" in failed(2, "evict", "dev", "workers-0")


def test_a_worker_that_leaves_already_is_refused(folder):
    folder.events.add(Event(kind="evicted", group="workers", node="workers-0"))
    assert "'workers-0' of 'dev' is leaving already" in failed(2, "evict", "dev", "workers-0")


def test_a_cluster_that_is_not_up_has_nothing_to_evict_and_no_events(folder):
    assert "stack 'prod' is not up (up: dev)" in failed(1, "evict", "prod", "workers-0")
    assert "stack 'prod' is not up (up: dev)" in failed(1, "events", "prod")


def worker(folder, name):
    """A process in the place of a worker, in a session of its own."""
    program = [sys.executable, "-c", "import signal; signal.pause()"]
    process = subprocess.Popen(program, start_new_session=True)
    folder.record_process(name, Process.of(process.pid))
    return process


@pytest.fixture
def watched(folder, monkeypatch):
    """Runs what `ends` is given instead of the watcher."""
    folder.token.write_text("t")

    def ends(how):
        from sunspot.targets.local import evicting

        monkeypatch.setattr(evicting.subprocess, "run", how)

    return ends


def test_an_interrupt_ends_the_node_at_once_and_says_so(folder, watched):
    process = worker(folder, "workers-0")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    watched(interrupted)
    told = failed(130, "evict", "dev", "workers-0")
    assert "interrupted" in told
    assert "workers-0 was stopped at once" in told
    process.wait(DEADLINE_S)  # raises if it has not ended
    assert [node.goal for node in folder.nodes()] == ["up", "down", "up"]
    assert folder.events.kinds("workers-0") == {"joined", "evicted"}


def test_a_watcher_that_was_ended_is_an_error(folder, watched):
    watched(lambda *_, **__: subprocess.CompletedProcess([], -9))
    told = failed(1, "evict", "dev", "workers-0")
    assert "the eviction of 'workers-0' was ended before its time" in told
    assert "sunspot status dev" in told


def test_it_says_how_the_node_left_and_where_to_look(folder, watched):
    def leaves(*_, **__):
        reason = "left 3 s after the notice"
        folder.events.add(Event(kind="drained", group="workers", node="workers-0", reason=reason))
        return subprocess.CompletedProcess([], 0)

    watched(leaves)
    result = run("evict", "dev", "workers-0")
    assert result.exit_code == 0, result.output
    assert result.stdout == "workers-0 left 3 s after the notice\n"
    assert "sunspot events dev -f" in result.stderr


def test_down_finds_the_watcher_of_an_eviction(folder, watched):
    """It is started with the cluster's mark, and is not taken for a part of the node."""
    started = {}

    def noted(command, *, env, **_):
        started.update(command=command, env=env)
        return subprocess.CompletedProcess([], 0)

    watched(noted)
    assert run("evict", "dev", "workers-0", "--notice=7").exit_code == 0
    assert started["command"][-3:] == [str(folder.path), "workers-0", "--notice=7.0"]
    program = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(program, env=started["env"], start_new_session=True) as process:
        try:
            found = psutil.Process(process.pid)
            wait_for("the mark", lambda: found in folder.processes(sessions=()))
            assert found not in folder.processes("workers-0", sessions=())
        finally:
            process.kill()
