"""`sunspot run` on a target that only brings clusters up: up, one job, down, whatever happens."""

import errno
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import yaml
from cli_runs import failed, run
from fake_target import FakeTarget
from job_api import handle_at, serving

from sunspot import console
from sunspot.errors import SunspotError, UsageError
from sunspot.ray import packaging
from sunspot.targets import clusters
from sunspot.targets.protocol import Removal, Up, WaitsForOthers

CLUSTER = {
    "head_node": {"cpu": 2, "memory_gb": 4},
    "scaling_groups": [
        {
            "name": "gpus",
            "market": "spot",
            "min_workers": 0,
            "max_workers": 1,
            "worker_nodes": {"cpu": 2, "memory_gb": 4, "gpu_count": 1},
        }
    ],
    "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
}


@dataclass
class Brief(FakeTarget):
    """A target whose clusters have the job API of the test."""

    port: int = 0
    step: str = "one node is up"
    kept: tuple[str, ...] = ()

    def up(self, stack, progress, **options):
        self.record(stack.name)
        progress(self.step)
        started = super().up(stack, lambda _: None, **options)
        return Up(self.handle(stack.name), was_up=started.was_up)

    def down(self, name, progress):
        removal = super().down(name, progress)
        return Removal(looked_for=removal.looked_for, left=removal.left, kept=self.kept)

    def handle(self, _name, _progress=None):
        return handle_at(self.port, self.token)


@pytest.fixture
def served():
    with serving() as (found, port):
        yield found, port


@pytest.fixture
def api(served):
    return served[0]


@pytest.fixture
def target(served, place, monkeypatch):
    """The target of the stack "dev", whatever that says."""
    folder = place.parent / "handle"
    folder.mkdir()
    made = Brief(folder, name="local", port=served[1])
    monkeypatch.setattr(clusters, "get", lambda _: made)
    config = {"sunspot:target": "local", "sunspot:cluster": CLUSTER}
    (place / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
    (place / "mine.py").touch()
    return made


def calls(target):
    return [call.split()[0] for call in target.calls]


def test_a_program_that_is_not_there_is_refused_before_the_cluster_is_made(target):
    assert "there is no absent.py" in failed(2, "run", "dev", "--", "python", "absent.py")
    assert calls(target) == []


@pytest.mark.parametrize(("folder", "said"), [("", "a home directory"), ("none", "does not exist")])
def test_a_folder_that_cannot_be_sent_is_refused_before_the_cluster_is_made(
    target, place, monkeypatch, folder, said
):
    monkeypatch.setenv("HOME", str(place))
    assert said in failed(2, "run", "dev", "--working-dir", str(place / folder), "--", "true")
    assert calls(target) == []


def test_a_folder_that_cannot_be_read_is_refused_before_the_cluster_is_made(
    target, place, monkeypatch
):
    secret, scandir = place / "secret", os.scandir
    secret.mkdir()

    def refusing(path):  # nothing is unreadable to root
        if os.fspath(path) == str(secret):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(secret))
        return scandir(path)

    monkeypatch.setattr(packaging.os, "scandir", refusing)
    command = ("run", "dev", "--working-dir", str(place), "--", "python", "mine.py")
    assert f"cannot read {secret}; make it readable" in failed(2, *command)
    assert calls(target) == []


def test_the_job_runs_between_up_and_down_and_its_output_is_all_of_stdout(api, target):
    api.program = lambda entrypoint, say: say(f"ran {entrypoint}")
    done = run("run", "dev", "--env", "A=b", "--", "python", "mine.py", "--two words")
    assert done.exit_code == 0, done.output
    assert done.stdout == "ran exec python mine.py '--two words'\n"
    assert api.body("POST", "/api/jobs/")["runtime_env"]["env_vars"] == {"A": "b"}
    assert calls(target) == ["up", "down"]


def test_the_exit_code_of_a_command_that_fails_is_passed_on_after_down(api, target):
    api.submitted = ["FAILED"]
    submit = api.fields

    def failing(job_id, /, **fields):
        return submit(job_id, **{**fields, "driver_exit_code": 7})

    api.fields = failing
    failed(7, "run", "dev", "--", "false")
    assert calls(target) == ["up", "down"]


