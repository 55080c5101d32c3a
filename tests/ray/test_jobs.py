"""Jobs: how we talk to Ray's job API (tests/job_api.py stands in for it)."""

import errno
import io
import os
import re
import socket
import tempfile
import threading
import zipfile
from pathlib import Path

import pytest
from job_api import TOKEN, Handler, Told, handle_at, refusal

from sunspot.errors import SunspotError, UsageError
from sunspot.ray import following, jobs, packaging
from sunspot.ray.api_errors import SilentError
from sunspot.ray.feasibility import NodeType, Request
from sunspot.ray.jobs import Job, JobClient

# Ids and exit codes


@pytest.mark.parametrize(
    ("entrypoint", "stem"),
    [
        (["python", "workloads/primes.py", "--stop", "9"], "primes"),
        (["bash", "-x", "tools/run all.sh"], "run-all"),
        (["true"], "true"),
        (["/usr/bin/env"], "env"),
        (["?"], "job"),
        ([""], "job"),
        (["python", "größe.py"], "gr-e"),
    ],
)
def test_a_new_id_tells_what_runs(entrypoint, stem):
    first, second = jobs.new_id(entrypoint), jobs.new_id(entrypoint)
    assert re.fullmatch(rf"{re.escape(stem)}-[0-9a-f]{{6}}", first), first
    assert first != second


@pytest.mark.parametrize("script", ["a" * 500 + ".py", "x.py"])
def test_a_new_id_is_a_job_id(script):
    assert jobs.check_id(jobs.new_id(["python", script]))


def test_a_long_id_is_told_its_length_and_the_limit():
    assert jobs.check_id("a" * 128)
    message = refusal(jobs.check_id, "a" * 400)
    assert "400" in message
    assert "128" in message
    assert "letters" not in message


def job(status, **fields):
    defaults = {"id": "j", "ray_id": "", "entrypoint": "x", "message": "", "exit_code": None}
    return Job(**{**defaults, "started": None, "ended": None, **fields, "status": status})


@pytest.mark.parametrize(
    ("status", "driver", "expected"),
    [
        ("SUCCEEDED", 0, 0),
        ("SUCCEEDED", None, 0),
        ("FAILED", 3, 3),
        ("FAILED", None, 1),
        ("FAILED", 0, 1),
        ("FAILED", -9, 137),
        ("STOPPED", None, 130),
        ("STOPPED", 1, 130),
    ],
)
def test_exit_code(status, driver, expected):
    assert jobs.exit_code(job(status, exit_code=driver)) == expected


def test_a_job_that_a_signal_ended_says_which():
    failed = job("FAILED", exit_code=-9, message="Job entrypoint command failed")
    assert "SIGKILL" in failed.reason
    assert failed.reason != job("FAILED", exit_code=9, message="it broke").reason == "it broke"


@pytest.mark.parametrize(
    ("status", "ended"),
    [("PENDING", 0), ("RUNNING", 0), ("SUCCEEDED", 1), ("FAILED", 1), ("STOPPED", 1)],
)
def test_has_ended(status, ended):
    assert job(status).has_ended is bool(ended)


# Asking


def test_jobs_are_listed_newest_first_without_other_drivers(api, client):
    api.add("old", "SUCCEEDED", start_time=1_000, end_time=2_500, job_id="01000000")
    api.add("new", "FAILED", start_time=9_000, driver_exit_code=3, message="it broke")
    api.add("waiting", "PENDING")
    api.add("x", "RUNNING", type="DRIVER", submission_id=None, job_id="02000000")
    found = client.list()
    assert [job.id for job in found] == ["new", "old", "waiting"]
    new, old, waiting = found
    assert (old.started, old.ended, old.ray_id) == (1.0, 2.5, "01000000")
    assert (new.exit_code, new.message, new.ended) == (3, "it broke", None)
    assert (waiting.started, waiting.message, waiting.ray_id) == (None, "", "")


def test_an_unknown_job_is_an_error_with_those_that_exist(api, client):
    assert "there is no job 'nope'; jobs: none" in refusal(client.get, "nope")
    api.add("primes-1", "RUNNING")
    for ask in (client.get, client.logs, client.stop):
        assert "there is no job 'nope'; jobs: primes-1" in refusal(ask, "nope")


def test_logs_are_all_that_was_printed(api, client):
    api.add("j", "RUNNING", log="größe\n2\n")
    assert client.logs("j") == "größe\n2\n"


def test_live_nodes_are_those_alive_with_what_they_have(api, client):
    api.nodes = [
        {"node_name": "head", "state": "ALIVE", "resources_total": {"CPU": 2.0, "widget": 1.0}},
        {"node_name": "workers-0", "state": "DEAD", "resources_total": {"CPU": 64.0}},
    ]
    (node,) = client.live_nodes()
    assert node == NodeType(name="node head", resources={"CPU": 2.0, "widget": 1.0})


