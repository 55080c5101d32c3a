"""An idle cluster on Azure, looked after on its head: against a stand-in for ARM and for IMDS."""

import json
import threading

import pytest
from azure_model.arm import GROUP, HEAD, VIRTUAL_MACHINES, Vm, serving
from azure_model.resource_ids import group_id
from azure_model.rights import Grant, Rights
from waiting import wait_for

from sunspot.node.asleep import LEASE_S, Lease
from sunspot.node.azure import idle
from sunspot.node.azure.arm import Arm
from sunspot.node.azure.idle import HeadCluster, Place
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.live import Live, LiveSettings, encoded, parse
from sunspot.node.azure.record import HeadRecord
from sunspot.node.idle import NotDoneError, Policy, Watch
from sunspot.node.usage import Seen

GPU, FIXED = "sunspot-test-gpu", "sunspot-test-fixed"
AUTOSCALER = {
    "head_node_type": "head",
    "max_workers": 4,
    "idle_timeout_minutes": 5,
    "available_node_types": {
        "head": {"min_workers": 0, "max_workers": 0},
        "gpu": {"min_workers": 1, "max_workers": 4},
    },
    "provider": {
        "scale_sets": {"gpu": GPU},
        "maximums": {"gpu": 4},
        "fixed": ["fixed"],
        "twins": {},
    },
}


@pytest.fixture
def arm():
    """A head, two workers of a fixed group, and one that the autoscaler started."""
    with serving() as made:
        made.add(GPU, FIXED)
        for name, count in ((GPU, 1), (FIXED, 2)):
            made.sets[name].capacity = count
            for number in range(count):
                made.vms[f"{name}_{number}"] = Vm(f"{name}_{number}", name, "Succeeded")
        yield made


class Head:
    """A head whose settings and use a test gives."""

    def __init__(self, arm, folder):
        self.arm, self.seen, self.drained = arm, Seen(), []
        self.record = HeadRecord(folder / "record")
        self.settings = LiveSettings()
        client = Imds(arm.url)
        self.provider = Live(self, lease=self.record.lease)  # the autoscaler's
        self.cluster = HeadCluster(
            place=Place(group_id=group_id(GROUP), head=HEAD),
            live=Live(self),
            look=self.look,
            arm=Arm(client, arm.url, patience_s=5.0),
            record=self.record,
            drain=lambda names, _: self.drained.extend(names),
            sessions=folder / "ssh",
        )
        (folder / "ssh").write_text("[]")

    def user_data(self):
        return encoded(self.settings.text())

    def look(self):
        return self.seen

    def follow(self, action, minutes=60, autoscaler=AUTOSCALER):
        given = {"after_minutes": minutes, "action": action, "stack": "x", "fixed": [FIXED]}
        self.settings = LiveSettings(autoscaler=autoscaler, idle=given)
        return self.cluster.policy()

    def scale_down(self):
        """What Ray's autoscaler does with a config without minimums."""
        config = self.provider.latest().autoscaler
        assert config is not None
        if config["available_node_types"]["gpu"]["min_workers"] == 0:
            for vm in [one for one in self.arm.vms.values() if one.scale_set == GPU]:
                self.arm.evict(vm)


@pytest.fixture
def head(arm, tmp_path, monkeypatch):
    monkeypatch.setattr(idle, "POLL_S", 0.02)
    return Head(arm, tmp_path)


def free_the_sets(arm):
    """Azure deletes the machines of a set whose capacity sinks to 0."""

    def delete(scale_set):
        for vm in [one for one in arm.vms.values() if one.scale_set == scale_set.name]:
            arm.vms.pop(vm.name)
        scale_set.capacity = min(scale_set.capacity, 2)

    arm.before_patch = delete


def test_the_policy_is_in_the_user_data(head):
    assert head.cluster.policy() is None
    assert head.follow("workers", 30) == Policy(after_s=1800, action="workers")
    assert head.cluster.name == "x"
    again = parse(head.settings.text())
    assert again == head.settings


def test_settings_without_a_policy_of_an_older_version_are_right():
    given = LiveSettings(prices={"head": 1.0}).text().partition("\n")[2]
    old = {key: value for key, value in json.loads(given).items() if key != "idle"}
    text = json.dumps(old, separators=(",", ":"))
    from sunspot.node.azure import live

    assert parse(f"{live._sha256(text)}\n{text}").idle is None


@pytest.mark.parametrize("wrong", [{"after_minutes": 0}, {"action": "x"}, 7])
def test_a_wrong_policy_is_refused_with_all_of_the_settings(wrong):
    with pytest.raises(Exception, match=r"not the settings|missing"):
        parse(LiveSettings(idle=wrong).text())  # type: ignore[arg-type]


