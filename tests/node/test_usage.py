"""What counts as a use of a cluster, by what Ray's dashboard and the head's processes say."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from azure_model import http_service
from azure_model.http_service import Reply

from sunspot.node import usage
from sunspot.node.usage import Dashboard, Seen, UnseenError, ssh_sessions

NOW = 1_000_000.0


def submission(status, identifier="j", **more):
    return {"type": "SUBMISSION", "status": status, "submission_id": identifier, **more}


def driver(status, **more):
    return {"type": "DRIVER", "status": status, "job_id": "02000000", **more}


def actor(namespace, kind="Counter", name=""):
    return {"ray_namespace": namespace, "class_name": kind, "name": name, "state": "ALIVE"}


SUPERVISOR = actor(usage.SUPERVISORS, "JobSupervisor", "_ray_internal_job_actor_j")


@pytest.mark.parametrize(
    ("jobs", "actors", "uses"),
    [
        ([submission("RUNNING")], [SUPERVISOR], ["job j"]),
        # Of a head before this one: nothing looks after it any more.
        ([submission("RUNNING")], [], []),
        ([submission("PENDING")], [], ["job j"]),
        ([submission("SUCCEEDED"), submission("STOPPED"), submission("FAILED")], [SUPERVISOR], []),
        ([driver("RUNNING")], [], ["driver 02000000"]),
        ([driver("SUCCEEDED")], [], []),
        ([], [actor("mine", name="store")], ["actor store"]),
        ([], [actor("mine")], ["actor Counter"]),
        ([], [actor("serve", "ServeController"), actor("serve", "ProxyActor")], []),
        ([], [actor("serve", "ServeReplica:app:Model")], ["actor ServeReplica:app:Model"]),
        ([], [actor("_dataset_stats_actor"), actor("AutoscalingCoordinator")], []),
    ],
)
def test_what_uses_a_cluster(jobs, actors, uses):
    assert usage.of(jobs, actors, NOW) == Seen(uses=tuple(uses))


def test_the_last_end_of_a_job_is_known():
    jobs = [submission("FAILED", end_time=(NOW - 60) * 1000), driver("SUCCEEDED", end_time=0)]
    assert usage.of(jobs, [], NOW).ended_s == 60
    assert (Seen(uses=("a",), ended_s=3) + Seen(uses=("b",))) == Seen(uses=("a", "b"), ended_s=3)


@pytest.fixture
def served(tmp_path):
    """Answers by path; a dashboard that gives them; what it was asked."""
    answers, asked = {}, []

    def answer(request):
        asked.append(request)
        if request.headers.get("Authorization") != "Bearer secret":
            return Reply(401)
        return answers[request.path]

    (tmp_path / "token").write_text("secret\n")
    with http_service.serving(answer) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield answers, Dashboard(host=host, port=int(port), token=tmp_path / "token"), asked


def actors_answer(*actors):
    return Reply(200, {"result": True, "msg": "", "data": {"result": {"result": [*actors]}}})


def test_the_dashboard_is_asked_with_the_token_for_living_actors_only(served):
    answers, dashboard, asked = served
    answers["/api/jobs/"] = Reply(200, [])
    answers["/api/v0/actors"] = actors_answer(actor("mine", name="store"))
    assert set(dashboard.look().uses) == {"actor store"}
    states = [one.query["filter_values"] for one in asked if one.path == "/api/v0/actors"]
    assert "DEAD" not in states
    assert set(states) == set(usage.LIVING)


@pytest.mark.parametrize("wrong", [Reply(500), Reply(200, {"a": 1}), Reply(200, "<html>")])
def test_an_answer_of_another_shape_is_no_answer(served, wrong):
    answers, dashboard, _ = served
    answers |= {"/api/jobs/": wrong, "/api/v0/actors": actors_answer()}
    with pytest.raises(UnseenError):
        dashboard.look()


def test_a_dashboard_that_is_not_there_is_unseen(tmp_path):
    with pytest.raises(UnseenError):
        Dashboard(host="127.0.0.1", port=1, token=tmp_path / "none").look()
    (tmp_path / "token").write_text("x")
    with pytest.raises(UnseenError):
        Dashboard(host="127.0.0.1", port=1, token=tmp_path / "token").look()


def process(proc, pid, name, parent):
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 0")


def test_shells_and_commands_of_ssh_count_and_a_tunnel_does_not(tmp_path):
    process(tmp_path, 10, "sshd", 1)
    process(tmp_path, 20, "sshd", 10)
    process(tmp_path, 21, "sshd", 20)  # an open connection that forwards ports
    process(tmp_path, 30, "sshd-session", 10)
    process(tmp_path, 40, "bash", 1)
    process(tmp_path, 41, "a) S 21 (b", 40)
    (tmp_path / "50").mkdir()  # it has just ended
    assert ssh_sessions(tmp_path) == Seen(uses=(), ended_s=math.inf)
    process(tmp_path, 60, "bash", 21)
    process(tmp_path, 61, "rsync", 30)
    assert len(ssh_sessions(tmp_path).uses) == 2


def test_the_names_of_real_processes_are_read(tmp_path):
    """A process of the name of OpenSSH's server, and what it starts."""
    server = tmp_path / "sshd"
    server.symlink_to(sys.executable)
    script = (
        "import subprocess, sys;"
        "child = subprocess.Popen([sys.argv[1], '-c', 'input()'], stdin=subprocess.PIPE);"
        "print(child.pid, flush=True); input(); child.communicate(b'.')"
    )
    command = [str(server), "-c", script, str(Path(sys.executable))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one:
        assert one.stdout is not None
        assert int(one.stdout.readline())
        assert len(ssh_sessions().uses) >= 1
        one.communicate("\n")


def test_sessions_are_told_through_a_file_that_must_be_fresh(tmp_path, monkeypatch):
    file = tmp_path / "ssh"
    with pytest.raises(UnseenError):
        usage.told_sessions(file)
    monkeypatch.setattr(usage, "ssh_sessions", lambda: Seen(uses=("an SSH session (bash)",)))
    parents = iter([1, 1, 2])
    monkeypatch.setattr(usage.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(usage, "WRITE_S", 0.0)
    assert usage.main([str(file), "1"]) == 0
    assert usage.told_sessions(file).uses == ("an SSH session (bash)",)
    os.utime(file, (1, 1))
    with pytest.raises(UnseenError, match="old"):
        usage.told_sessions(file)
