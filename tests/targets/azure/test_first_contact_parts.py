"""A first contact's parts: the small stack, its price, the steps, the report."""

import json
import re
import stat
from pathlib import Path

import pytest
import yaml
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from azure_stacks import write
from ssh_server import make_key

from sunspot import catalog
from sunspot import stack as stacks
from sunspot.catalog import regions
from sunspot.errors import SunspotError, UsageError
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure.first_contact import price, small_stack
from sunspot.targets.azure.first_contact.report import Report
from sunspot.targets.azure.first_contact.shortening import shortened
from sunspot.targets.azure.first_contact.small_stack import MADE_BY, MARK, NAME, StackFile
from sunspot.targets.azure.first_contact.steps import NotTriedError, Step, Trials
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.contacting import Trial

SIZE = catalog.get("Standard_D2s_v5")


@pytest.fixture
def file(project, tmp_path):
    """The small stack's file of a project whose stack "x" has every setting."""
    key = make_key(tmp_path / "key")
    write(project, "x", key=f"{key}.pub")
    document = yaml.safe_load((project / "Pulumi.x.yaml").read_text())
    document["encryptionsalt"] = "v1:salt"
    document["config"] |= {
        "azure-native:subscriptionId": SUBSCRIPTION,
        "pulumi:autonaming": {"mode": "verbatim"},
        "sunspot:owner": "jane",
        "sunspot:tags": {"team": "vision"},
        "sunspot:network": {"address_space": "10.99.0.0/16"},
        "sunspot:image": {"mirror": False},
        "sunspot:storage": {"protect": True, "retention_days": 3},
    }
    (project / "Pulumi.x.yaml").write_text(yaml.safe_dump(document))
    return StackFile(folder=project, user=stacks.load("x"))


# The small stack


def test_it_has_one_head_and_at_most_one_spot_worker(file):
    cluster = file.write(SIZE).cluster
    (group,) = cluster.scaling_groups
    assert (group.market, group.min_workers, group.max_workers) == ("spot", 0, 1)
    assert cluster.head_node.vm_size == group.worker_nodes.vm_size == SIZE.name
    assert cluster.ray_version == file.user.cluster.ray_version


def test_it_is_where_the_users_stack_is_and_its_storage_is_not_kept(file):
    made = AzureSettings.of(file.write(SIZE))
    theirs = AzureSettings.of(file.user)
    for name in ("location", "access", "network", "owner"):
        assert getattr(made, name) == getattr(theirs, name), name
    assert made.tags == {"team": "vision", MARK: MADE_BY}
    assert not made.storage.protect
    assert file.write(SIZE).image == file.user.image


def test_what_pulumi_reads_of_the_users_file_holds_for_it_too(file):
    file.write(SIZE)
    document = yaml.safe_load(file.path.read_text())
    assert document["encryptionsalt"] == "v1:salt"
    assert document["config"]["azure-native:subscriptionId"] == SUBSCRIPTION
    assert "pulumi:autonaming" not in document["config"]


def test_what_pulumi_wrote_into_it_is_kept_when_it_is_written_again(file):
    file.write(SIZE)
    document = yaml.safe_load(file.path.read_text())
    file.path.write_text(yaml.safe_dump({**document, "encryptionsalt": "v1:own"}))
    file.write(SIZE)
    assert yaml.safe_load(file.path.read_text())["encryptionsalt"] == "v1:own"


def test_a_stack_of_the_users_is_not_overwritten(file):
    file.check()
    file.write(SIZE)
    file.check()
    file.path.write_text((file.folder / "Pulumi.x.yaml").read_text())
    with pytest.raises(UsageError, match=r"Pulumi\.first-contact\.yaml"):
        file.check()
    file.path.write_text("config: {sunspot:cluster: 1}")
    with pytest.raises(UsageError, match=r"Pulumi\.first-contact\.yaml"):
        file.check()


@pytest.mark.parametrize("key", ["encryptionsalt", "encryptedkey", None])
def test_secrets_that_only_the_users_stack_can_read_are_refused(file, key):
    theirs = file.folder / "Pulumi.x.yaml"
    document = yaml.safe_load(theirs.read_text())
    del document["encryptionsalt"]
    document["config"]["azure-native:clientSecret"] = {"secure": "v1:abc"}
    theirs.write_text(yaml.safe_dump(document | ({key: "v1:x"} if key else {})))
    if key:
        file.check()
        return
    with pytest.raises(UsageError, match="azure-native:clientSecret"):
        file.check()