def test_ctrl_c_stops_the_job_and_takes_the_cluster_down(api, target, monkeypatch):
    api.submitted = ["RUNNING", "STOPPED"]
    tell = console.note

    def interrupted(line):
        if line.startswith("job "):
            raise KeyboardInterrupt
        tell(line)

    monkeypatch.setattr(console, "note", interrupted)
    assert "is stopped" in failed(130, "run", "dev", "--", "true")
    assert calls(target) == ["up", "down"]
    assert any(call.endswith("/stop") for call in api.calls())


@pytest.mark.parametrize(
    ("error", "code"), [(SunspotError("no quota"), 1), (KeyboardInterrupt(), 130)]
)
def test_what_an_up_that_fails_has_left_is_taken_down(target, error, code):
    target.up_error = error
    assert "no thing of it is left" in failed(code, "run", "dev", "--", "true")
    assert calls(target) == ["up", "down"]


def test_a_stack_that_up_refuses_is_not_taken_down(target):
    target.up_error = UsageError("no such size")
    assert "no such size" in failed(2, "run", "dev", "--", "true")
    assert calls(target) == ["up"]


def test_the_cluster_of_a_command_that_it_waited_for_is_left_alone(target):
    target.step, target.up_error = WaitsForOthers("waiting for process 7"), KeyboardInterrupt()
    failed(130, "run", "dev", "--", "true")
    assert calls(target) == ["up"]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_cluster_that_is_up_already_is_refused_and_stays(target, when):
    target.taken, target.was_up = (["dev"], False) if when == "before" else ([], True)
    message = failed(2, "run", "dev", "--", "true")
    assert "sunspot submit --stack dev" in message
    assert "down" not in calls(target)


def test_a_job_that_the_cluster_refuses_leaves_no_cluster(api, target):
    api.answers["POST", "/api/jobs/"] = (400, "the runtime environment is wrong")
    assert "is wrong" in failed(1, "run", "dev", "--", "true")
    assert calls(target) == ["up", "down"]


def test_what_cannot_be_removed_is_an_error_though_the_job_succeeded(target):
    target.left = ["a thing"]
    message = failed(1, "run", "dev", "--", "true")
    assert "a thing" in message
    assert "exit code 0" in message


def test_a_down_that_fails_does_not_hide_why_up_did(target):
    target.up_error, target.down_error = SunspotError("no quota"), SunspotError("no answer")
    message = failed(1, "run", "dev", "--", "true")
    assert "no quota" in message
    assert "no answer" in message
    assert "sunspot down dev" in message


def test_what_is_kept_on_purpose_is_said(target):
    target.kept = ("the results are kept in abc",)
    done = run("run", "dev", "--", "true")
    assert "the results are kept in abc" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("dev",), "--"),
        (("dev", "--num-gpus", "2", "--", "true"), "2"),
        (("dev", "--detach", "--", "true"), "--detach"),
        (("dev", "--requirements", "gone.txt", "--", "true"), "gone.txt"),
        (("dev", "--env", "A", "--", "true"), "--env"),
        (("gone", "--", "true"), "gone"),
    ],
)
def test_bad_input_is_refused_before_anything_is_created(target, arguments, named):
    assert named in failed(2, "run", *arguments)
    assert target.calls == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_second_ctrl_c_does_not_cut_taking_down_short(target, monkeypatch, number):
    target.up_error = KeyboardInterrupt()
    down = Brief.down

    def interrupted(self, name, progress):
        os.kill(os.getpid(), number)
        return down(self, name, progress)

    @contextmanager
    def shown(_title, **_):
        yield lambda _: None

    monkeypatch.setattr(Brief, "down", interrupted)
    monkeypatch.setattr(console, "progress", shown)
    failed(130, "run", "dev", "--", "true")
    assert calls(target) == ["up", "down"]


class Batch(Brief):
    """A target with a better way."""

    def run(self, stack, command, out, progress, *, follow=True):  # noqa: ARG002
        self.calls.append(f"run {' '.join(command)} {follow}")
        return 3


def test_a_target_with_a_way_of_its_own_is_left_to_it(target, monkeypatch):
    batch = Batch(target.token, name="local")
    monkeypatch.setattr(clusters, "get", lambda _: batch)
    failed(3, "run", "dev", "--detach", "--", "true")
    assert batch.calls == ["run true False"]
    assert "--pip" in failed(2, "run", "dev", "--pip", "emoji", "--", "true")
