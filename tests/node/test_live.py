"""The settings that a cluster follows while it runs: the user data of the head's VM."""

import json
from dataclasses import replace
from functools import partial
from unittest import mock

import pytest
from azure_model.arm import GROUP, HEAD
from azure_model.imds import USER_DATA, Scripted
from azure_model.resource_ids import SUBSCRIPTION
from scale_set_machines import GPU, SETS, TWIN

from sunspot.node import asleep, autoscaler_config
from sunspot.node.autoscaler import MachinesProvider
from sunspot.node.azure.live import LiveSettings
from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError

MORE = "sunspot-test-more"


def config(path, arm, *, maximum=4, sets=SETS, fixed=()):
    """The autoscaler's config of a cluster whose groups have this maximum."""

    def node_type(minimum=0, maximum=0):
        return autoscaler_config.node_type(
            resources={"CPU": 1}, labels={}, minimum=minimum, maximum=maximum, priority=0
        )

    return autoscaler_config.config(
        name="test",
        machines="sunspot.node.azure.scale_sets.create",
        settings={
            "live": "sunspot.node.azure.live.create",
            "subscription_id": SUBSCRIPTION,
            "resource_group": GROUP,
            "identity_client_id": "client",
            "head": HEAD,
            "head_type": "head",
            "scale_sets": dict(sets),
            "maximums": dict.fromkeys(sets, maximum),
            "fixed": list(fixed),
            "imds_url": arm.url,
            "arm_url": arm.url,
        },
        config_file=str(path),
        node_types={"head": node_type(), **{name: node_type(0, maximum) for name in sets}},
        head_type="head",
        twins={"gpu": "gpu-on-demand"} if "gpu-on-demand" in sets else {},
    )


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config.yaml"


@pytest.fixture
def provider(arm, file):
    made = config(file, arm)
    file.write_text(json.dumps(made))
    arm.imds.user_data = LiveSettings(autoscaler=made).text()
    provider = MachinesProvider(made["provider"], "test")
    provider.non_terminated_nodes({})
    return provider


def limits(file):
    types = json.loads(file.read_text())["available_node_types"]
    return {name: (kind["min_workers"], kind["max_workers"]) for name, kind in types.items()}


def launch(provider, node_type, count=1):
    provider.create_node_with_resources_and_labels(
        {}, {"ray-user-node-type": node_type}, count, {}, {}
    )


def launch_twin(provider, count=1):
    """On-demand machines, which Ray gets after spot was refused; that was long ago then."""
    provider._fallback.refused("gpu")
    try:
        launch(provider, "gpu-on-demand", count)
    finally:
        provider._fallback._refused_at.clear()
        provider._fallback._short.clear()


def test_another_maximum_reaches_ray_and_the_scale_sets(provider, arm, file):
    launch(provider, "gpu", 4)
    with pytest.raises(LaunchDeniedError, match="maximum of 4"):
        launch(provider, "gpu")
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, maximum=8)).text()
    provider.non_terminated_nodes({})
    assert limits(file)["gpu"] == (0, 8)
    assert json.loads(file.read_text())["max_workers"] == 8
    launch(provider, "gpu")
    assert arm.sets[GPU].capacity == 5


def test_a_size_by_hand_that_is_the_same_is_news(provider, arm, file):
    """As after `sunspot scale` of a denied or paused group: the next launch is asked for."""
    launch(provider, "gpu", 4)
    for _ in range(2):  # the second one without asking Azure
        with pytest.raises(LaunchDeniedError, match="maximum of 4"):
            launch(provider, "gpu")
    again = LiveSettings(autoscaler=config(file, arm), scaled={"gpu": {"nonce": "2"}})
    arm.imds.user_data = again.text()
    provider.non_terminated_nodes({})
    provider._fallback.check("gpu")


def test_a_group_at_its_maximum_is_no_refusal_of_azures(provider, arm, file):
    """Ray's demand may be above it all the time."""
    provider._joins = joins = mock.Mock(paused=lambda _: None)
    launch(provider, "gpu", 4)
    with pytest.raises(LaunchDeniedError):
        launch(provider, "gpu")
    assert joins.teller.refused.call_count == 0


def test_a_full_group_is_asked_again_as_soon_as_a_machine_goes(provider, arm):
    """As after an eviction, whose node Ray replaces while the machine is still there."""
    launch(provider, "gpu", 4)
    provider.non_terminated_nodes({})
    for _ in range(2):
        with pytest.raises(LaunchDeniedError, match="has its maximum"):
            launch(provider, "gpu")
    asked = len(arm.requests)
    with pytest.raises(LaunchDeniedError, match="has its maximum"):
        launch(provider, "gpu")
    assert len(arm.requests) == asked
    arm.evict(arm.vms[next(name for name in arm.vms if name != HEAD)])
    provider.non_terminated_nodes({})
    launch(provider, "gpu")
    assert arm.sets[GPU].capacity == 4


