"""What a first contact tries on the head, against stand-ins for ARM, IMDS and Storage."""

import ast
import json
from pathlib import Path

import pytest
from azure_model import http_service
from azure_model.access_tokens import STORAGE, access_token
from azure_model.arm import GROUP, HEAD, NICS, SCALE_SETS, Vm, serving
from azure_model.http_service import Reply
from azure_model.resource_ids import SUBSCRIPTION
from azure_model.rights import Grant, Rights

from cloud_init.render import AUTOSCALER_RUN_CONFIG, NODE_MODULES
from sunspot.node.metrics import Entry
from sunspot.ray.start import labels
from sunspot.targets.azure.first_contact import head_jobs, probe

SET = "sunspot-first-contact-spot"
URL = "abfss://results@account1.dfs.core.windows.net/"


@pytest.fixture
def arm():
    with serving() as made:
        made.add(SET)
        yield made


@pytest.fixture
def config(arm):
    return {
        "provider": {
            "subscription_id": SUBSCRIPTION,
            "resource_group": GROUP,
            "identity_client_id": "client",
            "scale_sets": {"spot": SET},
            "arm_url": arm.url,
            "imds_url": arm.url,
        },
        "idle_timeout_minutes": 5,
    }


@pytest.fixture
def azure(config):
    return probe.Azure(config, "spot")


def outcomes(answer):
    return {name: said["outcome"] for name, said in answer.items()}


# What it may import, and where it looks


def test_it_imports_only_what_is_on_a_node():
    tree = ast.parse(Path(probe.__file__).read_text())
    ours = {
        f"{one.module}.{name.name}".replace(".", "/")
        for one in ast.walk(tree)
        if isinstance(one, ast.ImportFrom) and one.module and one.module.startswith("sunspot")
        for name in one.names
    }
    there = {f"sunspot/node/{module.removesuffix('.py')}" for module in NODE_MODULES}
    assert ours
    assert all(any(one == has or one.startswith(f"{has}/") for has in there) for one in ours), ours


def test_the_config_is_where_the_head_has_it():
    assert head_jobs.CONFIG == AUTOSCALER_RUN_CONFIG


def test_workers_are_found_by_the_label_that_they_have():
    assert labels("spot", "spot")[probe.GROUP_LABEL] == "spot"


# The etag and the operation


def test_an_etag_is_accepted_and_a_stale_one_is_not(azure, arm):
    answer = probe.changes(azure)
    assert outcomes(answer) == {"etag": "ok", "poll": "ok"}
    assert "412" in answer["etag"]["detail"]
    assert "quoted" in answer["etag"]["detail"]
    assert "Azure-AsyncOperation" in answer["poll"]["detail"]
    assert arm.sets[SET].capacity == 0
    assert [one for one in arm.requests if one[0] == "PATCH"] == [
        ("PATCH", f"{SCALE_SETS}/{SET}")
    ] * 2


def test_a_set_whose_own_etag_is_refused(azure, arm):
    def another_change(scale_set):
        scale_set.revision += 1

    arm.before_patch = another_change
    answer = probe.changes(azure)
    assert outcomes(answer) == {"etag": "failed", "poll": "not tried"}
    assert "PreconditionFailed" in answer["etag"]["detail"]


def test_a_stale_etag_that_is_accepted_is_a_failure(azure, arm):
    arm.etags_ignored = True
    assert outcomes(probe.changes(azure)) == {"etag": "failed", "poll": "ok"}


def test_a_set_without_an_etag(azure, arm, monkeypatch):
    scale_set = arm.sets[SET]
    body = {key: value for key, value in scale_set.body().items() if key != "etag"}
    monkeypatch.setattr(type(scale_set), "body", lambda _: body)
    assert outcomes(probe.changes(azure)) == {"etag": "failed", "poll": "not tried"}


