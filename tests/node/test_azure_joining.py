"""The head's provider over scale sets: what it gives back, pauses, refuses and tells."""

import json
from pathlib import Path

import pytest
from azure_model.arm import GROUP, HEAD
from azure_model.resource_ids import SUBSCRIPTION
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler
from scale_set_machines import GPU, SETS, TWIN
from waiting import wait_for

from sunspot.node import autoscaler_config
from sunspot.node.autoscaler import MachinesProvider
from sunspot.node.azure import joining
from sunspot.node.azure.live import LiveSettings
from sunspot.node.azure.record import HeadRecord
from sunspot.node.joins import TRIES
from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError


class Members:
    """The members of the cluster, as a test has them."""

    here: set[str] = set()  # noqa: RUF012 - replaced by each test

    def __init__(self, address):
        assert address == "10.0.0.4:6379"

    def names(self):
        return self.here

    def evicted(self, machine_id):
        return machine_id not in self.here

    def drained(self, machine_id):  # noqa: ARG002 - the real one's
        return False


@pytest.fixture(autouse=True)
def members(monkeypatch):
    # The provider changes Ray's scheduler, for its whole process.
    monkeypatch.setattr(ResourceDemandScheduler, "schedule", ResourceDemandScheduler.schedule)
    monkeypatch.setattr(joining, "GcsMembers", Members)
    monkeypatch.setattr(Members, "here", set())
    return Members


@pytest.fixture
def record(tmp_path):
    return HeadRecord(tmp_path / "record")


@pytest.fixture
def start(arm, tmp_path, record):
    """Starts the head's provider, with machines that have `join_timeout_s` to join."""
    file = tmp_path / "config.yaml"
    record.folder.mkdir()

    def node_type(maximum, priority):
        return autoscaler_config.node_type(
            resources={"CPU": 1}, labels={}, maximum=maximum, priority=priority
        )

    def started(*, maximum=5, join_timeout_s=1200.0):
        config = autoscaler_config.config(
            name="test",
            machines="sunspot.node.azure.scale_sets.create",
            settings={
                "live": "sunspot.node.azure.live.create",
                "joins": "sunspot.node.azure.joining.create",
                "record": str(record.folder),
                "gcs": "10.0.0.4:6379",
                "subscription_id": SUBSCRIPTION,
                "resource_group": GROUP,
                "identity_client_id": "client",
                "head": HEAD,
                "head_type": "head",
                "scale_sets": SETS,
                "maximums": dict.fromkeys(SETS, maximum),
                "fixed": [],
                "imds_url": arm.url,
                "arm_url": arm.url,
                "join_timeout_s": join_timeout_s,
            },
            config_file=str(file),
            node_types={
                "head": node_type(0, 0),
                "gpu": node_type(maximum, autoscaler_config.SPOT_PRIORITY),
                "gpu-on-demand": node_type(maximum, autoscaler_config.ON_DEMAND_PRIORITY),
            },
            head_type="head",
            twins={"gpu": "gpu-on-demand"},
        )
        file.write_text(json.dumps(config))
        arm.imds.user_data = LiveSettings(autoscaler=config).text()
        made = MachinesProvider(config["provider"], "test")
        made.non_terminated_nodes({})
        return made

    return started


def launch(provider, node_type="gpu", count=1):
    provider.create_node_with_resources_and_labels(
        {}, {"ray-user-node-type": node_type}, count, {}, {}
    )


def workers(arm):
    return [name for name in arm.vms if name != HEAD]


def told(record):
    return [(one.kind, one.group) for one in record.events.read()]


def said(record):
    return {one.about: one.text for one in record.notices.read()}


def priorities(tmp_path):
    types = json.loads(Path(tmp_path / "config.yaml").read_text())["available_node_types"]
    return {name: kind["priority"] for name, kind in types.items() if name != "head"}


def never_joins(arm, provider, node_type="gpu"):
    """One launch whose machine never joins, until it is gone."""
    before = set(arm.vms)
    launch(provider, node_type)
    (name,) = arm.vms.keys() - before
    arm.vms[name].console = "sunspot: phase image failed: manifest unknown"
    provider.non_terminated_nodes({})
    wait_for("the machine to go", lambda: not provider.non_terminated_nodes({})[1:])
    arm.wait_for_loss(name)


