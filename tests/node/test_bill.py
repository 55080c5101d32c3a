"""The bill of a cluster's record is that of its machines' times as the stand-in for Azure saw them.

The provider and its record are real; Ray's decisions are calls, and the clock is the test's.
"""

import json
from types import SimpleNamespace

import pytest
from azure_model import compute
from azure_model.arm import GROUP, HEAD
from azure_model.resource_ids import SUBSCRIPTION
from ray.autoscaler.tags import TAG_RAY_USER_NODE_TYPE
from scale_set_machines import GPU, SETS, TWIN

from sunspot.node import autoscaler_config, ledger
from sunspot.node.autoscaler import MachinesProvider
from sunspot.node.azure.record import HeadRecord
from sunspot.node.joins import Joins
from sunspot.node.machines import LaunchRefusedError
from sunspot.node.teller import Teller

MINUTE_S = 60.0
PRICES = {"gpu": 0.6, "gpu-on-demand": 6.0}
MARKETS = {"gpu": "spot", "gpu-on-demand": "on-demand"}


class Cluster:
    """The head's provider, with a record and the members that a test has."""

    def __init__(self, arm, folder):
        self.arm, self.now = arm, 1e6
        self.noticed = set()
        self.record = HeadRecord(folder / "record")
        self.record.folder.mkdir()
        file = folder / "config.yaml"
        kind = autoscaler_config.node_type(resources={"CPU": 1}, labels={}, maximum=5, priority=1)
        config = autoscaler_config.config(
            name="test",
            machines="sunspot.node.azure.scale_sets.create",
            settings={
                "subscription_id": SUBSCRIPTION,
                "resource_group": GROUP,
                "identity_client_id": "client",
                "head": HEAD,
                "head_type": "head",
                "scale_sets": SETS,
                "maximums": dict.fromkeys(SETS, 5),
                "fixed": [],
                "imds_url": arm.url,
                "arm_url": arm.url,
            },
            config_file=str(file),
            node_types={"head": kind, **dict.fromkeys(SETS, kind)},
            head_type="head",
            twins={"gpu": "gpu-on-demand"},
        )
        file.write_text(json.dumps(config))
        self.provider = MachinesProvider(config["provider"], "test")
        self.provider._joins = Joins(
            self.record.joins,
            members=self,
            why=lambda _: "",
            teller=Teller(self.record.events, self.record.notices, self.clock),
            clock=self.clock,
        )

    def clock(self):
        return self.now

    def names(self):
        return {name for name, vm in self.arm.vms.items() if vm.state == "Succeeded"}

    def evicted(self, machine_id):
        return machine_id in self.noticed

    def drained(self, machine_id):  # noqa: ARG002 - the real one's
        return False

    def tick(self, minutes=0.0):
        """Time passes, and Ray asks what there is."""
        self.now += minutes * MINUTE_S
        return self.provider.non_terminated_nodes({})

    def launch(self, kind, count):
        """Ray asks for machines; it sees them at once."""
        before = set(self.tick())
        tags = {TAG_RAY_USER_NODE_TYPE: kind}
        self.provider.create_node_with_resources_and_labels({}, tags, count, {}, {})
        return sorted(set(self.tick()) - before)

    def give_back(self, *names):
        for name in names:
            self.provider.terminate_node(name)
        self.arm.wait_for_loss(*names)
        self.tick()

    def evict(self, name, *, notice=True):
        if notice:
            self.noticed.add(name)
        self.arm.evict(self.arm.vms[name])
        self.tick()


@pytest.fixture
def cluster(arm, tmp_path, monkeypatch):
    made = Cluster(arm, tmp_path)
    monkeypatch.setattr(compute, "time", SimpleNamespace(time=made.clock))
    return made


def test_the_bill_is_that_of_the_machines_times(cluster):
    first, second, third = cluster.launch("gpu", 3)
    cluster.tick(30)
    cluster.evict(first)
    (fourth,) = cluster.launch("gpu", 1)
    cluster.tick(10)
    cluster.give_back(second)
    cluster.tick(5)
    cluster.evict(third, notice=False)
    cluster.arm.refusals[GPU] = [(202, "AllocationFailed", "no spot capacity")]
    with pytest.raises(LaunchRefusedError):
        cluster.launch("gpu", 1)
    (on_demand,) = cluster.launch("gpu-on-demand", 1)
    cluster.tick(60)
    cluster.give_back(fourth, on_demand)

    assert cluster.tick() == [HEAD]
    assert cluster.arm.vms.keys() == {HEAD}
    events = cluster.record.events.read()
    ends = {one.node: one.kind for one in events if one.kind not in {"launched", "joined"}}
    assert ends == {
        first: "evicted",
        second: "drained",
        third: "lost",
        fourth: "drained",
        on_demand: "drained",
        "": "refused",
    }
    lives = {life.node: life for life in ledger.lives(events)}
    kept = {name: bill for name, bill in cluster.arm.billed.items() if bill.listed}
    assert {name: (life.begin, life.end) for name, life in lives.items()} == {
        name: (bill.begun, bill.ended) for name, bill in kept.items() if name in lives
    }
    spent = ledger.spent(lives.values(), MARKETS, PRICES, cluster.now)
    # 30 + 40 + 45 minutes, and 75 of the one that came after the first; 60 of the on-demand one.
    assert spent["spot"].usd == pytest.approx(190 / 60 * PRICES["gpu"])
    assert spent["on-demand"].usd == pytest.approx(PRICES["gpu-on-demand"])
    assert TWIN in on_demand