def test_operations_that_the_head_may_not_follow(azure, arm):
    arm.polls_denied = True
    answer = probe.changes(azure)
    assert outcomes(answer) == {"etag": "ok", "poll": "failed"}
    assert "locations/operations/read" in answer["poll"]["detail"]


def test_a_head_that_may_not_read_the_set(azure, arm):
    arm.rights = Rights((Grant(("Microsoft.Network/*",), NICS),))
    answer = probe.changes(azure)
    assert outcomes(answer) == {"etag": "failed", "poll": "not tried"}
    assert "virtualMachineScaleSets/read" in answer["etag"]["detail"]


@pytest.mark.parametrize(
    ("etag", "words"),
    [
        ('"3"', "strong, quoted, no GUID"),
        ('W/"9d3f1c2a-aaaa-bbbb"', "weak, quoted, a GUID"),
        ("7", "strong, unquoted, no GUID"),
    ],
)
def test_the_form_of_an_etag_without_its_value(etag, words):
    assert probe.form(etag) == words


@pytest.mark.parametrize("etag", ['"1"', '"0"', 'W/"abc0"', "1f", '"xyz"'])
def test_an_altered_etag_has_the_same_form_and_another_value(etag):
    other = probe._altered(etag)
    assert other != etag
    assert probe.form(other) == probe.form(etag)


# Results


@pytest.fixture
def storage(arm, monkeypatch):
    """Data Lake Storage, by its REST API; `asked` has (method, path, query)."""
    asked, refusals = [], []

    def answer(request):
        asked.append((request.method, request.path, dict(request.query)))
        if refusals:
            return refusals.pop(0)
        token, expected = request.headers.get("Authorization", ""), access_token(STORAGE)
        signed = token.partition(".")[0] == f"Bearer {expected}".partition(".")[0]
        return Reply({"PUT": 201, "DELETE": 200}[request.method] if signed else 401)

    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    with http_service.serving(answer) as url:
        yield {"imds_url": arm.url, "storage_url": url}, asked, refusals


def test_a_folder_is_made_in_the_container_and_removed(storage):
    servers, asked, _ = storage
    assert probe.results(URL, servers)["outcome"] == "ok"
    (put, path, query), (delete, same, _) = asked
    assert (put, delete, query) == ("PUT", "DELETE", {"resource": "directory"})
    assert path == same
    assert path.startswith("/results/first-contact-")


def test_a_folder_that_may_not_be_made(storage):
    servers, _, refusals = storage
    refusals.append(Reply(403, None, {"x-ms-error-code": "AuthorizationPermissionMismatch"}))
    answer = probe.results(URL, servers)
    assert answer["outcome"] == "failed"
    assert "AuthorizationPermissionMismatch" in answer["detail"]


def test_a_machine_without_storage_has_nothing_to_try():
    assert probe.results("", {})["outcome"] == "not tried"


class Files:
    """Arrow's filesystem, as far as it is used; refuses `refused`."""

    def __init__(self, root, refused=""):
        self.root, self.refused = root, refused

    def create_dir(self, path):
        if path == self.refused:
            raise OSError("AuthorizationPermissionMismatch")
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def open_output_stream(self, path):
        return (self.root / path).open("wb")

    def delete_dir(self, path):
        (self.root / path / "file").unlink()
        (self.root / path).rmdir()


def test_where_arrow_is_there_it_makes_the_folder_as_ray_train_does(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_arrow", lambda _: (Files(tmp_path), "99.0"))
    answer = probe.results(URL, {})
    assert answer["outcome"] == "ok"
    assert "99.0" in answer["detail"]
    assert list((tmp_path / "results").iterdir()) == []


def test_a_container_that_arrow_may_not_make_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_arrow", lambda _: (Files(tmp_path, "results"), "99.0"))
    assert "AuthorizationPermissionMismatch" in probe.results(URL, {})["detail"]


# Workers, without Ray


def test_idleness_is_shortened_in_the_file_that_ray_reads_again(config, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config))
    probe._shorten_idleness(file)
    assert json.loads(file.read_text()) == {**config, "idle_timeout_minutes": probe.IDLE_MINUTES}