def test_a_spot_group_and_its_twin_have_one_maximum(provider, arm, file):
    launch(provider, "gpu", 3)
    launch_twin(provider, 4)
    assert (arm.sets[GPU].capacity, arm.sets[TWIN].capacity) == (3, 1)
    for more in (partial(launch, provider, "gpu"), partial(launch_twin, provider)):
        with pytest.raises(LaunchDeniedError, match="has its maximum"):
            more()
    # Where spot had all of it and is refused then, the twin is asked at once.
    arm.evict(arm.vms[next(name for name in arm.vms if name.startswith(f"{GPU}_"))])
    provider.non_terminated_nodes({})
    launch_twin(provider, 4)
    assert (arm.sets[GPU].capacity, arm.sets[TWIN].capacity) == (2, 2)


def test_on_demand_machines_come_only_while_spot_is_refused(provider, arm):
    """Ray wants both at once where more work waits than all spot machines can take."""
    with pytest.raises(LaunchDeniedError, match="only while Azure refuses spot"):
        launch(provider, "gpu-on-demand")
    arm.refusals[GPU] = [(202, "AllocationFailed", "no capacity")]
    with pytest.raises(LaunchRefusedError):
        launch(provider, "gpu")
    launch(provider, "gpu-on-demand")
    assert (arm.sets[GPU].capacity, arm.sets[TWIN].capacity) == (0, 1)


def test_ray_hears_of_on_demand_machines_only_while_spot_is_refused(provider, file):
    """Otherwise it would ask for them at each tick, and tell each driver so."""
    assert limits(file) == {"head": (0, 0), "gpu": (0, 4), "gpu-on-demand": (0, 0)}
    launch(provider, "gpu", 1)
    provider._fallback.refused("gpu")
    provider.non_terminated_nodes({})
    assert limits(file)["gpu-on-demand"] == (0, 3)
    launch(provider, "gpu-on-demand", 2)
    provider._fallback._refused_at.clear()
    provider._fallback._short.clear()
    provider.non_terminated_nodes({})
    assert limits(file) == {"head": (0, 0), "gpu": (0, 4), "gpu-on-demand": (0, 2)}


def test_the_minimum_comes_back_from_spot_while_on_demand_machines_are_there(provider, arm, file):
    launch_twin(provider, 4)
    with pytest.raises(LaunchDeniedError, match="has its maximum"):
        launch(provider, "gpu")
    least = config(file, arm)
    least["available_node_types"]["gpu"]["min_workers"] = 2
    arm.imds.user_data = LiveSettings(autoscaler=least).text()
    provider.non_terminated_nodes({})
    launch(provider, "gpu", 4)
    assert (arm.sets[GPU].capacity, arm.sets[TWIN].capacity) == (2, 4)


def test_a_new_group_can_grow(provider, arm, file):
    arm.add(MORE)
    sets = {**SETS, "more": MORE}
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, sets=sets)).text()
    provider.non_terminated_nodes({})
    launch(provider, "more")
    (name,) = (one for one in provider.non_terminated_nodes({}) if one.startswith(MORE))
    assert provider.node_tags(name)["ray-user-node-type"] == "more"


def test_a_removed_group_keeps_its_type_until_its_nodes_are_gone(provider, arm, file):
    launch_twin(provider)
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, sets={"gpu": GPU})).text()
    nodes = provider.non_terminated_nodes({})
    assert [name for name in nodes if name.startswith(TWIN)]
    # Ray would stop a node above the maximum, whatever runs on it.
    assert limits(file) == {"head": (0, 0), "gpu": (0, 4), "gpu-on-demand": (0, 1)}
    with pytest.raises(LaunchDeniedError, match="maximum of 0"):
        launch_twin(provider)
    provider.terminate_nodes([name for name in nodes if name != HEAD])
    arm.wait_for_loss(*(name for name in nodes if name != HEAD))
    assert provider.non_terminated_nodes({}) == [HEAD]
    assert limits(file)["gpu-on-demand"] == (0, 0)


def test_nodes_above_a_lower_maximum_may_stay_until_they_are_idle(provider, arm, file):
    launch(provider, "gpu", 3)
    provider.non_terminated_nodes({})
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, maximum=1)).text()
    for _ in range(2):
        provider.non_terminated_nodes({})
        assert limits(file)["gpu"] == (0, 3)
        assert json.loads(file.read_text())["max_workers"] == 3
    with pytest.raises(LaunchDeniedError, match="maximum of 1"):
        launch(provider, "gpu")
    arm.evict(arm.vms[next(name for name in arm.vms if name != HEAD)])
    provider.non_terminated_nodes({})
    assert limits(file)["gpu"] == (0, 2)


