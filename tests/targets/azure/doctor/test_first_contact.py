"""`sunspot doctor --first-contact`, whole, against stand-ins for Azure, Pulumi, sshd and jobs.

With a real Ray: test_first_contact_with_ray.py.
"""

import errno
import json
import stat

import pytest
from azure_model.http_service import Reply
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from azure_model.subscription import restriction, sku
from azure_stacks import run, write
from contact_runs import ALL, OK, REGISTRY, STORAGE_URL, Run, interrupt, is_gone
from doctor_runs import config as change_config
from job_api import TOKEN
from ssh_server import needs_sshd

from sunspot import console
from sunspot.errors import SunspotError
from sunspot.targets.azure.doctor import clients
from sunspot.targets.azure.first_contact import on_site, report
from sunspot.targets.azure.first_contact.contact import TO_REMOVE
from sunspot.targets.azure.first_contact.on_site import (
    DOWN,
    ETAG,
    EVICTION,
    GROWTH,
    IDLENESS,
    POLL,
    PULL,
    RESTART,
    RESULTS_HEAD,
    RESULTS_WORKER,
    UP,
)

pytestmark = needs_sshd

FORBIDDEN = Reply(403, None, {"x-ms-error-code": "AuthorizationPermissionMismatch"})


def made_nothing(contact):
    return set(contact.fake.calls) <= {"state"} and not contact.stack_file.exists()


# The whole run


