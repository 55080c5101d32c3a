"""Following a job's output (tests/job_api.py stands in for Ray's job API)."""

import io
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from job_api import CLOSE_FRAME, DEADLINE_S, Api, Fault, frame, handle_at, served
from waiting import wait_for

from sunspot.errors import HeadLostError, NotUpError, SunspotError, UsageError
from sunspot.ray import following
from sunspot.ray.following import follow
from sunspot.ray.jobs import JobClient

POLL = ("GET", "/api/jobs/j")
LOGS = ("GET", "/api/jobs/j/logs")
NO_AGENT = (500, "No available agent to submit job, please try again later.")


class Out(io.StringIO):
    """Collects what is printed; calls `then` once when `text` has been."""

    def __init__(self, text="", then=None):
        super().__init__()
        self._text, self._then = text, then
        self.pieces = []

    def write(self, text):
        count = super().write(text)
        self.pieces.append(text)
        if self._then and self._text in self.getvalue():
            then, self._then = self._then, None
            then()
        return count


# A job API that answers


@pytest.mark.parametrize("tail", [None, ["one\n", "two\n"], []])
@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_follow_prints_a_short_jobs_log_once(api, client, tell, tail, status):
    api.tail = tail
    api.add("j", "PENDING", "RUNNING", "RUNNING", status, log="one\ntwo\nend")
    out = io.StringIO()
    assert follow(client, "j", out, tell).status == status
    assert out.getvalue() == "one\ntwo\nend"
    assert not tell


def test_it_ends_with_whoever_reads_the_output(api, client, tell):
    class Closed(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    api.tail = ["one\n"]
    api.add("j", "RUNNING", log="one\n")  # for ever
    with pytest.raises(BrokenPipeError):
        follow(client, "j", Closed(), tell)


def test_follow_of_a_job_that_has_ended_asks_for_no_tail(api, client, tell):
    api.tail = ["never\n"]
    api.add("j", "FAILED", log="it broke\n", driver_exit_code=7)
    out = io.StringIO()
    job = follow(client, "j", out, tell)
    assert (job.status, job.exit_code) == ("FAILED", 7)
    assert out.getvalue() == "it broke\n"
    assert not any("tail" in call for call in api.calls())


@pytest.mark.usefixtures("give_up")
def test_follow_prints_while_the_job_runs(api, client, tell):
    api.tail = ["one\n", "zwölf\n"]
    api.add("j", "RUNNING", log="one\nzwölf\nend\n")
    out = Out("zwölf\n", lambda: api.states.update(j=["SUCCEEDED"]))
    assert follow(client, "j", out, tell).status == "SUCCEEDED"
    assert out.getvalue() == "one\nzwölf\nend\n"
    assert out.pieces[:2] == ["one\n", "zwölf\n"]


@pytest.mark.usefixtures("give_up")
def test_a_long_log_is_not_read_again(api, client, tell, monkeypatch):
    monkeypatch.setattr(following, "REREAD_CHARACTERS", 5)
    api.add("j", "RUNNING", log="unused")
    api.tail = ["longer than five\n"]
    api.tail_ends = True
    out = Out("five\n", lambda: api.states.update(j=["SUCCEEDED"]))
    assert follow(client, "j", out, tell).status == "SUCCEEDED"
    assert out.getvalue() == "longer than five\n"
    assert "GET /api/jobs/j/logs" not in api.calls()


@pytest.mark.usefixtures("give_up")
def test_a_long_log_whose_stream_breaks_at_the_end_is_read_again(
    running, client, tell, monkeypatch
):
    api = running[0]
    monkeypatch.setattr(following, "REREAD_CHARACTERS", 5)
    api.add("j", "RUNNING", log="longer than five\nend\n")
    api.cut_tails = [frame("longer than five\n")]
    out = Out("five\n", lambda: api.states.update(j=["SUCCEEDED"]))
    assert follow(client, "j", out, tell).status == "SUCCEEDED"
    assert out.getvalue() == "longer than five\nend\n"


def test_follow_of_an_unknown_job_is_an_error(client, tell):
    with pytest.raises(SunspotError, match="Job nope does not exist"):
        follow(client, "nope", io.StringIO(), tell)
    assert not tell


# One that fails, breaks off or goes away


@pytest.mark.parametrize("first", [[], [None, None]], ids=["at once", "later"])
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ([Fault.DROP] * 4, "Disconnected"),
        ([Fault.HANG], "Timeout"),
        ([NO_AGENT] * 2, "No available agent"),
        ([(502, "")], "HTTP 502"),
    ],
    ids=["dropped", "silent", "no agent", "a proxy's"],
)
def test_a_poll_that_fails_is_tried_again(api, client, tell, monkeypatch, first, faults, reason):
    if Fault.HANG in faults:
        monkeypatch.setattr(following, "REQUEST_TIMEOUT_S", 1.0)
    api.add("j", *["RUNNING"] * 4, "FAILED", log="one\ntwo\n", driver_exit_code=3)
    api.tail = ["one\n"]
    api.faults[POLL] = [*first, *faults]
    out = io.StringIO()
    job = follow(client, "j", out, tell)
    assert (job.status, job.exit_code) == ("FAILED", 3)
    assert out.getvalue() == "one\ntwo\n"
    lost, again = tell
    assert "lost the connection" in lost
    assert reason in lost
    assert "10 minutes" in lost
    assert again == "connected again"