@pytest.fixture
def cluster(monkeypatch):
    """The members of a cluster and its event log, which a test changes."""
    entries, alive = [], {"vm": "id"}
    monkeypatch.setattr(probe, "POLL_S", 0.01)
    for name in ("NOTICE_S", "LEAVING_S", "ENTRY_S", "GONE_S"):
        monkeypatch.setattr(probe, name, 0.1)
    monkeypatch.setattr(probe.gcs, "connect", lambda address: address)
    monkeypatch.setattr(probe.gcs, "alive_nodes", lambda _: alive)
    monkeypatch.setattr(probe.EventLog, "read", lambda _: entries)
    return entries, alive


def entry(**more):
    given = {"node": "vm", "group": "spot", "event": "E1", "type": "Preempt", "noticed_at": 1.0}
    return Entry(**{**given, "notice_s": 28.4, **more})


def test_an_eviction_is_told_by_its_notice_and_how_the_worker_left(cluster):
    entries, alive = cluster
    entries.append(entry(outcome="deadline", drain_s=23.1))
    alive.clear()
    seen = probe.watched("here", "vm")
    assert seen["outcome"] == "ok"
    for part in ("28 s of notice", "23 s", "deadline"):
        assert part in seen["detail"]


def test_a_worker_that_is_never_told(cluster):
    seen = probe.watched("here", "vm")
    assert seen["outcome"] == "failed"
    assert "not given a notice" in seen["detail"]


def test_a_worker_that_goes_without_a_notice_is_not_waited_for(cluster, monkeypatch):
    monkeypatch.setattr(probe, "NOTICE_S", 1000.0)
    cluster[1].clear()
    seen = probe.watched("here", "vm")
    assert seen["outcome"] == "failed"
    assert "without a notice" in seen["detail"]


def test_a_worker_that_is_told_and_stays(cluster):
    cluster[0].append(entry())
    seen = probe.watched("here", "vm")
    assert seen["outcome"] == "failed"
    assert "did not leave" in seen["detail"]


def test_a_last_word_that_is_missing_is_no_failure(cluster):
    cluster[0].append(entry(notice_s=None))
    cluster[1].clear()
    assert probe.watched("here", "vm")["detail"] == "drained: no time given, gone from Ray"


def test_the_set_after_the_machine_is_gone(cluster, azure, arm):
    arm.sets[SET].capacity = 1
    arm.vms["vm"] = Vm("vm", SET, "Succeeded")
    assert probe._after(azure, "vm", "drained")["outcome"] == "failed"
    del arm.vms["vm"]
    seen = probe._after(azure, "vm", "drained")
    assert seen["outcome"] == "ok"
    assert "capacity 1" in seen["detail"]


def test_where_no_worker_comes_the_machines_are_told(azure, arm):
    arm.vms["vm"] = Vm("vm", SET, "Creating")
    detail = probe._no_worker(azure)["detail"]
    assert "Creating" in detail
    assert azure.machines() == {"vm": "Creating"}
    assert HEAD not in azure.machines()


# The command


def test_each_answer_is_a_marked_line(config, tmp_path, capsys, arm):
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config))
    words = ["changes", "--config", str(file), "--group", "spot"]
    assert probe.main(words) == 0
    line = capsys.readouterr().out.strip()
    assert outcomes(json.loads(line.removeprefix(probe.MARK)))["etag"] == "ok"


def test_what_azure_does_not_answer_is_an_answer_too(config, tmp_path, capsys, monkeypatch):
    def refuse(_):
        raise probe.ArmError("no answer")

    monkeypatch.setattr(probe, "changes", refuse)
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config))
    assert probe.main(["changes", "--config", str(file), "--group", "spot"]) == 1
    line = capsys.readouterr().out.strip()
    assert json.loads(line.removeprefix(probe.MARK)) == {"error": "no answer"}
