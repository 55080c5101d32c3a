"""A job API that answers, and a client of it."""

import threading
from importlib import import_module

import pytest
from job_api import DEADLINE_S, Told, handle_at, serving

from sunspot.ray.jobs import JobClient


@pytest.fixture
def running():
    with serving() as (api, port):
        yield api, port


@pytest.fixture
def api(running):
    return running[0]


@pytest.fixture
def client(running, tmp_path):
    return JobClient(handle_at(running[1], tmp_path))


@pytest.fixture
def tell():
    return Told()


@pytest.fixture
def give_up(api):
    """Ends a job that is followed in vain, so that a test fails and does not hang."""
    import_module("aiohttp")  # following imports it: not in the time that the test has
    ending = threading.Timer(DEADLINE_S, lambda: api.states.update(j=["FAILED"]))
    ending.start()
    yield
    ending.cancel()