@contextmanager
def followed(api, folder, out, tell, **arguments):
    """Follows job "j" in a thread; yields the server's stack, the port, and how it ends."""
    ends = []
    with ExitStack() as server:
        port = server.enter_context(served(api))
        client = JobClient(handle_at(port, folder), **arguments)

        def run():
            try:
                ends.append(follow(client, "j", out, tell))
            except BaseException as error:
                ends.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield (
            server,
            port,
            lambda: wait_for("the following to end", lambda: ends, DEADLINE_S, poll_s=0.01)[0],
        )
        thread.join(DEADLINE_S)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("tail", "log", "printed"),
    [
        (["eins\n", "zwölf\n"], "eins\nzwölf\ndrei\n", "eins\nzwölf\ndrei\n"),
        (["ei"], "ei", "eins\nzw"),  # another file, in a new session of Ray's
    ],
    ids=["goes on", "shorter"],
)
def test_the_log_goes_on_when_a_head_comes_back_and_the_end_is_seen(
    tmp_path, tell, tail, log, printed
):
    api, out = Api(), io.StringIO()
    api.add("j", "RUNNING", log="eins\nzw")
    api.tail = ["eins\nzw"]
    with followed(api, tmp_path, out, tell) as (server, port, end):
        wait_for("the log", lambda: out.getvalue() == "eins\nzw", poll_s=0.01)
        server.close()
        wait_for("the loss to be told", lambda: tell, poll_s=0.01)
        api.add("j", "RUNNING", "RUNNING", "FAILED", log=log, driver_exit_code=4)
        api.tail = tail
        with served(api, port):
            job = end()
    assert (job.status, job.exit_code) == ("FAILED", 4)
    assert out.getvalue() == printed
    assert len(tell) == 2
    assert tell[1] == "connected again"


@pytest.mark.parametrize("status", ["SUCCEEDED", "STOPPED"])
def test_a_job_that_ends_while_the_head_is_away_is_seen_to_have(tmp_path, tell, status):
    api, out = Api(), io.StringIO()
    api.add("j", "RUNNING")
    with followed(api, tmp_path, out, tell) as (server, port, end):
        server.close()
        wait_for("the loss to be told", lambda: tell, poll_s=0.01)
        api.add("j", status, log="done\n")
        with served(api, port):
            assert end().status == status
    assert out.getvalue() == "done\n"


@pytest.mark.usefixtures("give_up")
@pytest.mark.parametrize(
    "cut",
    [
        frame("eins\nzw") + frame("ölf\n")[:5],  # in the middle of a line and of a letter
        frame("eins\nzw") + CLOSE_FRAME,
        b"",
    ],
    ids=["within a letter", "closed", "empty"],
)
def test_a_log_stream_that_breaks_is_opened_again(api, client, tell, cut):
    api.cut_tails = [cut]
    api.tail = ["eins\nzwölf\n", "drei\n"]
    api.add("j", "RUNNING", log="eins\nzw")

    def end():
        api.logs["j"] = "eins\nzwölf\ndrei\nende\n".encode()
        api.states["j"] = ["SUCCEEDED"]

    out = Out("drei", end)
    assert follow(client, "j", out, tell).status == "SUCCEEDED"
    assert out.getvalue() == "eins\nzwölf\ndrei\nende\n"
    assert not tell, "the connection itself was there"


@pytest.mark.parametrize("path", [POLL, LOGS])
def test_a_token_that_is_refused_is_final(tmp_path, tell, path):
    api = Api()
    api.add("j", "RUNNING")
    with followed(api, tmp_path, io.StringIO(), tell) as (_, _, end):
        wait_for("a request", lambda: api.seen, poll_s=0.01)
        api.answers[path] = (403, "Forbidden: Invalid authentication token")
        api.states["j"] = ["SUCCEEDED"]
        error = end()
    assert isinstance(error, SunspotError)
    assert str(tmp_path / "token") in str(error)
    assert not tell


@pytest.mark.parametrize("is_away", [False, True])
def test_a_head_that_comes_back_without_the_job_is_told(tmp_path, tell, is_away):
    api = Api()
    api.add("j", "RUNNING")
    with followed(api, tmp_path, io.StringIO(), tell) as (server, port, end), ExitStack() as again:
        wait_for("two requests", lambda: len(api.seen) > 1, poll_s=0.01)
        if is_away:
            server.close()
            wait_for("the loss to be told", lambda: tell, poll_s=0.01)
        del api.jobs["j"]
        if is_away:
            again.enter_context(served(api, port))
        error = end()
    assert isinstance(error, SunspotError)
    assert not isinstance(error, UsageError)
    assert "came back without job 'j'" in str(error)
    assert "sunspot jobs" in str(error)


