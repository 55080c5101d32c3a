"""The autoscaler's provider over scale sets: spot first, on-demand where spot is refused."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure_model.arm import GROUP, HEAD
from azure_model.resource_ids import SUBSCRIPTION
from scale_set_machines import GPU, SETS

from sunspot.node import autoscaler_config
from sunspot.node.autoscaler import MachinesProvider
from sunspot.node.azure.arm import ArmError
from sunspot.node.fallback import Fallback
from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError

NO_SIZE = (409, "SkuNotAvailable", "not available in uksouth")
NO_CAPACITY = (202, "AllocationFailed", "no capacity")


@pytest.fixture
def config_file(tmp_path):
    def node_type(priority, minimum=0):
        return {
            "resources": {"CPU": 1},
            "min_workers": minimum,
            "max_workers": 4,
            "priority": priority,
        }

    config = autoscaler_config.config(
        name="test",
        machines="sunspot.node.azure.scale_sets.create",
        settings={},
        config_file=str(tmp_path / "config.yaml"),
        node_types={
            "head": node_type(0),
            "gpu": node_type(autoscaler_config.SPOT_PRIORITY, 2),
            "gpu-on-demand": node_type(autoscaler_config.ON_DEMAND_PRIORITY),
        },
        head_type="head",
    )
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))
    return path


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(Fallback.__init__, "__kwdefaults__", {"clock": made})
    return made


@pytest.fixture
def provider(arm, config_file, clock):
    return MachinesProvider(
        {
            "machines": "sunspot.node.azure.scale_sets.create",
            "subscription_id": SUBSCRIPTION,
            "resource_group": GROUP,
            "identity_client_id": "client",
            "head": HEAD,
            "head_type": "head",
            "scale_sets": SETS,
            "maximums": {"gpu": 4, "gpu-on-demand": 4},
            "twins": {"gpu": "gpu-on-demand"},
            "config_file": str(config_file),
            "imds_url": arm.url,
            "arm_url": arm.url,
        },
        "test",
    )


def launch(provider, node_type, count=1):
    provider.create_node_with_resources_and_labels(
        {}, {"ray-user-node-type": node_type}, count, {}, {}
    )


def steering(config_file):
    types = json.loads(config_file.read_text())["available_node_types"]
    return {
        name: (kind["priority"], kind["min_workers"])
        for name, kind in types.items()
        if name != "head"
    }


def test_ray_gets_ids_types_and_states(provider, arm):
    launch(provider, "gpu", 2)
    head, *workers = provider.non_terminated_nodes({})
    assert head == HEAD
    assert provider.node_tags(HEAD)["ray-node-type"] == "head"
    for name in workers:
        assert provider.node_tags(name)["ray-user-node-type"] == "gpu"
        assert provider.is_running(name)
    provider.terminate_nodes([HEAD, workers[0]])
    arm.wait_for_loss(workers[0])
    assert provider.non_terminated_nodes({}) == [HEAD, workers[1]]


def test_one_tick_asks_azure_once_a_page(provider, arm):
    launch(provider, "gpu", 3)
    arm.requests.clear()
    for name in provider.non_terminated_nodes({}):
        provider.node_tags(name)
        provider.is_running(name)
    assert len(arm.requests) == 2


def test_a_refused_spot_type_comes_after_its_twin_until_it_has_cooled_down(
    provider, arm, config_file, clock
):
    launch(provider, "gpu", 2)
    provider.non_terminated_nodes({})
    assert steering(config_file) == {"gpu": (1, 2), "gpu-on-demand": (0, 0)}
    arm.refusals[GPU] = [NO_SIZE]
    with pytest.raises(LaunchRefusedError, match="SkuNotAvailable"):
        launch(provider, "gpu")
    assert steering(config_file) == {"gpu": (-1, 2), "gpu-on-demand": (0, 0)}
    clock.now += 599
    provider.non_terminated_nodes({})
    assert steering(config_file)["gpu"] == (-1, 2)
    clock.now += 2
    provider.non_terminated_nodes({})
    assert steering(config_file) == {"gpu": (1, 2), "gpu-on-demand": (0, 0)}


def test_azure_is_not_asked_at_every_tick_for_what_it_refused(provider, arm, clock):
    arm.refusals[GPU] = [NO_SIZE]
    with pytest.raises(LaunchRefusedError):
        launch(provider, "gpu")
    arm.requests.clear()
    with pytest.raises(LaunchRefusedError, match="requested again in"):
        launch(provider, "gpu")
    assert arm.requests == []
    launch(provider, "gpu-on-demand")
    clock.now += 61
    launch(provider, "gpu")
    assert arm.sets[GPU].capacity == 1


def test_the_twin_stands_in_for_the_minimum_that_spot_does_not_give(
    provider, arm, config_file, clock
):
    launch(provider, "gpu")
    provider.non_terminated_nodes({})
    arm.refusals[GPU] = [NO_CAPACITY]
    with pytest.raises(LaunchRefusedError):
        launch(provider, "gpu")
    assert steering(config_file) == {"gpu": (-1, 2), "gpu-on-demand": (0, 1)}
    # Not before spot gives it again: what stands in is not dropped in between.
    clock.now += 700
    provider.non_terminated_nodes({})
    assert steering(config_file) == {"gpu": (1, 2), "gpu-on-demand": (0, 1)}
    launch(provider, "gpu")
    provider.non_terminated_nodes({})
    assert steering(config_file) == {"gpu": (1, 2), "gpu-on-demand": (0, 0)}


def test_a_set_with_its_maximum_is_not_asked_at_every_tick(provider, arm, config_file):
    launch(provider, "gpu", 4)
    before = steering(config_file)
    for _ in range(2):
        with pytest.raises(LaunchDeniedError, match="its maximum of 4 machines"):
            launch(provider, "gpu")
    assert arm.sets[GPU].capacity == 4
    assert steering(config_file) == before
    assert [method for method, _ in arm.requests].count("PATCH") == 1


def test_an_unclear_answer_of_azure_is_not_a_refusal(provider, arm, config_file, monkeypatch):
    monkeypatch.setattr("sunspot.node.azure.scale_sets.CHANGE_TIMEOUT_S", 0.0)
    arm.refusals[GPU] = [(409, "OperationNotAllowed", "the set is being deleted")]
    with pytest.raises(ArmError, match="OperationNotAllowed"):
        launch(provider, "gpu")
    provider.non_terminated_nodes({})
    assert steering(config_file)["gpu"] == (1, 2)
    launch(provider, "gpu")
    assert arm.sets[GPU].capacity == 1


@pytest.mark.parametrize("status", [403, 202])
def test_a_missing_right_moves_no_work_to_on_demand_machines(
    provider, arm, config_file, clock, caplog, status
):
    arm.refusals[GPU] = [(status, "AuthorizationFailed", "no role")]
    with pytest.raises(LaunchDeniedError, match="AuthorizationFailed"):
        launch(provider, "gpu")
    provider.non_terminated_nodes({})
    assert steering(config_file) == {"gpu": (1, 2), "gpu-on-demand": (0, 0)}
    assert "AuthorizationFailed" in caplog.text
    arm.requests.clear()
    with pytest.raises(LaunchDeniedError, match="AuthorizationFailed"):
        launch(provider, "gpu")
    assert arm.requests == []
    clock.now += 61
    launch(provider, "gpu")
    assert arm.sets[GPU].capacity == 1


def test_a_superseded_launch_cools_nothing_down(provider, arm, config_file, monkeypatch):
    monkeypatch.setattr("sunspot.node.azure.scale_sets.CHANGE_PAUSE_S", 0.02)

    def once():
        arm.on_poll = lambda: None
        arm.preempt(GPU, capacity=0)

    arm.on_poll = once
    with pytest.raises(ArmError, match="0 of 1 machines came"):
        launch(provider, "gpu")
    provider.non_terminated_nodes({})
    assert steering(config_file) == {"gpu": (1, 2), "gpu-on-demand": (0, 0)}
    launch(provider, "gpu")
    assert arm.sets[GPU].capacity == 1


def test_ray_reads_a_whole_file_at_any_time(provider, arm, config_file, clock):
    stop = threading.Event()

    def write():
        while not stop.is_set():
            arm.refusals[GPU] = [NO_SIZE]
            clock.now += 61
            with pytest.raises(LaunchRefusedError):
                launch(provider, "gpu")
            clock.now += 601
            provider.non_terminated_nodes({})

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(300):
                assert json.loads(config_file.read_text())["cluster_name"] == "test"
        finally:
            stop.set()
        writing.result(timeout=60)
