"""Azure's scale sets behind a stand-in for ARM."""

import pytest
from azure_model.arm import serving
from scale_set_machines import SETS, machines_of

from sunspot.node.azure import arm as azure_arm


@pytest.fixture
def arm(monkeypatch):
    # What an operation of Azure's takes is seconds; the stand-in's ends when it is asked for.
    monkeypatch.setattr(azure_arm, "POLL_INTERVAL_S", 0.05)
    with serving() as made:
        made.add(*SETS.values())
        yield made


@pytest.fixture
def machines(arm):
    return machines_of(arm)