def test_a_log_that_is_not_utf_8_is_read_all_the_same(api, client):
    api.add("j", "SUCCEEDED", log=b"gr\xfc\xdfe\r\nzw\xc3\xb6lf\n" + b"x\n" * 2000 + b"\xe2\x82")
    assert client.logs("j") == "gr\ufffd\ufffde\nzwölf\n" + "x\n" * 2000 + "\ufffd"


def test_a_log_that_cannot_be_read_for_another_reason_says_why(api, client):
    api.add("j", "SUCCEEDED")
    api.answers["GET", "/api/jobs/j/logs"] = (500, "RuntimeError: no agent\n")
    with pytest.raises(SunspotError, match=r"^RuntimeError: no agent$"):
        client.logs("j")


# Refusals and silence


@pytest.mark.parametrize("token", ["", "someone-elses"])
def test_a_refused_token_names_its_file_and_the_address(running, tmp_path, token):
    handle = handle_at(running[1], tmp_path)
    handle.token_path.write_text(token)
    with pytest.raises(SunspotError) as caught:
        JobClient(handle).list()
    message = str(caught.value)
    assert str(handle.token_path) in message
    assert handle.job_address in message
    assert "HTTP 40" in message
    assert "another cluster" in message


def test_of_a_traceback_the_last_line_is_shown(api, client):
    api.answers["GET", "/api/jobs/"] = (
        500,
        "Traceback (most recent call last):\n  File x\nRuntimeError: the GCS is gone\n\n",
    )
    with pytest.raises(SunspotError) as caught:
        client.list()
    assert str(caught.value) == "RuntimeError: the GCS is gone"
    api.answers["GET", "/api/jobs/"] = (503, "")
    with pytest.raises(SunspotError, match="HTTP 503"):
        client.list()


def test_json_that_cannot_be_read_is_as_silence(api, client, monkeypatch):
    def as_json(self, status, text):
        self._answer(status, text.encode(), "application/json")

    monkeypatch.setattr(Handler, "_text", as_json)
    api.answers["GET", "/api/jobs/"] = (200, '[{"type": ')
    with pytest.raises(SilentError, match=r"JSONDecodeError.*sunspot status dev"):
        client.list()


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.list(),
        lambda client: client.submit(["true"], request=Request(), runtime_env={}),
    ],
)
def test_silence_says_where_and_how_to_look(tmp_path, ask):
    handle = handle_at(closed_port(), tmp_path)
    with pytest.raises(SunspotError) as caught:
        ask(JobClient(handle))
    message = str(caught.value)
    assert not isinstance(caught.value, UsageError)
    assert f"the job API of 'dev' at {handle.job_address} does not answer" in message
    assert "sunspot status" in message
    assert "dev" in message.rpartition("sunspot status")[2]


def test_the_hint_of_silence_is_a_command_that_exists(tmp_path):
    from typer.core import TyperGroup
    from typer.main import get_command

    from sunspot.cli.app import app

    error = SilentError(handle_at(1, tmp_path), OSError("x"))
    hint = str(error).rpartition("sunspot ")[2].split()
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    status = command.commands[hint[0]]
    status.make_context(hint[0], hint[1:])  # raises if the arguments are not the command's


def test_no_proxy_and_no_netrc_come_between(api, client, tmp_path, monkeypatch):
    dead = f"http://127.0.0.1:{closed_port()}"
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, dead)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    api.add("j", "SUCCEEDED", log="hello\n")
    out = io.StringIO()
    assert [job.id for job in client.list()] == ["j"]
    assert following.follow(client, "j", out, Told()).status == "SUCCEEDED"
    assert out.getvalue() == "hello\n"
    assert {seen.authorization for seen in api.seen} == {f"Bearer {TOKEN}"}


# The working directory


def test_upload_happens_once_for_the_same_content(api, client, tmp_path, tell):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "x.py").write_text("print(1)\n")
    env = {"working_dir": str(folder)}
    client.send_working_dir(env, tell)
    uri = env["working_dir"]
    name = uri.removeprefix("gcs://")
    assert re.fullmatch(r"gcs://_ray_pkg_[0-9a-f]{40}\.zip", uri)
    with zipfile.ZipFile(io.BytesIO(api.packages[name])) as archive:
        assert archive.namelist() == ["x.py"]
        assert archive.read("x.py") == b"print(1)\n"
    again = {"working_dir": str(folder)}
    client.send_working_dir(again, tell)
    assert again == env
    assert api.calls() == [
        f"GET /api/packages/gcs/{name}",
        f"PUT /api/packages/gcs/{name}",
        f"GET /api/packages/gcs/{name}",
    ]
    assert re.fullmatch(rf"uploading {re.escape(str(folder))} \(1 files?, 0\.\d KiB\)", tell[0])
    assert re.fullmatch(
        rf"{re.escape(str(folder))} \(1 files?, 0\.\d KiB\) is on the cluster already", tell[1]
    )


