"""The `sunspot` command and jobs: what goes to the cluster, and what comes back."""

import errno
import json
import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_runs import failed, run
from job_api import serving
from local_stacks import write

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli import sending
from sunspot.cli.app import app
from sunspot.node.processes import Process
from sunspot.ray import feasibility, jobs

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def program(place):
    """A program in the folder that the job gets."""
    (place / "x.py").touch()


def test_submit_follows_the_job_and_passes_what_is_behind_the_dashes(cluster, program):
    api, _ = cluster
    result = run(
        *("submit", "--stack", "dev", "--name", "mine", "--env", "A=1", "--num-cpus", "1"),
        *(
            "--",
            "python",
            "x.py",
            "--name",
            "theirs",
            "--num-cpus",
            "9",
            "-d",
            "--help",
            "--",
            "a b",
        ),
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == "done\n"
    body = api.body("POST", "/api/jobs/")
    assert body["submission_id"] == "mine"
    assert body["entrypoint"] == "exec python x.py --name theirs --num-cpus 9 -d --help -- 'a b'"
    assert body["entrypoint_num_cpus"] == 1
    assert body["runtime_env"]["env_vars"] == {"A": "1"}
    assert body["runtime_env"]["working_dir"].startswith("gcs://")


def test_a_stack_without_its_option_is_told_where_it_belongs():
    told = failed(2, "jobs", "dev")
    assert told.endswith("(dev). This command takes a cluster by --stack NAME")


def test_the_example_of_submit_runs_on_the_first_cluster(clusters, place, request):
    from typer.main import get_command

    dev = stacks.load("dev", request.config.rootpath).for_target("local")
    (_, _, example) = get_command(app).commands["submit"].epilog.partition(": sunspot ")  # type: ignore[attr-defined]
    program = next(word for word in shlex.split(example) if word.endswith(".py"))
    (place / program).parent.mkdir(exist_ok=True)
    (place / program).touch()
    with serving() as (api, port):
        folder = write(clusters, dev, address="127.0.0.1:1", ready_at=1.0)
        folder.update_cluster(dashboard_port=port)
        folder.token.write_text(api.token)
        folder.record_process("head", Process.current())
        result = run(*shlex.split(example))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("made", "says"),
    [(True, "job mine is stopped"), (False, "the cluster does not know job mine; if it appears")],
)
def test_an_interrupt_while_the_job_is_handed_over_stops_it(cluster, monkeypatch, made, says):
    api, _ = cluster

    def interrupted(*_, job_id, **__):
        if made:
            api.add(job_id, "RUNNING", "STOPPED")
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs.JobClient, "submit", interrupted)
    monkeypatch.setattr(sending, "LATE_S", 0.2)
    assert says in failed(130, "submit", "--name", "mine", "--", "true")
    assert ("POST /api/jobs/mine/stop" in api.calls()) is made


def test_a_job_that_appears_after_an_interrupt_is_ended_as_it_says(cluster, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs.JobClient, "submit", interrupted)
    monkeypatch.setattr(sending, "LATE_S", 0.0)
    (_, _, hint) = failed(130, "submit", "--name", "mine", "--", "true").partition("end it: ")
    assert hint.split() == ["sunspot", "stop", "mine", "--stack", "dev"]
    api, _ = cluster
    api.add("mine", "RUNNING", "RUNNING", "STOPPED")
    assert run(*hint.split()[1:]).stdout == "job mine is STOPPED\n"


def test_an_interrupt_before_the_job_is_followed_stops_it_too(cluster, monkeypatch):
    api, _ = cluster
    api.submitted = ["RUNNING", "STOPPED"]
    tell = console.note

    def interrupted(line):
        if line == "job mine":
            raise KeyboardInterrupt
        tell(line)

    monkeypatch.setattr(console, "note", interrupted)
    assert "job mine is stopped" in failed(130, "submit", "--name", "mine", "--", "true")
    assert "POST /api/jobs/mine/stop" in api.calls()


def test_a_job_that_has_ended_at_an_interrupt_is_not_called_stopped(cluster, monkeypatch):
    api, _ = cluster
    api.submitted = ["SUCCEEDED"]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sending, "follow_to_end", interrupted)
    assert "SUCCEEDED" in failed(130, "submit", "--name", "mine", "--", "true")


def test_without_the_dashes_options_behind_the_command_are_its_own_too(cluster, program):
    api, _ = cluster
    result = run("submit", "--detach", "python", "x.py", "--name", "theirs")
    assert result.exit_code == 0, result.output
    assert api.body("POST", "/api/jobs/")["entrypoint"] == "exec python x.py --name theirs"
    assert result.stdout.startswith("x-")


