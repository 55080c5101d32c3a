"""The settings that a cluster follows while it runs: the user data of the head's VM."""

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from azure_model.arm import GROUP, HEAD
from azure_model.imds import USER_DATA, Scripted
from azure_model.resource_ids import SUBSCRIPTION
from scale_set_machines import GPU, SETS, TWIN

from sunspot.node import autoscaler_config
from sunspot.node.autoscaler import MachinesProvider
from sunspot.node.azure import live
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.live import Live, LiveSettings, LiveSettingsError
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


def test_another_maximum_reaches_ray_and_the_scale_sets(provider, arm, file):
    launch(provider, "gpu", 4)
    with pytest.raises(LaunchDeniedError, match="maximum of 4"):
        launch(provider, "gpu")
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, maximum=8)).text()
    provider.non_terminated_nodes({})
    assert limits(file)["gpu"] == (0, 8)
    assert json.loads(file.read_text())["max_workers"] == 16
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


def test_a_new_group_can_grow(provider, arm, file):
    arm.add(MORE)
    sets = {**SETS, "more": MORE}
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, sets=sets)).text()
    provider.non_terminated_nodes({})
    launch(provider, "more")
    (name,) = (one for one in provider.non_terminated_nodes({}) if one.startswith(MORE))
    assert provider.node_tags(name)["ray-user-node-type"] == "more"


def test_a_removed_group_keeps_its_type_until_its_nodes_are_gone(provider, arm, file):
    launch(provider, "gpu-on-demand")
    arm.imds.user_data = LiveSettings(autoscaler=config(file, arm, sets={"gpu": GPU})).text()
    nodes = provider.non_terminated_nodes({})
    assert [name for name in nodes if name.startswith(TWIN)]
    assert limits(file) == {"head": (0, 0), "gpu": (0, 4), "gpu-on-demand": (0, 0)}
    with pytest.raises(LaunchDeniedError, match="maximum of 0"):
        launch(provider, "gpu-on-demand")
    provider.terminate_nodes([name for name in nodes if name != HEAD])
    arm.wait_for_loss(*(name for name in nodes if name != HEAD))
    assert provider.non_terminated_nodes({}) == [HEAD]


def test_a_group_that_is_fixed_from_now_on_is_left_alone(provider, arm, file):
    launch(provider, "gpu-on-demand", 2)
    fixed = config(file, arm, sets={"gpu": GPU}, fixed=["gpu-on-demand"])
    arm.imds.user_data = LiveSettings(autoscaler=fixed).text()
    assert provider.non_terminated_nodes({}) == [HEAD]
    assert limits(file) == {"head": (0, 0), "gpu": (0, 4)}
    assert arm.sets[TWIN].capacity == 2
    assert {vm.state for name, vm in arm.vms.items() if name != HEAD} == {"Succeeded"}


def test_a_launch_that_fails_after_its_group_became_fixed_leaves_the_set_alone(provider, arm, file):
    launch(provider, "gpu-on-demand", 2)
    fixed = config(file, arm, sets={"gpu": GPU}, fixed=["gpu-on-demand"])
    arm.refusals[TWIN] = [(202, "AllocationFailed", "no capacity")]
    arm.on_poll = lambda *_: provider._machines.follow(fixed["provider"])
    with pytest.raises(LaunchRefusedError):
        launch(provider, "gpu-on-demand")
    # One for each launch: what is not listed is not counted, and not given back.
    assert [method for method, path in arm.requests if TWIN in path].count("PATCH") == 2


def test_a_launch_that_waited_while_its_group_became_fixed_is_denied(provider, arm, file):
    fixed = config(file, arm, sets={"gpu": GPU}, fixed=["gpu-on-demand"])

    class HeldUntilThen:
        def acquire(self, timeout):  # noqa: ARG002 - a lock's own
            provider._machines.follow(fixed["provider"])
            return True

        def release(self):
            pass

    locks = provider._machines._locks
    locks[TWIN] = replace(locks[TWIN], launch=HeldUntilThen())
    with pytest.raises(LaunchDeniedError, match="no longer"):
        launch(provider, "gpu-on-demand")
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
    launch(provider, "gpu-on-demand")
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