def test_its_names_fit_into_what_azure_allows(file):
    plan = azure_plan.plan(file.write(SIZE), file.folder)
    assert plan.head_name == f"sunspot-{NAME}-head"
    assert [pool.scale_set for pool in plan.pools] == [f"sunspot-{NAME}-spot"]
    assert plan.pools[0].elastic


@pytest.mark.parametrize("region", ["uksouth", "brazilsoutheast", "nowhere1", None])
def test_the_sizes_are_cheap_and_sold_there(region):
    sizes = small_stack.sizes(region)
    assert sizes
    for size in sizes:
        assert not size.gpu_count
        assert size.vcpus >= small_stack.CPUS
        assert size.memory_gib >= small_stack.MEMORY_GIB
        assert not size.name.startswith("Standard_B")
        assert region is None or regions.is_sold(size.name, region) is not False
    assert sizes[0].vcpus == small_stack.CPUS


# The price


def test_the_price_is_by_the_hour_and_at_most(file):
    offer = price.offer(azure_plan.plan(file.write(SIZE), file.folder))
    (by_hour,) = map(float, re.findall(r"about ([\d.]+) USD an hour", offer))
    (most,) = map(float, re.findall(r"at most about ([\d.]+) USD", offer))
    assert (SIZE.price.on_demand or 0) < by_hour < 2  # with what belongs to the head
    assert most == pytest.approx(by_hour * price.AT_MOST_H, rel=0.05)
    assert "uksouth" in offer
    assert SIZE.name in offer


# The steps


def trials():
    return Trials(tell=lambda _: None, changed=lambda: None)


def fails(error):
    def run():
        raise error

    return run


def outcomes(run):
    return {one.step: one.outcome for one in run.done}


def test_a_failed_step_stops_only_those_that_need_it():
    run = trials()
    run.run(
        [
            Step(name="up", run=lambda: "is up"),
            Step(name="etag", run=fails(SunspotError("412")), needs=("up",)),
            Step(name="after", run=lambda: "never", needs=("etag",)),
            Step(name="other", run=lambda: "seen", needs=("up",)),
            Step(name="nothing", run=fails(NotTriedError("no registry"))),
            Step(name="later", run=lambda: "never", needs=("nothing",)),
        ]
    )
    assert outcomes(run) == {
        "up": "ok",
        "etag": "failed",
        "after": "not tried",
        "other": "ok",
        "nothing": "not tried",
        "later": "not tried",
    }
    assert [one.detail for one in run.done[:3]] == ["is up", "412", "it needs: etag"]


def test_a_fault_of_the_program_is_a_failed_step_too():
    run = trials()
    run.run([Step(name="one", run=fails(KeyError("x"))), Step(name="two", run=lambda: "on")])
    assert outcomes(run) == {"one": "failed", "two": "ok"}
    assert "KeyError" in run.done[0].detail


def test_an_interrupt_ends_the_steps_and_notes_the_rest():
    run = trials()
    with pytest.raises(KeyboardInterrupt):
        run.run(
            [
                Step(name="one", run=lambda: "seen"),
                Step(name="two", run=fails(KeyboardInterrupt())),
                Step(name="three", run=lambda: "never"),
            ]
        )
    assert outcomes(run) == {"one": "ok", "two": "not tried", "three": "not tried"}


def test_each_step_is_told_and_each_result_is_kept_at_once():
    told, kept = [], []
    run = Trials(tell=told.append, changed=lambda: kept.append(len(run.done)))
    run.run([Step(name="one", run=lambda: ""), Step(name="two", run=lambda: "")])
    assert told == ["one", "two"]
    assert kept == [1, 2]


# The report