@pytest.mark.parametrize(
    ("status", "driver", "expected"),
    [("SUCCEEDED", 0, 0), ("FAILED", 7, 7), ("FAILED", None, 1), ("STOPPED", None, 130)],
)
def test_logs_that_are_followed_end_with_the_jobs_exit_code(cluster, status, driver, expected):
    api, _ = cluster
    api.add("mine", status, log="hello\n", driver_exit_code=driver)
    result = run("logs", "mine", "-f")
    assert (result.exit_code, result.stdout) == (expected, "hello\n")
    assert (f"job mine {status}" in result.stderr) is (status != "SUCCEEDED")
    assert run("logs", "mine").exit_code == 0


@pytest.mark.parametrize("options", [["python"], ["python3", "-u"], ["/usr/bin/python3.11"]])
def test_a_program_that_is_not_there_is_refused_before_the_upload(cluster, place, options):
    api, _ = cluster
    message = failed(2, "submit", "--", *options, "x.py")
    assert f"there is no x.py in {place}" in message
    assert "--working-dir" in message
    assert not [call for call in api.calls() if "packages" in call or "POST" in call]


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-c", "x.py"],
        ["python", "-m", "x.py"],
        ["python", sys.executable],
        ["python-launcher", "x.py"],
        ["bash", "x.py"],
        ["python x.py && true"],
        ["python"],
    ],
)
def test_what_may_be_elsewhere_is_not_looked_for(place, command):
    sending.check_program(command, place)


@pytest.mark.parametrize("folder", ["empty", "code.zip", "s3://bucket/code.zip"])
def test_only_a_folder_with_files_is_looked_into(place, folder):
    (place / "empty").mkdir()
    (place / "code.zip").touch()
    sending.check_program(["python", "x.py"], Path(folder))


def test_a_folder_that_cannot_be_read_is_refused_before_the_upload(cluster, place, monkeypatch):
    api, _ = cluster

    def refusing(folder):  # nothing is unreadable to root
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(Path, "iterdir", refusing)
    message = failed(2, "submit", "--working-dir", str(place), "--", "python", "x.py")
    assert f"cannot read {place}; make it readable" in message
    assert not [call for call in api.calls() if "packages" in call or "POST" in call]


def test_a_folder_whose_name_is_too_long_is_refused(cluster):
    message = failed(2, "submit", "--working-dir", "x" * 300, "--", "python", "x.py")
    assert "cannot read the folder to send" in message
    assert "File name too long" in message


def test_what_can_never_run_is_refused_before_the_upload(cluster):
    api, _ = cluster
    message = failed(2, "submit", "--num-gpus", "2", "--", "true")
    assert "GPU: asked 2" in message
    assert "--wait" in message
    assert not [call for call in api.calls() if "packages" in call or "POST" in call]


def test_with_wait_it_is_submitted_when_a_node_comes_that_can_hold_it(cluster, monkeypatch):
    api, _ = cluster
    big = {"node_name": "big", "state": "ALIVE", "resources_total": {"GPU": 2.0}}
    clock = SimpleNamespace(sleep=lambda _: api.nodes.append(big))
    monkeypatch.setattr(feasibility, "time", clock)
    result = run("submit", "--num-gpus", "2", "--wait", "--", "true")
    assert "waiting for a node" in result.stderr
    assert api.body("POST", "/api/jobs/")["entrypoint_num_gpus"] == 2


def test_what_only_a_node_that_nobody_declared_can_hold_is_let_through(cluster):
    api, _ = cluster
    api.nodes = [{"node_name": "x", "state": "ALIVE", "resources_total": {"widget": 1.0}}]
    result = run("submit", "--resources", '{"widget": 1}', "--detach", "--", "true")
    assert result.exit_code == 0, result.output
    assert api.body("POST", "/api/jobs/")["entrypoint_resources"] == {"widget": 1}


def test_a_missing_working_directory_is_a_usage_error(cluster, tmp_path):
    message = failed(2, "submit", "--working-dir", str(tmp_path / "no"), "--", "true")
    assert "does not exist" in message


def test_jobs_are_a_table_or_json(cluster):
    api, _ = cluster
    assert run("jobs").stdout == "no jobs yet\n"
    api.add("mine", "SUCCEEDED", start_time=1_000, end_time=2_000)
    assert "mine" in run("jobs").stdout
    (job,) = json.loads(run("jobs", "--json").stdout)
    assert (job["id"], job["started"], job["ended"]) == ("mine", 1.0, 2.0)


def test_an_unknown_job_is_a_usage_error_with_those_that_exist(cluster):
    api, _ = cluster
    api.add("mine", "SUCCEEDED")
    for arguments in (["logs", "x"], ["logs", "x", "-f"], ["stop", "x"]):
        assert "there is no job 'x'; jobs: mine" in failed(2, *arguments)


def test_stop_says_whether_there_was_anything_to_stop(cluster):
    api, _ = cluster
    api.add("ended", "SUCCEEDED")
    api.add("running", "RUNNING", "RUNNING", "STOPPED")
    assert run("stop", "ended").stdout == "job ended had ended already: SUCCEEDED\n"
    assert run("stop", "running").stdout == "job running is STOPPED\n"