@pytest.mark.parametrize("fault", [(500, "RuntimeError: GCS down"), Fault.DROP])
def test_a_head_that_stays_away_is_an_error_that_says_how_to_look(
    api, client, tell, monkeypatch, fault
):
    monkeypatch.setattr(following, "RECONNECT_TIMEOUT_S", 1.2)
    api.add("j", "RUNNING")
    api.faults[POLL] = [None, *[fault] * 1000]
    with pytest.raises(SunspotError) as caught:
        follow(client, "j", io.StringIO(), tell)
    message = str(caught.value)
    assert not isinstance(caught.value, UsageError)
    assert ("GCS down" in message) == (fault is not Fault.DROP)
    assert "may still run" in message
    assert "sunspot status dev" in message
    assert "sunspot logs j -f" in message
    assert len(tell) == 1, "that the connection was lost is told once"


def test_each_time_that_the_head_is_away_has_a_deadline_of_its_own(api, client, tell, monkeypatch):
    monkeypatch.setattr(following, "RECONNECT_TIMEOUT_S", 0.3)
    api.add("j", *["RUNNING"] * 6, "SUCCEEDED")
    api.faults[POLL] = [NO_AGENT, None, None] * 4
    assert follow(client, "j", io.StringIO(), tell).status == "SUCCEEDED"
    assert len(tell) == 8


def test_a_new_way_to_the_cluster_is_taken_when_the_old_one_is_gone(tmp_path, tell):
    api, out = Api(), io.StringIO()
    api.add("j", "RUNNING", log="one\n")
    ways = []

    def reconnect():
        if not ways:
            raise SunspotError("no SSH to the head: Connection refused")
        return ways[0]

    with followed(api, tmp_path, out, tell, reconnect=reconnect) as (server, port, end):
        wait_for("a request", lambda: api.seen, poll_s=0.01)
        server.close()
        wait_for("the loss to be told", lambda: tell, poll_s=0.01)
        api.add("j", "SUCCEEDED", log="one\ntwo\n")
        with served(api) as other:
            assert other != port
            ways.append(replace(handle_at(port, tmp_path), job_address=f"http://127.0.0.1:{other}"))
            assert end().status == "SUCCEEDED"
    assert out.getvalue() == "one\ntwo\n"


def test_a_way_is_not_looked_for_while_the_head_answers(running, tmp_path, tell):
    api, port = running
    api.add("j", "RUNNING", "SUCCEEDED")
    api.faults[POLL] = [NO_AGENT]

    def reconnect():
        raise HeadLostError("it was looked for")

    client = JobClient(handle_at(port, tmp_path), reconnect=reconnect)
    assert follow(client, "j", io.StringIO(), tell).status == "SUCCEEDED"


@pytest.mark.parametrize("error", [HeadLostError("it is dead"), NotUpError("it is down")])
def test_a_cluster_that_is_gone_for_good_ends_the_following(tmp_path, tell, error):
    api = Api()
    api.add("j", "RUNNING")

    def reconnect():
        raise error

    with followed(api, tmp_path, io.StringIO(), tell, reconnect=reconnect) as (server, _, end):
        wait_for("a request", lambda: api.seen, poll_s=0.01)
        server.close()
        assert end() is error


# A log that Ray cannot read


@pytest.mark.usefixtures("give_up")
@pytest.mark.parametrize("first", [b"", frame("one\n")])
def test_a_log_that_is_not_utf_8_is_followed_and_the_jobs_exit_code_counts(
    api, client, tell, first
):
    api.add("j", "RUNNING", log=b"one\ntw\xff\r\n\xe2\x82")
    api.tail = []
    api.cut_tails = [first + CLOSE_FRAME] * 100

    def end():
        api.logs["j"] += b"\xac\nend\xc3"
        api.jobs["j"]["driver_exit_code"] = 0
        api.states["j"] = ["SUCCEEDED"]

    out = Out("tw\ufffd\n", end)
    job = follow(client, "j", out, tell)
    assert (job.status, job.exit_code) == ("SUCCEEDED", 0)
    assert out.getvalue() == "one\ntw\ufffd\n€\nend\ufffd"
    assert not tell


def test_a_log_that_cannot_be_read_does_not_hide_how_the_job_ended(api, client, tell, monkeypatch):
    monkeypatch.setattr(following, "LOG_TIMEOUT_S", 0.1)
    monkeypatch.setattr(following, "LOG_POLL_S", 0.02)
    api.add("j", "FAILED", driver_exit_code=3)
    api.answers[LOGS] = (500, "Traceback\nClientConnectorError: Cannot connect to 10.0.0.9\n")
    job = follow(client, "j", io.StringIO(), tell)
    assert (job.status, job.exit_code) == ("FAILED", 3)
    (told,) = tell
    assert "10.0.0.9" in told


def test_the_end_of_a_log_is_waited_for(api, client, tell, monkeypatch):
    monkeypatch.setattr(following, "LOG_POLL_S", 0.02)
    api.add("j", "SUCCEEDED", log="one\n")
    api.faults[LOGS] = [NO_AGENT, *[Fault.DROP] * 3, NO_AGENT]
    out = io.StringIO()
    assert follow(client, "j", out, tell).status == "SUCCEEDED"
    assert out.getvalue() == "one\n"
    assert not tell