def test_workers_go_and_come_back(head, arm):
    free_the_sets(arm)
    head.follow("workers")
    head.cluster.act("workers")
    config = head.provider.latest().autoscaler
    assert config["available_node_types"]["gpu"] == {"min_workers": 0, "max_workers": 4}
    assert config["idle_timeout_minutes"] < 1
    # Not an edit, which would lift the pause of a group that never boots.
    assert head.provider.latest().digest() == head.settings.digest()
    assert head.drained == [f"{FIXED}_0", f"{FIXED}_1"]
    assert arm.sets[FIXED].capacity == 0
    assert arm.vms[HEAD].power == "running"
    head.cluster.wake()
    assert head.provider.latest() == head.settings
    assert arm.sets[FIXED].capacity == 2
    assert not head.record.fixed.exists()


def test_a_group_that_somebody_gave_workers_meanwhile_keeps_these(head, arm):
    free_the_sets(arm)
    head.follow("workers")
    head.cluster.act("workers")
    arm.before_patch = lambda _: None
    arm.sets[FIXED].capacity = 1
    head.cluster.wake()
    assert arm.sets[FIXED].capacity == 1


def test_the_head_stops_when_its_workers_are_gone(head, arm):
    free_the_sets(arm)
    head.follow("stop-head")
    acting = threading.Thread(target=head.cluster.act, args=["stop-head"])
    acting.start()
    wait_for("the lease", head.record.lease.read)
    assert head.provider.latest().autoscaler["max_workers"] == 0
    assert head.provider.latest().autoscaler["provider"]["maximums"] == {"gpu": 0}
    assert arm.vms[HEAD].power == "running"
    head.scale_down()
    acting.join()
    assert arm.vms.keys() == {HEAD}
    assert arm.vms[HEAD].power == "deallocated"
    assert json.loads(head.record.fixed.read_text()) == {FIXED: 2}


def test_a_use_while_workers_go_keeps_the_head(head, arm):
    free_the_sets(arm)
    head.follow("stop-head")
    head.seen = Seen(uses=("job one",))
    with pytest.raises(NotDoneError, match="job one"):
        head.cluster.act("stop-head")
    assert arm.vms[HEAD].power == "running"
    assert head.record.lease.read() is None
    assert arm.sets[FIXED].capacity == 2


def test_without_the_right_it_says_which_and_the_workers_come_back(head, arm):
    free_the_sets(arm)
    head.follow("stop-head")
    allowed = tuple(
        f"Microsoft.Compute/{one}"
        for one in ("virtualMachineScaleSets/*", "virtualMachines/read", "disks/*")
    )
    machines = ("Microsoft.Compute/virtualMachines/write", "Microsoft.Network/*")
    arm.rights = Rights((Grant((*allowed, *machines), group_id(GROUP)),))
    arm.evict(arm.vms[f"{GPU}_0"])
    with pytest.raises(NotDoneError, match="deallocate/action"):
        head.cluster.act("stop-head")
    assert arm.vms[HEAD].power == "running"
    assert arm.sets[FIXED].capacity == 2
    assert ("POST", f"{VIRTUAL_MACHINES}/{HEAD}/deallocate") in arm.requests


def test_a_head_that_may_not_see_how_far_azure_is_stops_all_the_same(head, arm):
    free_the_sets(arm)
    arm.evict(arm.vms[f"{GPU}_0"])
    arm.polls_denied = True
    head.follow("stop-head")
    head.cluster.act("stop-head")
    assert ("POST", f"{VIRTUAL_MACHINES}/{HEAD}/deallocate") in arm.requests
    # Nothing is billed for a head that is off.
    assert arm.sets[FIXED].capacity == 0
    assert head.record.lease.read() == "closed"


def test_the_whole_way_from_idle_to_deallocated(head, arm):
    free_the_sets(arm)
    arm.evict(arm.vms[f"{GPU}_0"])
    head.follow("stop-head", minutes=60)
    now = [0.0]
    watch = Watch(head.cluster, lambda: now[0])
    for minutes in (0, 56, 60):
        now[0] = minutes * 60.0
        watch.step()
    assert arm.vms[HEAD].power == "deallocated"
    kinds = [event.reason for event in head.record.events.read()]
    assert len(kinds) == 2
    assert "sunspot keep-alive x 2h" in kinds[0]
    assert "sunspot start x" in kinds[1]


def test_an_edit_of_the_policy_reaches_the_running_head(head):
    head.follow("warn", 60)
    assert head.follow("workers", 5) == Policy(after_s=300, action="workers")
    head.settings = LiveSettings()
    assert head.cluster.policy() is None


def test_a_lease_ends_by_itself(tmp_path, monkeypatch):
    lease = Lease(tmp_path / "asleep.json")
    assert lease.read() is None
    lease.put("asleep")
    assert lease.read() == "asleep"
    import time

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LEASE_S + 1)
    assert lease.read() is None
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert lease.read() is None
    lease.path.write_text("{")
    assert lease.read() is None


def test_keep_alive_is_written_by_the_same_module(tmp_path, monkeypatch, capsys):
    record = HeadRecord(tmp_path)
    monkeypatch.setattr(idle, "HeadRecord", lambda: record)
    assert idle.main(["--keep-alive", "7200"]) == 0
    (kept,) = record.notices.read()
    assert kept.until == pytest.approx(float(capsys.readouterr().out))
