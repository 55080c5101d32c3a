"""A local node's helpers, which start again when they die, with a short stand-in for Ray's node."""

from types import SimpleNamespace

import pytest
import ray._private.node
import ray._private.services

from sunspot.node import raylet
from sunspot.node.local import ray_node
from sunspot.node.local.folder import ClusterFolder

HELPERS = ("monitor", "dashboard", "log_monitor")


class Node:
    """As far as it concerns who is dead, and who starts what."""

    def __init__(self, fails=False):
        self.fails = fails
        self.started = []
        kinds = ("raylet", "gcs_server", *HELPERS)
        self.all_processes = {kind: [SimpleNamespace(returncode=None)] for kind in kinds}

    def dead_processes(self):
        return [
            (kind, process)
            for kind, processes in self.all_processes.items()
            for process in processes
            if process.returncode is not None
        ]

    def die(self, kind, code=-9):
        self.all_processes[kind][0].returncode = code

    def start_monitor(self):
        self._start("monitor")

    def start_log_monitor(self):
        self._start("log_monitor")

    def start_api_server(self, *, include_dashboard, raise_on_failure):
        assert include_dashboard
        assert raise_on_failure
        self._start("dashboard")

    def start_ray_processes(self):
        self.started.append("raylet")

    def _start(self, kind):
        if self.fails:
            raise RuntimeError("the port is taken")
        assert kind not in self.all_processes
        self.started.append(kind)
        self.all_processes[kind] = [SimpleNamespace(returncode=None)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "dev" / "nodes").mkdir(parents=True)
    return ClusterFolder(tmp_path / "dev")


@pytest.fixture
def make(folder, monkeypatch):
    monkeypatch.setattr(ray._private.node, "Node", Node)
    ray_node.keep_whole(folder, "head")
    return ray._private.node.Node


@pytest.mark.parametrize("kind", HELPERS)
def test_a_helper_that_was_killed_starts_again_and_status_tells(folder, make, kind):
    node = make()
    node.die(kind)
    assert node.dead_processes() == []
    assert node.started == [kind]
    (note,) = folder.notes("head")
    assert "killed by signal 9 (SIGKILL) and was started again" in note


def test_one_that_ended_by_itself_too(folder, make):
    node = make()
    node.die("monitor", code=0)
    assert node.dead_processes() == []
    assert "the autoscaler exited with code 0" in folder.notes("head")[0]


@pytest.fixture
def joins(monkeypatch):
    """Lets the node be a member of the cluster after so many questions; None is never."""

    def joins(after, asked=None):
        asked = [] if asked is None else asked

        def get_node(_gcs_address, _node_id):
            asked.append(1)
            if after is None or len(asked) <= after:
                raise RuntimeError("not yet")
            return {}

        monkeypatch.setattr(ray._private.services, "get_node", get_node)

    return joins


def test_a_raylet_that_joins_late_is_waited_for(make, joins):
    asked = []
    joins(3, asked)
    node = make()
    node.gcs_address, node._node_id = "a", "n"
    node.start_ray_processes()
    assert (node.started, len(asked)) == (["raylet"], 4)


def test_a_raylet_that_died_is_not_waited_for(make, joins):
    joins(None)
    node = make()
    node.gcs_address, node._node_id = "a", "n"
    node.die("raylet")
    node.start_ray_processes()  # returns: Ray itself says that the node is dead


def test_a_raylet_is_not_waited_for_without_end(make, joins, monkeypatch):
    monkeypatch.setattr(raylet, "RAYLET_TIMEOUT_S", 0.2)
    asked = []
    joins(None, asked)
    node = make()
    node.gcs_address, node._node_id = "a", "n"
    node.start_ray_processes()
    assert asked


@pytest.mark.parametrize("kind", ["raylet", "gcs_server"])
def test_what_the_head_cannot_be_without_is_left_to_ray(make, kind):
    node = make()
    node.die(kind)
    assert [dead for dead, _ in node.dead_processes()] == [kind]
    assert node.started == []


def test_one_that_cannot_be_started_is_left_to_ray(folder, make, capsys):
    node = make(fails=True)
    node.die("dashboard")
    assert [dead for dead, _ in node.dead_processes()] == ["dashboard"]
    assert "the port is taken" in capsys.readouterr().out
    assert folder.notes("head") == []


def test_one_that_keeps_dying_is_left_to_ray(make, monkeypatch):
    node = make()
    for _ in range(ray_node.MOST_STARTS):
        node.die("monitor")
        assert node.dead_processes() == []
    node.die("monitor")
    assert [dead for dead, _ in node.dead_processes()] == ["monitor"]

    later = ray_node.time.monotonic() + ray_node.WITHIN_S
    monkeypatch.setattr(ray_node.time, "monotonic", lambda: later)
    assert node.dead_processes() == []
