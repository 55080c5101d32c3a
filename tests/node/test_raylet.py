"""Which ends of its raylet end a node, with a short stand-in for Ray's own node."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import ray._private.node
import ray._private.services
from ray import NodeID
from ray.core.generated import gcs_pb2
from ray.exceptions import GetTimeoutError, RpcError

from sunspot.node import raylet

# Ray ships its messages without types.
NodeInfo: Any = gcs_pb2.GcsNodeInfo  # pyright: ignore[reportAttributeAccessIssue]
ALIVE, DEAD = (NodeInfo.DESCRIPTOR.enum_values_by_name[name].number for name in ("ALIVE", "DEAD"))


class Node:
    """As far as it concerns the raylet and its end."""

    dashboard_agent_listen_port = 0

    def __init__(self):
        self.node_id = NodeID.from_random().hex()
        self.info = NodeInfo(state=DEAD)
        self.answers = []
        self.all_processes = {}
        self.killed = threading.Event()

    def start_raylet(self, code):
        process = SimpleNamespace(wait=lambda: code)
        self.all_processes["raylet"] = [SimpleNamespace(process=process)]

    def get_gcs_client(self):
        infos = {NodeID.from_hex(self.node_id): self.info, NodeID.from_random(): NodeInfo()}

        def get_all_node_info(*, timeout):
            assert timeout
            answer = self.answers.pop(0) if self.answers else infos
            if isinstance(answer, Exception):
                raise answer
            return answer

        return SimpleNamespace(get_all_node_info=get_all_node_info)

    def kill_all_processes(self, *, check_alive, allow_graceful):
        assert not check_alive
        assert not allow_graceful
        self.killed.set()


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(ray._private.node, "Node", Node)
    monkeypatch.setenv("RAY_START_HOOK", "sunspot.node.raylet.start_hook")
    monkeypatch.setattr(raylet, "ASK_AGAIN_S", 0.0)
    raylet.start_hook(None, head=False)
    return ray._private.node.Node


def test_the_hook_is_not_for_those_that_the_node_starts(make):
    assert make is not Node
    assert "RAY_START_HOOK" not in raylet.os.environ


def test_the_node_waits_longer_for_its_raylet_than_ray_does(monkeypatch):
    class Started:
        gcs_address, _node_id = "a", "n"

        def start_ray_processes(self):
            pass

        def dead_processes(self):
            return []

    answers = [RuntimeError("not yet"), RuntimeError("not yet"), {}]

    def get_node(*_):
        if isinstance(answer := answers.pop(0), Exception):
            raise answer

    monkeypatch.setattr(ray._private.node, "Node", Started)
    monkeypatch.setattr(ray._private.services, "get_node", get_node)
    raylet.start_hook(None, head=False)
    made: Any = ray._private.node.Node
    made().start_ray_processes()
    assert answers == []


@pytest.mark.parametrize("written", [None, 4711, -1], ids=["slow-agent", "agent", "serves-nothing"])
def test_a_raylet_whose_agent_is_slow_finds_its_port_written_down(
    make, monkeypatch, tmp_path, written
):
    """An agent that has written another one, or -1 where it serves nothing, knows better."""
    monkeypatch.setattr(raylet, "AGENT_PATIENCE_S", 0.0)
    monkeypatch.setattr(Node, "dashboard_agent_listen_port", 52365)
    monkeypatch.setattr(Node, "get_session_dir_path", lambda _: str(tmp_path), raising=False)
    node = make()
    place = (str(tmp_path), node.node_id, raylet.RAYLET.DASHBOARD_AGENT_LISTEN_PORT_NAME)
    if written:
        raylet.RAYLET.persist_port(*place, written)
    start_raylet(node, code=-9)
    assert raylet.RAYLET.wait_for_persisted_port(*place, 0) == (written or 52365)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def exits(monkeypatch):
    codes = []
    monkeypatch.setattr(raylet.os, "_exit", codes.append)
    return codes


def end_of_raylet(node, code, reason):
    death = node.info.death_info
    death.reason = death.DESCRIPTOR.enum_values_by_name[reason].number
    death.reason_message = "its dashboard_agent failed.\n- The agent failed to start."
    start_raylet(node, code)


def start_raylet(node, code):
    """Returns when all that waits beside the raylet has ended."""
    before = set(threading.enumerate())
    node.start_raylet(code)
    for thread in set(threading.enumerate()) - before:
        thread.join()


def test_a_raylet_that_left_though_nobody_asked_ends_the_node_and_says_why(make, exits, capsys):
    node = make()
    end_of_raylet(node, 0, "UNEXPECTED_TERMINATION")
    assert node.killed.is_set()
    assert exits == [1]
    assert capsys.readouterr().out == "raylet [exit code=0]\nits dashboard_agent failed.\n"


def test_a_gcs_that_is_away_is_asked_until_it_is_back(make, exits):
    node = make()
    node.answers = [RpcError("UNAVAILABLE"), GetTimeoutError(), {}, {}]
    end_of_raylet(node, 0, "UNEXPECTED_TERMINATION")
    assert exits == [1]


def test_a_gcs_that_is_away_ends_no_node_that_was_told_to_leave(make, exits):
    node = make()
    node.answers = [RpcError("UNAVAILABLE"), {}]
    end_of_raylet(node, 0, "AUTOSCALER_DRAIN_IDLE")
    assert exits == []


def test_a_node_that_the_gcs_still_takes_for_alive_ends_when_it_no_longer_does(make, exits):
    node = make()
    alive = {NodeID.from_hex(node.node_id): NodeInfo(state=ALIVE)}
    node.answers = [alive, alive]
    end_of_raylet(node, 0, "UNEXPECTED_TERMINATION")
    assert exits == [1]


def test_a_node_that_the_gcs_has_forgotten_ends(make, exits, capsys):
    node = make()
    node.answers = [{}] * raylet.ASK_TRIES
    end_of_raylet(node, 0, "UNEXPECTED_TERMINATION")
    assert exits == [1]
    assert "does not know" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0, "EXPECTED_TERMINATION"),
        (0, "AUTOSCALER_DRAIN_IDLE"),
        (0, "AUTOSCALER_DRAIN_PREEMPTED"),
        (-9, "UNEXPECTED_TERMINATION"),
    ],
)
def test_another_end_of_a_raylet_is_left_to_ray(make, exits, code, reason):
    node = make()
    end_of_raylet(node, code, reason)
    assert not node.killed.is_set()
    assert exits == []
