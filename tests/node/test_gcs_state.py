"""Where the GCS keeps its state reaches the GCS, and no job."""

from types import SimpleNamespace

import pytest

from sunspot.node import raylet
from sunspot.node.local import ray_start

STATE = {"gcs_storage": "rocksdb", "gcs_storage_path": "/state/gcs"}
HOOKS = (raylet.hide_gcs_state, ray_start.stay_on_this_host, raylet.start_hook)


@pytest.fixture
def variables(monkeypatch):
    for name, value in STATE.items():
        monkeypatch.setenv(f"RAY_{name}", value)
    monkeypatch.setenv(ray_start.LOOPBACK_STAYS, "")
    monkeypatch.setattr(raylet.ray._private.node, "Node", raylet.ray._private.node.Node)
    return raylet.os.environ


@pytest.mark.parametrize("hook", HOOKS)
def test_a_heads_settings_become_its_configuration(hook, variables):
    params = SimpleNamespace(_system_config={"other": 1})
    hook(params, head=True)
    assert params._system_config == {"other": 1} | STATE
    assert not [name for name in variables if "gcs_storage" in name]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_worker_gets_no_configuration(hook, variables):
    params = SimpleNamespace(_system_config=None)
    hook(params, head=False)
    assert params._system_config is None
    assert not [name for name in variables if "gcs_storage" in name]


def test_a_head_that_keeps_no_state_stays_as_it_is(monkeypatch):
    params = SimpleNamespace(_system_config=None)
    raylet.hide_gcs_state(params, head=True)
    assert params._system_config is None
