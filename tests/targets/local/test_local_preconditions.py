"""What a stack needs of this machine, as `sunspot doctor` reports it."""

import resource
from collections import namedtuple

import pytest
from local_stacks import WORKERS, stack, write

from sunspot.node import free_ports
from sunspot.spec import RayNodeConfig
from sunspot.targets.local import capacity, preconditions
from sunspot.targets.local.target import LocalTarget

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "clusters", stack(WORKERS))


def found(folder, name, described=None):
    """The finding of that name."""
    findings = preconditions.check(described or stack(WORKERS), folder)
    (finding,) = [one for one in findings if one.check == name]
    return finding


def test_a_machine_that_has_everything_is_ok(folder, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    findings = preconditions.check(stack(WORKERS), folder)
    assert {one.level for one in findings} == {"ok"}
    assert len({one.check for one in findings}) == len(findings) == 8


def test_a_busy_machine_is_a_warning(folder, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert found(folder, "cores").level == "warning"
    assert "1000.0" in found(folder, "cores").detail


@pytest.mark.parametrize("workers", [{"min_workers": 10**6, "max_workers": 10**6}, {}])
def test_memory_that_cannot_be_had_is_a_failure(folder, workers):
    head = RayNodeConfig(cpu=1, memory_gb=4 if workers else 100_000)
    wanted = stack(WORKERS.model_copy(update=workers), head=head)
    finding = found(folder, "memory", wanted)
    assert finding.level == "failure"
    assert ("1000000 workers" if workers else "100000") in finding.detail


def test_memory_that_others_use_is_a_warning(folder, monkeypatch):
    monkeypatch.setattr(capacity, "HEAD_GIB", 10**6)
    monkeypatch.setattr(capacity, "_host_gib", lambda: 10.0**7)
    assert found(folder, "memory").level == "warning"


def test_little_shared_memory_is_a_warning_with_the_size_that_it_needs(folder, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(2**30, 2**30, 2**29))
    finding = found(folder, str(preconditions.SHARED_MEMORY))
    assert finding.level == "warning"
    assert "--shm-size=" in finding.remedy


def test_a_machine_without_shared_memory_is_a_warning(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(preconditions, "SHARED_MEMORY", tmp_path / "none")
    assert found(folder, str(tmp_path / "none")).level == "warning"


@pytest.mark.parametrize(
    ("use", "name"), [("temp", preconditions.TEMP), ("state", "state directory")]
)
def test_a_full_disk_is_a_failure(folder, monkeypatch, use, name):
    monkeypatch.setitem(capacity.FREE_MIB, use, 2**40)
    assert found(folder, name).level == "failure"


def test_a_state_directory_of_others_is_a_failure(folder, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    finding = found(folder, "state directory")
    assert finding.level == "failure"
    assert "SUNSPOT_STATE_DIR" in finding.remedy


def test_a_folder_for_sockets_that_is_not_ours_is_a_failure(folder, monkeypatch, tmp_path):
    ours = tmp_path / "sockets"
    ours.mkdir()
    monkeypatch.setattr(type(folder), "temp_dir", ours / "x")
    assert found(folder, "folder for sockets").level == "ok"
    monkeypatch.setattr("os.getuid", lambda: 10**6)
    finding = found(folder, "folder for sockets")
    assert finding.level == "failure"
    assert str(ours) in finding.detail


@pytest.mark.parametrize(
    ("hard", "level"),
    [(1024, "warning"), (8192, "ok"), (resource.RLIM_INFINITY, "ok")],
)
def test_few_open_files_are_a_warning(folder, monkeypatch, hard, level):
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, hard))
    assert found(folder, "open files").level == level


def test_no_free_port_is_a_failure(folder, monkeypatch):
    monkeypatch.setattr(free_ports, "port_is_free", lambda _: False)
    finding = found(folder, "ports")
    assert finding.level == "failure"
    assert "31999" in finding.detail


def test_nothing_is_created(tmp_path):
    target = LocalTarget(tmp_path / "clusters")
    assert target.preconditions(stack(WORKERS), print)
    assert not list(tmp_path.iterdir())
