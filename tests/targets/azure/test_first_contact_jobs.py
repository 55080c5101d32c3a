"""The probe as jobs on the head, against a stand-in for the job API; what the docs say of it."""

import json
import re
from pathlib import Path

import pytest
from job_api import Fault, handle_at, serving

from sunspot.errors import SunspotError
from sunspot.targets.azure.first_contact import head_jobs, on_site
from sunspot.targets.azure.first_contact.head_jobs import HeadJobs
from sunspot.targets.azure.first_contact.probe import MARK
from sunspot.targets.azure.first_contact.steps import NotTriedError

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture
def api():
    with serving() as (api, port):
        api.port = port  # type: ignore[attr-defined]
        yield api


@pytest.fixture
def jobs(api, tmp_path, monkeypatch):
    monkeypatch.setattr(head_jobs, "POLL_S", 0.01)
    return HeadJobs(lambda: handle_at(api.port, tmp_path), "spot", "/head/config.yaml")


def says(api, *answers, then=None):
    """Has each job print these answers, among other lines; `then` ends it."""

    def program(entrypoint, say):
        api.entrypoints = [*getattr(api, "entrypoints", []), entrypoint]
        for answer in answers:
            say("a line of Ray's")
            say(MARK + json.dumps(answer))
        if then is not None:
            raise RuntimeError(then)

    api.program = program


def said(outcome):
    return {"outcome": outcome, "detail": f"it is {outcome}"}


def test_a_trial_runs_once_and_is_asked_for_each_of_its_parts(jobs, api):
    says(api, {"etag": said("ok"), "poll": said("failed"), "other": said("not tried")})
    assert jobs.part("changes", "etag") == "it is ok"
    with pytest.raises(SunspotError, match="it is failed"):
        jobs.part("changes", "poll")
    with pytest.raises(NotTriedError, match="it is not tried"):
        jobs.part("changes", "other")
    with pytest.raises(SunspotError, match="nothing of it"):
        jobs.part("changes", "nothing of it")
    (entrypoint,) = api.entrypoints
    assert "probe.py changes --config /head/config.yaml --group spot" in entrypoint


def test_only_the_probe_is_sent(jobs, api):
    says(api, {"results": said("ok")})
    jobs.part("results", "results")
    (package,) = api.packages.values()
    assert b"probe.py" in package
    assert len(package) < 20_000


def test_what_is_said_on_the_way_is_heard_once(jobs, api):
    says(api, {"worker": "vm"}, {"eviction": said("ok")})
    heard = []
    assert jobs.run("eviction", heard.append) == {"eviction": said("ok")}
    assert heard == [{"worker": "vm"}]


def test_a_probe_that_fails_says_why_each_time_and_runs_once(jobs, api):
    says(api, then="ModuleNotFoundError: no requests here")
    for part in ("etag", "poll"):
        with pytest.raises(SunspotError, match="no requests here"):
            jobs.part("changes", part)
    assert len(api.jobs) == 1


def test_what_the_probe_calls_an_error_is_one(jobs, api):
    says(api, {"error": "ARM does not answer"}, then="exit code 1")
    with pytest.raises(SunspotError, match="ARM does not answer"):
        jobs.part("changes", "etag")


def test_a_connection_that_breaks_is_opened_again(jobs, api):
    says(api, {"results": said("ok")})
    api.faults["GET", "/api/jobs/one"] = [Fault.DROP, Fault.DROP]
    real = head_jobs.JobClient.submit

    def submit(client, words, **more):
        return real(client, words, **more, job_id="one")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_jobs.JobClient, "submit", submit)
        assert jobs.part("results", "results") == "it is ok"
    assert api.faults["GET", "/api/jobs/one"] == []


def test_a_head_that_stays_silent_is_an_error(jobs, api, monkeypatch):
    monkeypatch.setattr(head_jobs, "SILENCE_S", 0.05)
    says(api, {"results": said("ok")})
    api.faults["POST", "/api/jobs/"] = [Fault.DROP]
    with pytest.raises(SunspotError, match="does not answer"):
        jobs.part("results", "results")


def test_a_probe_that_does_not_end_is_stopped(jobs, api, monkeypatch):
    monkeypatch.setattr(head_jobs, "JOB_S", 0)
    api.submitted = [*["RUNNING"] * 8, "STOPPED"]
    with pytest.raises(SunspotError, match="did not end"):
        jobs.part("results", "results")
    assert any(call.endswith("/stop") for call in api.calls())


@pytest.mark.parametrize("line", [f"{MARK}{{", f"{MARK}not json"])
def test_half_a_line_is_read_once_it_is_whole(line):
    assert head_jobs._answers(f"{MARK}{json.dumps({'a': 1})}\n{line}") == [{"a": 1}]


# The documentation

STEPS = {
    value
    for name, value in vars(on_site).items()
    if name.isupper() and isinstance(value, str) and name not in {"REGISTRIES", "CONTAINER"}
}


def rows(page, heading):
    """The cells of the table below a heading."""
    text = (DOCS / page).read_text().partition(heading)[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[1:]]


def test_each_step_is_described_and_no_other():
    described = {row[0].strip("`") for row in rows("doctor.md", "\n## First contact")}
    assert described == STEPS


def test_each_row_of_what_was_not_run_names_steps_or_none():
    table = rows("azure.md", "\n## What has been run")
    assert table
    named = [set(re.findall(r"`([^`]+)`", row[2])) for row in table]
    for row, steps in zip(table, named, strict=True):
        assert steps & STEPS or row[2].startswith("none"), row
    assert set().union(*named) >= STEPS
