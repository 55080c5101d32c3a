"""Following a job's output (tests/job_api.py stands in for Ray's job API)."""

import io
import threading

import pytest
from job_api import DEADLINE_S, handle_at, serving
from waiting import until

from sunspot.errors import SunspotError
from sunspot.ray import jobs
from sunspot.ray.jobs import JobClient


@pytest.mark.parametrize("tail", [None, ["one\n", "two\n"], []])
@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_follow_prints_a_short_jobs_log_once(api, client, tell, tail, status):
    api.tail = tail
    api.add("j", "PENDING", "RUNNING", "RUNNING", status, log="one\ntwo\nend")
    out = io.StringIO()
    assert client.follow("j", out, tell).status == status
    assert out.getvalue() == "one\ntwo\nend"
    assert not tell


def test_follow_of_a_job_that_has_ended_asks_for_no_tail(api, client, tell):
    api.tail = ["never\n"]
    api.add("j", "FAILED", log="it broke\n", driver_exit_code=7)
    out = io.StringIO()
    job = client.follow("j", out, tell)
    assert (job.status, job.exit_code) == ("FAILED", 7)
    assert out.getvalue() == "it broke\n"
    assert not any("tail" in call for call in api.calls())


def test_follow_prints_while_the_job_runs(api, client, tell):
    api.tail = ["one\n", "zwölf\n"]
    api.add("j", "RUNNING", log="one\nzwölf\nend\n")
    pieces: list[str] = []

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            if "zwölf\n" in pieces:  # the job ends when we have seen what it printed
                api.states["j"] = ["SUCCEEDED"]
            return super().write(text)

    ending = threading.Timer(DEADLINE_S, lambda: api.states.update(j=["FAILED"]))
    ending.start()
    out = Out()
    job = client.follow("j", out, tell)
    ending.cancel()
    assert job.status == "SUCCEEDED"
    assert out.getvalue() == "one\nzwölf\nend\n"
    assert pieces[:2] == ["one\n", "zwölf\n"]


def test_a_long_log_is_not_read_again(api, client, tell, monkeypatch):
    monkeypatch.setattr(jobs, "REREAD_CHARACTERS", 5)
    api.add("j", "RUNNING", log="unused")
    api.tail = ["longer than five\n"]
    api.tail_ends = True  # as Ray's does, some seconds after the job

    def end() -> None:
        api.tail_opened.wait(DEADLINE_S)
        api.states["j"] = ["SUCCEEDED"]

    thread = threading.Thread(target=end)
    thread.start()
    out = io.StringIO()
    client.follow("j", out, tell)
    thread.join()
    assert out.getvalue() == "longer than five\n"
    assert "GET /api/jobs/j/logs" not in api.calls()


def test_follow_of_an_unknown_job_is_an_error(client, tell):
    with pytest.raises(SunspotError, match="Job nope does not exist"):
        client.follow("nope", io.StringIO(), tell)


def test_a_head_that_goes_away_while_following_is_an_error(tmp_path, tell):
    with serving() as (api, port):
        api.add("j", "RUNNING")
        client = JobClient(handle_at(port, tmp_path))
        asked = len(api.seen)
        result: list[BaseException] = []

        def follow() -> None:
            try:
                client.follow("j", io.StringIO(), tell)
            except BaseException as error:
                result.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        until(lambda: len(api.seen) > asked)
        api.answers["GET", "/api/jobs/j"] = (500, "RuntimeError: GCS down")
        thread.join(DEADLINE_S)
    (error,) = result
    assert isinstance(error, SunspotError)
    assert "GCS down" in str(error)