SECRETS = {
    "subscription": SUBSCRIPTION,
    "tenant": f"in tenant {TENANT}",
    "address": "ssh to 203.0.113.7 and 10.60.0.4:6379",
    "block": "from 203.0.113.0/24",
    "six": "2001:db8:85a3::8a2e:370:7334",
    "account": "abfss://results@sunspotab12cd34.dfs.core.windows.net/",
    "registry": "sunspot99aa.azurecr.io/rayproject/ray:2.60.0-py311",
    "vault": "https://sunspot77bb.vault.azure.net/",
    "host": "head-x1.uksouth.cloudapp.azure.com",
    "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me",
    "token": "Bearer eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJ4In0.abc",
    "mail": "jane.doe@example.com lacks it",
    "group": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/janes-network/providers/x",
    "owner": "tag owner=jane-doe",
    "tenant's domain": "client live.com#jdoe of janes.onmicrosoft.com",
    "home": f"{Path.home()}/.ssh/id and /home/jane/x and /Users/jane/y",
    "project": "no such file: '/srv/jane/lab/Pulumi.x.yaml'",
    "cut id": f"in /subscriptions/{SUBSCRIPTION[:20]}...",
}
GONE = (
    SUBSCRIPTION,
    TENANT,
    "203.0.113",
    "10.60.0.4",
    "2001:db8",
    "sunspotab12cd34",
    "sunspot99aa",
    "sunspot77bb",
    "head-x1",
    "AAAAC3",
    "eyJ",
    "jane",
    "jdoe",
    str(Path.home()),
    SUBSCRIPTION[:13],
)


def test_what_names_the_user_or_the_account_is_left_out():
    text = "\n".join(
        shortened(one, ["jane-doe", "jdoe"], [Path("/srv/jane/lab")]) for one in SECRETS.values()
    )
    assert [one for one in GONE if one in text] == []


def test_a_user_whose_home_is_the_root_loses_no_slashes(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    text = shortened("/subscriptions/s/resourceGroups/janes/providers/x")
    assert text == "/subscriptions/s/resourceGroups/<name>/providers/x"


@pytest.mark.parametrize(
    "text",
    [
        "accepted; a stale one gets 412 (strong, quoted, no GUID, changes with each change)",
        "a task ran after 312 s, capacity 1",
        "/resourceGroups/sunspot-first-contact/providers/Microsoft.Compute/disks/d",
        "rayproject/ray:2.60.0-py311 at 12:04:55",
        "made, written and removed (by Arrow 21.0.0)",
    ],
)
def test_what_the_project_needs_stays(text):
    assert shortened(text) == text


def test_the_report_is_the_owners_file_and_has_neither_tags_nor_owner(file, tmp_path):
    plan = azure_plan.plan(file.write(SIZE), file.folder)
    target = tmp_path / "report.json"
    trial = Trial(
        step="etag", outcome="ok", seconds=1.5, detail=f"for jane of vision in {tmp_path}"
    )
    report = Report(file=target, plan=plan, folder=tmp_path)
    report.write([trial], ended="whole", note=pytest.fail)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    text = target.read_text()
    assert "jane" not in text
    assert "vision" not in text
    assert str(tmp_path) not in text
    assert "10.99" not in text
    document = json.loads(text)
    assert document["region"] == "uksouth"
    assert document["registry"] is False
    assert document["steps"][0]["outcome"] == "ok"


@pytest.mark.parametrize("word", ["failed", "tried", "etag"])
def test_a_tag_that_is_a_word_of_the_report_changes_only_what_was_seen(file, tmp_path, word):
    document = yaml.safe_load((file.folder / "Pulumi.x.yaml").read_text())
    document["config"]["sunspot:tags"] = {"state": word}
    (file.folder / "Pulumi.x.yaml").write_text(yaml.safe_dump(document))
    changed = StackFile(folder=file.folder, user=stacks.load("x"))
    plan = azure_plan.plan(changed.write(SIZE), file.folder)
    report = Report(file=tmp_path / "report.json", plan=plan, folder=tmp_path)
    trials = [
        Trial(step="etag", outcome="failed", seconds=1.5, detail=f"the tag {word}"),
        Trial(step="poll", outcome="not tried", seconds=0.0, detail=""),
    ]
    shown = report.shown(trials)
    assert [(one.step, one.outcome) for one in shown] == [("etag", "failed"), ("poll", "not tried")]
    assert shown[0].detail == "the tag <name>"


def test_the_users_own_image_is_not_named(file, tmp_path):
    document = yaml.safe_load((file.folder / "Pulumi.x.yaml").read_text())
    document["config"]["sunspot:image"] = {"reference": "ghcr.io/acme/secret-ray:1"}
    (file.folder / "Pulumi.x.yaml").write_text(yaml.safe_dump(document))
    changed = StackFile(folder=file.folder, user=stacks.load("x"))
    plan = azure_plan.plan(changed.write(SIZE), file.folder)
    report = Report(file=tmp_path / "report.json", plan=plan, folder=tmp_path)
    said = "cannot pull ghcr.io/acme/secret-ray:1"
    (shown,) = report.shown([Trial(step="up", outcome="failed", seconds=1.0, detail=said)])
    assert "acme" not in shown.detail