def test_each_step_is_tried_and_everything_is_taken_away(contact, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    result = contact("--yes")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok"), contact.details()
    assert is_gone(contact)
    assert contact.document()["ended"] == "whole"
    assert stat.S_IMODE(contact.report.stat().st_mode) == 0o600
    actions = {path.rpartition("/")[2] for method, path in contact.arm.requests if method == "POST"}
    assert {"simulateEviction", "restart"} <= actions
    assert all(step in result.stdout for step in ALL)
    assert max(map(len, result.stdout.splitlines())) <= 60
    check_names_nobody(contact)


def check_names_nobody(contact):
    text = contact.report.read_text()
    account_name, registry = STORAGE_URL.partition("@")[2].partition(".")[0], REGISTRY[:16]
    for secret in (SUBSCRIPTION, TENANT, "203.0.113", "10.60.0.4", account_name, registry, TOKEN):
        assert secret not in text, secret
    assert "azurecr.io" in text  # which kind of registry it was is worth knowing


def test_without_a_registry_there_is_no_pull_to_try_and_json_is_the_report(contact):
    change_config(contact.project, {"sunspot:image": {"mirror": False}})
    result = contact("--yes", "--json")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | {PULL: "not tried"}
    assert json.loads(result.stdout) == contact.document()


# Before anything is made


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_the_price_is_asked_and_no_makes_nothing(contact, monkeypatch, answer):
    monkeypatch.setattr(console, "can_ask", lambda: True)
    result = contact(code=1, input=answer)
    assert "Nothing was created" in result.stderr
    assert "USD an hour" in result.stderr
    assert "at most about" in result.stderr
    assert made_nothing(contact)
    assert not contact.report.exists()


def test_without_a_terminal_yes_must_be_said(contact):
    assert "--yes" in contact(code=2).stderr
    assert made_nothing(contact)


def test_what_the_doctor_finds_is_refused(contact):
    contact.subscription.usages["lowPriorityCores"] = (0, 1)
    result = contact("--yes", code=1)
    assert "lowPriorityCores" in result.stderr
    assert made_nothing(contact)
    shown = json.loads(contact("--yes", "--json", code=1).stdout)
    failures = [one["check"] for one in shown["findings"] if one["level"] == "failure"]
    assert [one for one in failures if "quota" in one]


def test_where_the_cheapest_size_is_not_to_be_had_a_yes_is_for_the_next(contact, monkeypatch):
    monkeypatch.setattr(console, "can_ask", lambda: True)
    (cheapest,) = [one for one in contact.subscription.skus if one["name"] == "Standard_D2s_v5"]
    cheapest["restrictions"] = [restriction("Location")]
    for name in ("Standard_E2s_v5", "Standard_D2s_v6", "Standard_F2s_v2", "Standard_E2s_v6"):
        contact.subscription.skus.append(sku(name))
    result = contact(input="y\n")
    assert contact.document()["size"] != "Standard_D2s_v5"
    assert contact.document()["size"] in result.stderr


def test_a_stack_file_of_the_users_is_left_alone(contact):
    theirs = (contact.project / "Pulumi.x.yaml").read_text()
    contact.stack_file.write_text(theirs)
    assert "Pulumi.first-contact.yaml" in contact("--yes", code=2).stderr
    assert contact.stack_file.read_text() == theirs
    assert contact.fake.calls == []


def test_a_head_that_nobody_can_reach_is_refused(contact):
    change_config(contact.project, {"sunspot:access": {"public_ip": False}})
    assert "sunspot:access" in contact("--yes", code=2).stderr
    assert made_nothing(contact)


def test_a_report_that_cannot_be_written_is_refused(contact, tmp_path):
    contact.report = tmp_path / "missing" / "report.json"
    assert "missing" in contact("--yes", code=2).stderr
    contact.report = tmp_path
    assert str(tmp_path) in contact("--yes", code=2).stderr
    assert made_nothing(contact)


@pytest.mark.parametrize("extra", [["--yes"], ["--report", "r.json"]])
def test_its_options_are_only_for_it(contact, extra):
    result = run("doctor", "x", *extra)
    assert result.exit_code == 2
    assert "--first-contact" in result.stderr


def test_another_target_has_no_first_contact(project):
    write(project, "y", target="local")
    result = run("doctor", "--first-contact", "y", "--yes")
    assert result.exit_code == 2
    assert "local" in result.stderr


def test_without_azures_clients_it_does_not_begin(contact, monkeypatch):
    monkeypatch.setattr(clients, "are_installed", lambda: False)
    assert "pip install '.[azure]'" in contact("--yes", code=1).stderr
    assert made_nothing(contact)


# Failures


def test_an_etag_that_is_refused_is_in_the_report(contact):
    def another_change(scale_set):
        scale_set.revision += 1

    contact.arm.before_patch = another_change
    contact("--yes", code=1)
    failed = {ETAG: "failed", POLL: "not tried"}
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | failed
    assert "PreconditionFailed" in contact.details()[ETAG]
    assert is_gone(contact)


def test_failures_that_do_not_depend_on_each_other_are_all_in_the_report(contact, sshd):
    contact.arm.etags_ignored = contact.arm.polls_denied = True
    contact.storage.append(FORBIDDEN)
    sshd.stub("docker", "echo rayproject/ray:2.60.0-py311")
    contact("--yes", code=1)
    failed = dict.fromkeys([PULL, ETAG, POLL, RESULTS_HEAD], "failed")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | failed
    details = contact.details()
    assert "docker.io" in details[PULL]
    assert "stale" in details[ETAG]
    assert "locations/operations/read" in details[POLL]
    assert "AuthorizationPermissionMismatch" in details[RESULTS_HEAD]
    assert is_gone(contact)


def test_a_worker_that_does_not_come_stops_what_needs_it(contact, monkeypatch):
    never = {"outcome": "failed", "detail": "no worker ran a task"}
    nothing = {"outcome": "not tried", "detail": "there is no worker"}
    monkeypatch.setattr(Run, "growth", lambda _: iter([{"growth": never, "results": nothing}]))
    contact("--yes", code=1)
    of_workers = dict.fromkeys([RESULTS_WORKER, IDLENESS, EVICTION], "not tried")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | {GROWTH: "failed"} | of_workers
    assert is_gone(contact)


def test_a_worker_that_stays_and_an_eviction_that_azure_refuses(contact, monkeypatch):
    monkeypatch.setattr(on_site, "IDLE_S", 0.1)
    unknown = [{"worker": "unknown"}, {"eviction": OK}]
    monkeypatch.setattr(contact.arm, "evict", lambda _: None)
    monkeypatch.setattr(Run, "eviction", lambda _: iter(unknown))
    contact("--yes", code=1)
    failed = dict.fromkeys([IDLENESS, EVICTION], "failed")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | failed
    assert "capacity 1" in contact.details()[IDLENESS]
    assert "ResourceNotFound" in contact.details()[EVICTION]


def test_a_head_that_comes_back_as_another_cluster_is_a_failure(contact, monkeypatch):
    def restart(self, _):
        self.api.nodes[0]["node_id"] = "second"
        self.api.jobs.clear()

    contact.arm.on_restart = lambda vm: restart(contact, vm)
    contact("--yes", code=1)
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | {RESTART: "failed"}
    assert "another cluster" in contact.details()[RESTART]


def test_a_probe_that_cannot_run_and_a_head_that_does_not_come_back(contact, monkeypatch):
    monkeypatch.setattr(on_site, "RESTART_S", 0.1)
    contact.arm.on_restart = lambda _: None
    contact.config.write_text("{")
    contact("--yes", code=1)
    failed = dict.fromkeys([ETAG, POLL, RESULTS_HEAD, RESTART], "failed")
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | failed
    assert is_gone(contact)


def test_a_restart_that_azure_never_ends(contact, monkeypatch):
    monkeypatch.setattr(on_site, "OPERATION_S", 0.1)
    contact.arm.restart_polls = 1_000_000
    contact("--yes", code=1)
    assert contact.outcomes() == dict.fromkeys(ALL, "ok") | {RESTART: "failed"}
    assert is_gone(contact)


def test_a_down_that_fails_is_tried_again(contact, monkeypatch):
    destroy, refusals = contact.fake.destroy, [SunspotError("Azure answered 429")]

    def refused_once(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return destroy(*arguments, **options)

    monkeypatch.setattr(contact.fake, "destroy", refused_once)
    contact("--yes")
    assert not refusals
    assert contact.outcomes() == dict.fromkeys(ALL, "ok")
    assert is_gone(contact)


def test_an_up_that_fails_is_the_only_step_and_what_it_made_is_taken_away(contact, monkeypatch):
    def up(_):
        contact.fake.now = contact.fake.made
        raise SunspotError(f"QuotaExceeded in {SUBSCRIPTION}")

    monkeypatch.setattr(contact.fake, "up", up)
    result = contact("--yes", code=1)
    assert contact.outcomes() == dict.fromkeys(ALL, "not tried") | {UP: "failed", DOWN: "ok"}
    assert "QuotaExceeded" in contact.details()[UP]
    assert SUBSCRIPTION not in contact.report.read_text()
    assert SUBSCRIPTION not in result.stdout
    assert is_gone(contact)


def test_an_empty_stack_that_pulumi_keeps_is_told(contact, monkeypatch):
    def refuse():
        raise SunspotError("the backend is gone")

    monkeypatch.setattr(contact.fake, "remove", refuse)
    monkeypatch.setattr(contact.fake, "up", lambda _: refuse())
    contact("--yes", code=1)
    assert contact.outcomes()[DOWN] == "ok"
    assert "pulumi stack rm first-contact" in contact.details()[DOWN]
    assert not contact.stack_file.exists()


def test_a_full_disk_does_not_keep_the_cluster_up(contact, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(report, "write_private", full)
    monkeypatch.setattr(contact.fake, "up", interrupt)
    result = contact("--yes", code=130)
    assert "No space left" in result.stderr
    assert "The report is in" not in result.stderr
    assert not contact.stack_file.exists()


def test_what_is_left_is_told_with_the_command_that_removes_it(contact):
    contact.left.append("/subscriptions/s/resourceGroups/g/providers/p/disks/forgotten")
    result = contact("--yes", code=1)
    assert contact.outcomes()[DOWN] == "failed"
    assert "disks/forgotten" in result.stderr
    assert TO_REMOVE in result.stderr
    assert contact.stack_file.exists()  # `down` needs it