def test_no_node_stays_that_ray_does_not_call_idle_when_the_head_is_to_stop(provider, arm, file):
    launch(provider, "gpu", 2)
    launch_twin(provider)
    provider.non_terminated_nodes({})
    awake = arm.imds.user_data
    arm.imds.user_data = LiveSettings(autoscaler=asleep.closed(config(file, arm))).text()
    for _ in range(2):
        provider.non_terminated_nodes({})
        assert limits(file) == dict.fromkeys(("head", *SETS), (0, 0))
        assert json.loads(file.read_text())["max_workers"] == 0
    arm.imds.user_data = awake
    provider.non_terminated_nodes({})
    assert limits(file) == {"head": (0, 0), "gpu": (0, 4), "gpu-on-demand": (0, 1)}


def test_a_group_that_is_fixed_from_now_on_is_left_alone(provider, arm, file):
    launch_twin(provider, 2)
    fixed = config(file, arm, sets={"gpu": GPU}, fixed=["gpu-on-demand"])
    arm.imds.user_data = LiveSettings(autoscaler=fixed).text()
    assert provider.non_terminated_nodes({}) == [HEAD]
    assert limits(file) == {"head": (0, 0), "gpu": (0, 4)}
    assert arm.sets[TWIN].capacity == 2
    assert {vm.state for name, vm in arm.vms.items() if name != HEAD} == {"Succeeded"}


def test_a_launch_that_fails_after_its_group_became_fixed_leaves_the_set_alone(provider, arm, file):
    launch_twin(provider, 2)
    fixed = config(file, arm, sets={"gpu": GPU}, fixed=["gpu-on-demand"])
    arm.refusals[TWIN] = [(202, "AllocationFailed", "no capacity")]
    arm.on_poll = lambda *_: provider._machines.follow({**fixed["provider"], "minimums": {}})
    with pytest.raises(LaunchRefusedError):
        launch_twin(provider)
    # One for each launch: what is not listed is not counted, and not given back.
    assert [method for method, path in arm.requests if TWIN in path].count("PATCH") == 2


def test_a_launch_that_waited_while_its_group_became_fixed_is_denied(provider, arm, file):
    fixed = config(file, arm, sets={"gpu": GPU}, fixed=["gpu-on-demand"])

    class HeldUntilThen:
        def acquire(self, timeout):  # noqa: ARG002 - a lock's own
            provider._machines.follow({**fixed["provider"], "minimums": {}})
            return True

        def release(self):
            pass

    locks = provider._machines._locks
    locks[TWIN] = replace(locks[TWIN], launch=HeldUntilThen())
    with pytest.raises(LaunchDeniedError, match="no longer"):
        launch_twin(provider)
    assert arm.sets[TWIN].capacity == 0


def test_another_size_is_not_refused_for_the_one_before(provider, arm, file):
    provider._fallback.refused("gpu")
    other = config(file, arm)
    other["available_node_types"]["gpu"]["resources"] = {"CPU": 2}
    arm.imds.user_data = LiveSettings(autoscaler=other).text()
    provider.non_terminated_nodes({})
    launch(provider, "gpu")


def test_a_removed_group_comes_back(provider, arm, file):
    both = arm.imds.user_data
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, sets={"gpu": GPU})).text()
    provider.non_terminated_nodes({})
    arm.imds.user_data = both
    provider.non_terminated_nodes({})
    launch_twin(provider)
    assert arm.sets[TWIN].capacity == 1


def test_a_refused_spot_group_stays_cooled_when_the_settings_change(provider, arm, file):
    provider._fallback.refused("gpu")
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, maximum=6)).text()
    provider.non_terminated_nodes({})
    found = json.loads(file.read_text())["available_node_types"]["gpu"]
    assert (found["max_workers"], found["priority"]) == (6, autoscaler_config.COOLED_PRIORITY)


@pytest.mark.parametrize("wrong", ["", "{", '{"prices": {}}', '{"autoscaler": 1, "prices": {}}'])
def test_wrong_settings_change_nothing_and_are_told_once(provider, arm, file, wrong, caplog):
    before = file.read_text()
    arm.imds.user_data = wrong
    for _ in range(3):
        provider.non_terminated_nodes({})
    assert file.read_text() == before
    refusals = [line for line in caplog.messages if "the user data is refused" in line]
    assert len(refusals) == 1
    launch(provider, "gpu")


def test_without_an_answer_of_imds_nothing_changes(provider, arm, file):
    before = file.read_text()
    arm.imds.answers[USER_DATA] += [Scripted(status=503)] * 2
    provider.non_terminated_nodes({})
    provider.non_terminated_nodes({})
    assert file.read_text() == before
