"""Azure's scale sets behind a stand-in for ARM."""

import pytest
from azure_model.arm import serving
from scale_set_machines import SETS, machines_of


@pytest.fixture
def arm():
    with serving() as made:
        made.add(*SETS.values())
        yield made


@pytest.fixture
def machines(arm):
    return machines_of(arm)
