"""What this machine can hold."""

from dataclasses import replace

import pytest
from local_stacks import WORKERS, stack, write

from sunspot.errors import SunspotError, UsageError
from sunspot.spec import RayNodeConfig
from sunspot.targets.local import capacity
from sunspot.targets.local.target import LocalTarget


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "clusters", stack(WORKERS))


def many(count):
    return stack(replace(WORKERS, min_workers=count, max_workers=count))


def test_more_workers_than_fit_are_refused_before_anything_exists(tmp_path, monkeypatch):
    monkeypatch.setattr(capacity, "_host_gib", lambda: 24.0)
    target = LocalTarget(tmp_path / "clusters")
    with pytest.raises(UsageError, match=r"1000 workers.* it can run 115\."):
        target.up(many(1000), print)
    assert not target.clusters.exists()
    capacity.check(many(115))


@pytest.mark.parametrize("where", ["head", "workers"])
def test_memory_that_no_machine_has_is_refused(where):
    node = RayNodeConfig(cpu=1, memory_gb=100_000)
    group = replace(WORKERS, worker_nodes=node)
    claimed = stack(WORKERS, head=node) if where == "head" else stack(group)
    with pytest.raises(UsageError, match=f"memory_gb of '{where}' is 100000"):
        capacity.check(claimed)


def test_a_node_may_claim_more_memory_than_this_machine_has():
    capacity.check(stack(WORKERS, head=RayNodeConfig(cpu=96, memory_gb=1900)))


@pytest.mark.parametrize("use", ["temp", "state"])
def test_a_full_disk_is_named_with_what_is_free(folder, monkeypatch, use):
    monkeypatch.setitem(capacity.FREE_MIB, use, 2**40)
    with pytest.raises(SunspotError, match=r"the disk of /\S+ is full: \d+ MiB are free"):
        capacity.check_space(folder)


def test_a_failure_for_want_of_space_says_so_first(folder):
    error = SunspotError("node 'head' could not start: OSError: No space left on device")
    explained = str(capacity.explained(folder, error))
    assert explained.startswith("the disk of /")
    assert explained.endswith(str(error))


@pytest.mark.parametrize(("load", "busy"), [(1000.0, True), (0.0, False)])
def test_a_failure_on_a_busy_machine_says_that_it_is_busy(folder, monkeypatch, load, busy):
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    explained = str(capacity.explained(folder, SunspotError("node 'workers-3' could not start")))
    assert ("1000 processes" in explained) is busy
