"""A local cluster that is suspended and brought back, without Ray: records, ports and failures."""

import os
import stat
import subprocess
import sys

import pytest
from job_api import serving
from local_stacks import WORKERS, stack, write

from sunspot.errors import NotUpError, SunspotError, SuspendedError, UsageError
from sunspot.node.free_ports import PortClaims
from sunspot.node.local.folder import CLUSTER_VARIABLE, HEAD
from sunspot.node.processes import Process
from sunspot.targets.local import plan, starting
from sunspot.targets.local.host_ports import Chooser, HostPorts
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.protocol import silent
from sunspot.targets.scaling import Size

DEV = stack(WORKERS)


@pytest.fixture
def target(tmp_path):
    return LocalTarget(tmp_path / "clusters")


@pytest.fixture
def folder(target):
    """A cluster "dev" that is up, with a worker; its head is a process that can be stopped."""
    made = write(target.clusters, DEV, address="127.0.0.1:1", ready_at=1.0)
    made.add_node(made.cluster().shapes["workers"])
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    environment = os.environ | {CLUSTER_VARIABLE: str(made.path)}
    with subprocess.Popen(command, env=environment, start_new_session=True) as head:
        made.record_process(HEAD, Process.of(head.pid))
        yield made
        head.kill()


@pytest.fixture
def suspended(target, folder):
    target.suspend("dev", silent)
    return folder


@pytest.fixture
def launched(monkeypatch):
    """The names of the nodes that were to start; they are said to be up, and none starts."""
    names = []

    def start(folder, nodes, progress, timeout_s):
        names.extend(node.name for node in nodes)
        for node in nodes:
            folder.record_process(node.name, Process.current())
        folder.update_cluster(address="127.0.0.1:1", ready_at=2.0)

    monkeypatch.setattr(starting, "start", start)
    return names


def test_suspend_ends_the_processes_and_keeps_the_records(target, suspended):
    assert suspended.processes() == []
    assert target.is_suspended("dev")
    assert target.names() == ["dev"]
    assert target.nodes("dev") == []
    with pytest.raises(SuspendedError, match=r"suspended.*sunspot start dev") as caught:
        target.handle("dev")
    assert caught.value.exit_code == 2


def test_suspend_stops_the_jobs_that_run_so_that_their_records_are_right(target, folder):
    with serving() as (api, port):
        folder.update_cluster(dashboard_port=port)
        folder.token.write_text(api.token)
        api.add("ended", "SUCCEEDED")
        api.add("endless", "RUNNING", "RUNNING", "STOPPED")
        target.suspend("dev", silent)
        posted = [seen.path for seen in api.seen if seen.method == "POST"]
    assert posted == ["/api/jobs/endless/stop"]
    assert target.is_suspended("dev")


@pytest.mark.parametrize("again", ["up", "suspend"])
def test_what_is_suspended_is_not_brought_up_or_suspended_again(target, suspended, again):
    with pytest.raises(SuspendedError, match="sunspot start dev"):
        target.up(DEV, silent) if again == "up" else target.suspend("dev", silent)
    assert target.is_suspended("dev")


def test_what_is_not_up_is_neither_suspended_nor_started(target):
    for command in (target.suspend, target.start):
        with pytest.raises(NotUpError, match="'dev' is not up"):
            command("dev", silent)


def test_what_is_up_is_not_started(target, folder):
    with pytest.raises(UsageError, match="'dev' is not suspended"):
        target.start("dev", silent)
    assert folder.is_running(HEAD)


def test_what_is_still_starting_is_not_suspended(target):
    write(target.clusters, DEV)
    with pytest.raises(SunspotError, match="still starting"):
        target.suspend("dev", silent)
    assert not target.is_suspended("dev")


def test_down_of_a_suspended_cluster_leaves_nothing(target, suspended):
    removal = target.down("dev", silent)
    assert removal is not None
    assert removal.left == []
    assert not suspended.path.exists()


def test_start_brings_the_same_cluster_back_with_new_workers(target, suspended, launched):
    before = suspended.cluster()
    plan.set_size(suspended, "workers", Size(minimum=2, maximum=3))  # by hand, before
    started = target.start("dev", silent)
    assert not started.was_up
    assert launched == [HEAD, "workers-1", "workers-2"]
    assert target.sizes("dev") == {"workers": Size(minimum=2, maximum=3)}
    after = suspended.cluster()
    assert (after.stack, after.suspended_at) == (before.stack, None)
    assert [node.name for node in target.nodes("dev")] == [HEAD, "workers-1", "workers-2"]
    assert stat.S_IMODE(suspended.temp_dir.stat().st_mode) == 0o700


def test_the_head_starts_on_the_state_that_it_had(folder):
    environment = folder.cluster().shapes[HEAD].environment
    assert environment["RAY_gcs_storage"] == "rocksdb"
    assert environment["RAY_gcs_storage_path"] == str(folder.gcs_state)
    assert folder.gcs_state.parent == folder.path


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SunspotError("no")])
def test_a_start_that_fails_or_is_interrupted_leaves_it_suspended(
    target, suspended, monkeypatch, error
):
    running = []

    def start(folder, nodes, progress, timeout_s):
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        environment = os.environ | {CLUSTER_VARIABLE: str(folder.path)}
        running.append(subprocess.Popen(command, env=environment, start_new_session=True))
        raise error

    monkeypatch.setattr(starting, "start", start)
    with pytest.raises(type(error)) as caught:
        target.start("dev", silent)
    assert caught.value.__notes__ == ["dev is suspended, as before"]
    running[0].wait(10)
    assert target.is_suspended("dev")
    assert suspended.processes() == []
    assert [node.name for node in suspended.nodes() if node.goal == "up"] == [HEAD]


def test_what_a_killed_suspend_left_is_ended_before_the_start(target, folder, launched):
    folder.update_cluster(suspended_at=1.0)
    head = folder.process(HEAD)
    target.start("dev", silent)
    assert not head.is_running()
    assert launched == [HEAD]


def test_ports_are_those_of_before_where_they_are_free():
    with PortClaims() as claims:
        before = HostPorts(gcs=21_001, dashboard=21_002, client=21_003)
        recorded = {21_002: "other"}
        chosen = Chooser(cluster="dev", recorded=recorded, claims=claims).again(before)
    assert (chosen.gcs, chosen.client) == (21_001, 21_003)
    assert chosen.dashboard not in (21_001, 21_002, 21_003)
    (note,) = chosen.notes
    assert "port 21002 is taken now by the cluster 'other'" in note
    assert str(chosen.dashboard) in note