def test_a_group_that_never_boots_stops_at_three(arm, start, record, tmp_path):
    provider = start(join_timeout_s=0.0)
    for _ in range(TRIES):
        never_joins(arm, provider)
    provider.non_terminated_nodes({})
    for node_type in SETS:
        with pytest.raises(LaunchDeniedError, match="manifest unknown"):
            launch(provider, node_type)
    assert workers(arm) == []
    assert arm.sets[GPU].capacity == arm.sets[TWIN].capacity == 0
    assert "manifest unknown" in said(record)["group:gpu"]
    assert told(record) == [("launched", "gpu"), ("gave-up", "gpu")] * TRIES + [("paused", "gpu")]
    paused = autoscaler_config.PAUSED_PRIORITY
    assert priorities(tmp_path) == {"gpu": paused, "gpu-on-demand": paused}


def test_a_pause_outlives_the_head_and_ends_with_an_edit(arm, start, record, tmp_path):
    provider = start(join_timeout_s=0.0)
    for _ in range(TRIES):
        never_joins(arm, provider)
    provider = start(join_timeout_s=0.0)
    with pytest.raises(LaunchDeniedError):
        launch(provider)
    paused = autoscaler_config.PAUSED_PRIORITY
    assert priorities(tmp_path) == {"gpu": paused, "gpu-on-demand": paused}
    provider = start(maximum=6)
    launch(provider)
    assert len(workers(arm)) == 1
    assert priorities(tmp_path)["gpu"] == autoscaler_config.SPOT_PRIORITY
    assert said(record) == {}
    assert ("resumed", "gpu") in told(record)


def test_any_edit_while_it_runs_lifts_the_pause(arm, start):
    provider = start(join_timeout_s=0.0)
    for _ in range(TRIES):
        never_joins(arm, provider)
    arm.imds.user_data = LiveSettings(
        autoscaler=provider._followed.autoscaler, prices={"gpu": 1.0}
    ).text()
    provider.non_terminated_nodes({})
    launch(provider)
    assert len(workers(arm)) == 1


def test_a_machine_that_joins_stays(arm, start, record, members):
    provider = start(join_timeout_s=0.0)
    members.here = {f"{GPU}_{n:08x}" for n in range(20)}
    launch(provider)
    provider.non_terminated_nodes({})
    assert len(workers(arm)) == 1
    assert told(record) == [("launched", "gpu"), ("joined", "gpu")]
    (name,) = workers(arm)
    provider.terminate_node(name)
    arm.wait_for_loss(name)
    provider.non_terminated_nodes({})
    assert told(record)[2:] == [("drained", "gpu")]


def test_a_refusal_is_told_once_and_said_while_it_lasts(arm, start, record, monkeypatch):
    monkeypatch.setattr("sunspot.node.fallback.ASK_AGAIN_S", 0.0)
    provider = start()
    arm.refusals[GPU] = [(409, "SkuNotAvailable", "not here")] * 2
    for _ in range(2):
        with pytest.raises(LaunchRefusedError):
            launch(provider)
    assert told(record) == [("refused", "gpu")]
    (notice,) = record.notices.read()
    assert notice.about == "group:gpu"
    assert "SkuNotAvailable" in notice.text
    assert notice.until is not None
    launch(provider)
    assert record.notices.read() == []


def test_a_change_of_settings_is_told(arm, start, record):
    provider = start()
    config = json.loads(json.dumps(provider._followed.autoscaler))
    config["available_node_types"]["gpu"]["max_workers"] = 7
    arm.imds.user_data = LiveSettings(autoscaler=config).text()
    provider.non_terminated_nodes({})
    (event,) = record.events.read()
    assert event.kind == "changed"
    assert "gpu: 0 to 7, was 0 to 5" in event.reason


def test_settings_that_are_refused_are_said_until_right_ones_come(arm, start, record):
    provider = start()
    right, arm.imds.user_data = arm.imds.user_data, "nonsense"
    provider.non_terminated_nodes({})
    assert "checksum" in said(record)["settings"]
    arm.imds.user_data = right
    provider.non_terminated_nodes({})
    assert said(record) == {}
