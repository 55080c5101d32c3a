"""`sunspot submit` and `logs -f` while the head is away, as a process that gets signals."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
from job_api import Api, served
from local_stacks import WORKERS, stack, write
from waiting import wait_for

from sunspot.node.processes import Process
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

DEADLINE_S = 60.0


@pytest.fixture
def api():
    found = Api()
    found.submitted = ["RUNNING"]
    return found


@pytest.fixture
def folder(api, tmp_path, monkeypatch):
    """The records of a cluster "dev" that is up."""
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "state"))
    clusters = LocalTarget(tmp_path / "state" / "clusters").clusters
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    folder.token.write_text(api.token)
    folder.record_process("head", Process.current())
    return folder


@pytest.fixture
def head(api, folder):
    """Its job API, until this is closed."""
    with ExitStack() as head:
        port = head.enter_context(served(api))
        folder.update_cluster(dashboard_port=port)
        yield head


@contextmanager
def started(folder, *arguments):
    (folder / "work").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "sunspot.cli", *arguments],
        cwd=folder / "work",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_until(stream, text):
    """Reads lines until one has the text; fails if the stream ends before."""
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"it ended without {text!r}")


def test_ctrl_c_while_the_head_is_away_says_that_the_job_could_not_be_stopped(head, tmp_path):
    with started(tmp_path, "submit", "--name", "mine", "--", "true") as submit:
        read_until(submit.stderr, "job mine")
        head.close()
        read_until(submit.stderr, "lost the connection")
        submit.send_signal(signal.SIGINT)
        _, errors = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 130
    assert "job mine could not be stopped" in errors
    assert "Traceback" not in errors


def test_ctrl_c_when_the_head_is_back_stops_the_job(head, api, tmp_path):
    with started(tmp_path, "submit", "--name", "mine", "--", "true") as submit:
        read_until(submit.stderr, "job mine")
        api.faults["GET", "/api/jobs/mine"] = [(500, "No available agent")] * 2
        read_until(submit.stderr, "connected again")
        submit.send_signal(signal.SIGINT)
        read_until(submit.stderr, "stopping job mine")
        api.states["mine"] = ["STOPPED"]
        _, errors = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 130
    assert "job mine is stopped" in errors


def test_following_a_job_of_a_local_head_that_died_ends_at_once(head, api, folder, tmp_path):
    api.add("mine", "RUNNING")
    with started(tmp_path, "logs", "mine", "-f") as logs:
        wait_for("the following", lambda: api.calls().count("GET /api/jobs/mine") > 1)
        folder.record_process("head", Process(pid=1, start_time=1.0))
        head.close()
        _, errors = logs.communicate(timeout=DEADLINE_S)
    assert logs.returncode == 1
    assert "the head of 'dev' is dead" in errors


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize("flag", ["--requirements", "--conda"])
def test_a_package_file_that_is_missing_is_refused_before_anything_is_sent(api, tmp_path, flag):
    with started(tmp_path, "submit", flag, "gone.txt", "--", "true") as submit:
        _, errors = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 2
    assert "gone.txt" in errors
    assert api.calls() == []


@pytest.mark.usefixtures("head")
def test_packages_go_along_and_a_missing_one_is_named(api, tmp_path):
    log = "Traceback\nModuleNotFoundError: No module named 'emoji'"
    api.add("ended", message=f"Job failed, last available logs:\n{log}", driver_exit_code=1)
    ended = api.jobs.pop("ended") | {"submission_id": "mine", "status": "FAILED"}
    api.answers["GET", "/api/jobs/mine"] = (200, json.dumps(ended))
    with started(tmp_path, "submit", "--name", "mine", "--pip", "tqdm", "--", "true") as submit:
        _, errors = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 1
    assert api.body("POST", "/api/jobs/")["runtime_env"]["pip"] == {"packages": ["tqdm"]}
    assert "'emoji'" in errors
    assert "--pip emoji" in " ".join(errors.split())


@pytest.mark.usefixtures("head")
def test_a_job_that_started_although_its_submission_failed_is_stopped(api, tmp_path):
    api.submitted = ["RUNNING", "STOPPED"]
    api.submit_error = "OSError: [Errno 28] No space left on device"
    with started(tmp_path, "submit", "--name", "mine", "--", "true") as submit:
        _, errors = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 1
    assert "No space left on device); job mine is stopped" in errors
    assert "POST /api/jobs/mine/stop" in api.calls()


@pytest.mark.usefixtures("head")
def test_a_job_of_the_same_name_is_left_alone_where_the_submission_would_fail(api, tmp_path):
    api.add("mine", "RUNNING")
    api.answers["POST", "/api/jobs/"] = (500, "No available agent to submit job")
    with started(tmp_path, "submit", "--name", "mine", "--", "true") as submit:
        _, errors = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 2
    assert "there is a job 'mine' already" in errors
    assert {call for call in api.calls() if not call.startswith("GET")} == set()


@pytest.mark.usefixtures("head")
def test_what_the_job_waits_for_in_vain_is_told_while_it_runs(api, tmp_path):
    program = tmp_path / "code" / "primes.py"
    program.parent.mkdir()
    program.write_text("import ray\nray.init('localhost:6379')\n")
    api.state["placement_groups"] = [
        {
            "name": "train",
            "creator_job_id": "02000000",
            "state": "PENDING",
            "bundles": [{"unit_resources": {"GPU": 1.0}}],
        }
    ]
    api.answers["GET", "/api/jobs/mine"] = (
        200,
        json.dumps(api.fields("mine", status="RUNNING", job_id="02000000")),
    )
    command = ("--working-dir", str(program.parent), "--name", "mine", "--", "python", "primes.py")
    with started(tmp_path, "submit", *command) as submit:
        read_until(submit.stderr, "connects to localhost:6379")
        read_until(submit.stderr, "job mine")
        read_until(submit.stderr, "placement group 'train' of {GPU: 1}")