def changed(**changes):
    types = {
        "head": {"resources": {}, "min_workers": 0, "max_workers": 0},
        "a": {"resources": {"CPU": 1}, "min_workers": 1, "max_workers": 2},
    }
    provider = {"scale_sets": {"a": "set"}, "maximums": {"a": 2}, "twins": {}, "fixed": ["f"]}
    known = {
        "head_node_type": "head",
        "available_node_types": types,
        "provider": provider,
        "max_workers": 2,
    }
    return LiveSettings(autoscaler={**known, **changes}, prices={"head": 0.1}).text()


def test_right_settings_are_read():
    found = live.parse(changed())
    assert found.prices == {"head": 0.1}
    assert live.parse(found.text()) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "available_node_types": {
                    "a": {"resources": {}, "min_workers": 3, "max_workers": 2},
                }
            },
            "'a' has 3 to 2 workers",
        ),
        ({"available_node_types": {"b": {}}}, "'min_workers' is missing"),
        (
            {"provider": {"scale_sets": {}, "maximums": {"a": 1}, "twins": {}, "fixed": []}},
            "scale_sets lacks a",
        ),
        (
            {
                "provider": {
                    "scale_sets": {"a": "x"},
                    "maximums": {"a": 1},
                    "twins": {"a": "b"},
                    "fixed": [],
                }
            },
            "twins has b",
        ),
        (
            {
                "provider": {
                    "scale_sets": {"a": "x"},
                    "maximums": {"a": 1},
                    "twins": {},
                    "fixed": ["a"],
                }
            },
            "a: fixed, and not",
        ),
        ({"max_workers": None}, "max_workers is None"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(LiveSettingsError, match=message):
        live.parse(changed(**changes))


@pytest.mark.parametrize("change", [(":2", ":3"), ("set", "sit"), ("0.1", "0.2")])
def test_settings_that_somebody_edited_are_refused(change):
    with pytest.raises(LiveSettingsError, match="checksum"):
        live.parse(changed().replace(*change))


def test_what_cannot_be_read_at_all_is_refused():
    for wrong in (
        "[" * 100_000,
        '{"autoscaler": null, "prices": {"a": 1' + "0" * 400 + "}}",
        "null",
    ):
        checksum = hashlib.sha256(wrong.encode()).hexdigest()
        with pytest.raises(LiveSettingsError, match="not the settings"):
            live.parse(f"{checksum}\n{wrong}")


def test_imds_gives_the_user_data_and_prices_follow_it(arm):
    arm.imds.user_data = LiveSettings(prices={"head": 0.2}).text()
    settings = Live(Imds(arm.url))
    assert settings.latest().prices == {"head": 0.2}
    arm.imds.user_data = LiveSettings(prices={"head": 0.3}).text()
    assert settings.latest().prices == {"head": 0.3}


def run(kept, text):
    """What the host runs before it starts Ray; without packages, as there."""
    return subprocess.run(
        [sys.executable, "-I", "-S", live.__file__, str(kept)],
        input=base64.b64encode(text.encode()).decode(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_boot_with_wrong_settings_uses_the_last_right_ones(tmp_path):
    kept = tmp_path / "live.json"
    first = run(kept, "{}")
    assert (first.returncode, first.stdout) == (1, "")
    assert "refused" in first.stderr
    right = run(kept, changed())
    assert json.loads(right.stdout)["max_workers"] == 2
    for wrong in ("{}", "\xff", LiveSettings(prices={"head": 1.0}).text()):
        again = run(kept, wrong)
        assert (again.returncode, again.stdout) == (0, right.stdout)
        assert "refused" in again.stderr
    kept.write_bytes(b"\xff")
    last = run(kept, "{}")
    assert (last.returncode, last.stdout) == (1, "")
    assert "cannot be used either" in last.stderr