@pytest.mark.parametrize("uri", ["s3://bucket/x.zip", "gcs://_ray_pkg_1.zip", "https://h/x.zip"])
def test_a_remote_working_directory_is_left_alone(api, client, tell, uri):
    env = {"working_dir": uri}
    client.send_working_dir(env, tell)
    assert env == {"working_dir": uri}
    assert not api.seen
    assert not tell


def test_an_empty_working_directory_is_left_out(api, client, tmp_path, tell):
    (tmp_path / "empty").mkdir()
    env = {"working_dir": str(tmp_path / "empty"), "env_vars": {"A": "1"}}
    client.send_working_dir(env, tell)
    assert env == {"env_vars": {"A": "1"}}
    assert not api.seen


def test_a_full_disk_of_the_head_is_named_with_what_to_do(api, client):
    api.answers["GET", "/api/jobs/"] = (500, "OSError: [Errno 28] No space left on device\n.")
    with pytest.raises(SunspotError, match=r"head's disk is full.*free.*Errno 28.*device\)$"):
        client.list()


def test_a_full_disk_is_named_while_a_folder_is_packed(api, client, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "main.py").write_text("")
    monkeypatch.setattr(packaging, "package", full)
    with pytest.raises(SunspotError, match="TMPDIR") as caught:
        client.send_working_dir({"working_dir": str(tmp_path)}, Told())
    assert tempfile.gettempdir() in str(caught.value)


def test_a_file_that_goes_away_while_it_is_packed_is_told(api, client, tmp_path, monkeypatch):
    (tmp_path / "main.py").write_text("")
    gone = packaging.File(path=Path("gone.py"), size=1)
    monkeypatch.setattr(packaging, "collect", lambda *_: [gone])
    message = refusal(client.send_working_dir, {"working_dir": str(tmp_path)}, Told())
    assert "gone.py" in message
    assert ".rayignore" in message
    assert not api.packages


def test_a_missing_working_directory_is_refused_before_anything_is_sent(api, client, tmp_path):
    message = refusal(client.send_working_dir, {"working_dir": str(tmp_path / "no")}, Told())
    assert f"{tmp_path / 'no'} does not exist" in message
    assert "--working-dir" in message
    assert not api.seen


def test_an_upload_that_is_refused_says_why(api, client, tmp_path):
    (tmp_path / "x.py").write_text("1")
    files = [packaging.File(packaging.Path("x.py"), 1)]
    with packaging.package(tmp_path, files) as package:
        path = "/api/packages/" + package.uri.replace("://", "/")
    api.answers["PUT", path] = (500, "Traceback\nRuntimeError: the GCS is full\n")
    with pytest.raises(SunspotError, match="the GCS is full"):
        client.upload(tmp_path, files, Told())


# Stopping


def test_stop_waits_until_the_job_has_ended(api, client):
    api.add("j", "RUNNING", "RUNNING", "RUNNING", "STOPPED")
    assert client.stop("j").status == "STOPPED"
    assert api.calls().count("POST /api/jobs/j/stop") == 1
    assert api.calls()[-1] == "GET /api/jobs/j"


def test_a_job_that_is_just_starting_is_stopped_again(api, client, monkeypatch):
    monkeypatch.setattr(jobs, "STOP_AGAIN_S", 0.0)
    api.add("j", "PENDING", "RUNNING", "RUNNING", "STOPPED")
    assert client.stop("j").status == "STOPPED"
    assert api.calls().count("POST /api/jobs/j/stop") == 3


def test_a_job_that_has_ended_is_not_stopped(api, client):
    api.add("j", "SUCCEEDED")
    assert client.stop("j").status == "SUCCEEDED"
    assert api.calls() == ["GET /api/jobs/j"]


def test_a_job_may_become_known_late(api, client):
    threading.Timer(0.3, api.add, ["late", "RUNNING", "STOPPED"]).start()
    assert client.stop("late", late_s=30).status == "STOPPED"
    with pytest.raises(UsageError):
        client.stop("never", late_s=0.2)


def test_a_job_that_does_not_stop_is_an_error(api, client, monkeypatch):
    monkeypatch.setattr(jobs, "STOP_TIMEOUT_S", 0.2)
    api.add("j", "RUNNING")
    with pytest.raises(SunspotError) as caught:
        client.stop("j")
    assert "'j' should have stopped but is still RUNNING" in str(caught.value)
    assert "sunspot jobs" in str(caught.value)
