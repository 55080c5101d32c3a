"""Submitting jobs: what Ray's job API is sent, and what its refusals become."""

import pytest
from job_api import refusal

from sunspot.errors import SunspotError
from sunspot.ray import jobs
from sunspot.ray.feasibility import Request

SUBMIT = ("POST", "/api/jobs/")
NO_AGENT = (500, "No available agent to submit job, please try again later.")


def test_submit_sends_rays_body(api, client):
    job_id = client.submit(
        ["python", "x.py", "--name", "a b", "$HOME", "it's"],
        request=Request(num_cpus=2, num_gpus=0.5, memory_gb=1.5, resources={"widget": 1}),
        runtime_env={"env_vars": {"A": "1"}},
        job_id="mine",
    )
    assert job_id == "mine"
    assert api.body(*SUBMIT) == {
        "entrypoint": """exec python x.py --name 'a b' '$HOME' 'it'"'"'s'""",
        "submission_id": "mine",
        "runtime_env": {"env_vars": {"A": "1"}},
        "metadata": {},
        "entrypoint_num_cpus": 2,
        "entrypoint_num_gpus": 0.5,
        "entrypoint_memory": 1_610_612_736,
        "entrypoint_resources": {"widget": 1},
    }


def test_rays_own_model_takes_the_body(api, client):
    from ray.dashboard.modules.job.common import JobSubmitRequest

    client.submit(["true"], request=Request(memory_gb=0.5), runtime_env={}, job_id="a")
    taken = JobSubmitRequest(**api.body(*SUBMIT))
    assert taken.entrypoint_memory == 2**29
    assert taken.submission_id == "a"


def test_a_job_that_asks_for_nothing_sends_nothing(api, client):
    job_id = client.submit(["python", "primes.py"], request=Request(), runtime_env={})
    body = api.body(*SUBMIT)
    assert body["submission_id"] == job_id
    assert job_id.startswith("primes-")
    needs = ["num_cpus", "num_gpus", "memory", "resources"]
    assert [body[f"entrypoint_{need}"] for need in needs] == [None] * 4


def test_an_id_that_is_taken_is_a_usage_error_with_a_way_out(api, client):
    api.add("mine", "RUNNING")
    message = refusal(client.submit, ["true"], request=Request(), runtime_env={}, job_id="mine")
    assert "there is a job 'mine' already" in message
    assert "--name" in message
    assert "sunspot logs mine" in message


def test_another_refusal_to_submit_is_shown_as_it_is(api, client):
    api.answers[SUBMIT] = (400, "Traceback\nValueError: bad id\n")
    with pytest.raises(SunspotError, match=r"^ValueError: bad id$"):
        client.submit(["true"], request=Request(), runtime_env={})


def test_the_agent_of_a_head_that_has_just_come_up_is_waited_for(api, client, monkeypatch):
    monkeypatch.setattr(jobs, "AGENT_POLL_S", 0.0)
    api.faults[SUBMIT] = [NO_AGENT, NO_AGENT]
    assert client.submit(["true"], request=Request(), runtime_env={}, job_id="mine") == "mine"
    assert list(api.jobs) == ["mine"]


def test_an_agent_that_never_comes_up_is_told(api, client, monkeypatch):
    monkeypatch.setattr(jobs, "AGENT_POLL_S", 0.0)
    monkeypatch.setattr(jobs, "AGENT_TIMEOUT_S", 0.1)
    api.answers[SUBMIT] = NO_AGENT
    with pytest.raises(SunspotError, match="No available agent"):
        client.submit(["true"], request=Request(), runtime_env={})
