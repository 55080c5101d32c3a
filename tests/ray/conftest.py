"""A job API that answers, and a client of it."""

import pytest
from job_api import Told, handle_at, serving

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
