"""What looks on while a job is followed (tests/job_api.py stands in for Ray's job API)."""

import io
import threading

import pytest
from job_api import DEADLINE_S
from waiting import wait_for

from sunspot.errors import SunspotError
from sunspot.ray import following
from sunspot.ray.following import follow
from sunspot.ray.watching import JobWatch


class Looks:
    """What watches a job: what was printed, and the jobs that it was shown."""

    def __init__(self, error=None):
        self.text, self.jobs, self.error = "", [], error

    def printed(self, text):
        self.text += text

    def running(self, job):
        self.jobs.append(job)
        if self.error:
            raise self.error


@pytest.mark.usefixtures("give_up")
@pytest.mark.parametrize("error", [None, SunspotError("the state API is away")])
def test_what_watches_a_job_gets_its_output_and_the_job_while_it_runs(
    api, client, tell, monkeypatch, error
):
    monkeypatch.setattr(following, "LOOK_S", 0.0)
    api.tail = ["one\n"]
    api.add("j", "RUNNING", log="one\ntwo\n")
    looks = Looks(error)
    done = threading.Thread(
        target=lambda: (
            wait_for("a look at the job", lambda: looks.jobs),
            api.states.update(j=["SUCCEEDED"]),
        )
    )
    done.start()
    assert follow(client, "j", io.StringIO(), tell, looks).status == "SUCCEEDED"
    done.join()
    assert looks.text == "one\ntwo\n"
    assert {job.status for job in looks.jobs} == {"RUNNING"}
    assert not tell


def test_a_short_job_is_not_looked_at(api, client, tell, monkeypatch):
    monkeypatch.setattr(following, "LOOK_S", DEADLINE_S)  # a busy machine is not a long job
    api.add("j", "RUNNING", "RUNNING", "SUCCEEDED", log="one\n")
    looks = Looks()
    follow(client, "j", io.StringIO(), tell, looks)
    assert (looks.text, looks.jobs) == ("one\n", [])


@pytest.mark.usefixtures("give_up")
def test_a_look_that_hangs_does_not_keep_back_the_end_of_the_job(api, client, tell, monkeypatch):
    monkeypatch.setattr(following, "LOOK_S", 0.0)
    monkeypatch.setattr(following, "LOOK_END_S", 0.0)
    looking, answer = threading.Event(), threading.Event()

    class Hanging(Looks):
        def running(self, job):
            api.states.update(j=["SUCCEEDED"])
            looking.set()
            answer.wait(DEADLINE_S)
            super().running(job)

    api.add("j", "RUNNING", log="one\n")
    looks = Hanging()
    try:
        assert follow(client, "j", io.StringIO(), tell, looks).status == "SUCCEEDED"
        assert looking.is_set()
        assert looks.jobs == []
    finally:
        answer.set()


@pytest.mark.parametrize(
    ("words", "code", "tells"),
    [
        (("python", "p.py"), 'subprocess.run(["ray", "stop", "--force"])\n', True),
        (("python", "p.py"), 'os.system("ray stop")\n', True),
        (("bash", "-c", "ray stop; python p.py"), "", True),
        (("python", "p.py"), "# after it: ray stop\nray.shutdown()\n", False),
        (("python", "p.py"), "array.stop = ray\n", False),
        (("python", "p.py"), "import ray\nstop = 5\nsend(ray, stop)\n", False),
        (("python", "elsewhere.py"), "ray stop", False),  # not there: Ray will say so
    ],
)
def test_a_program_that_would_end_the_clusters_nodes_is_told_of(
    client, tell, tmp_path, words, code, tells
):
    (tmp_path / "p.py").write_text(code)
    JobWatch(client, [], tell, tell).program(words, tmp_path)
    assert ["ray stop" in line for line in tell] == [True] * tells
