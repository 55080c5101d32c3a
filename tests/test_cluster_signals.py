"""A SIGTERM to a program with a `RayCluster` block, as from `kubectl delete pod`.

Also what a node's name would signal to the terminal.
"""

import contextlib
import os
import signal
import threading

import pytest
import ray
from fake_target import FakeRay, FakeTarget, node

from sunspot.cluster import RayCluster
from sunspot.spec import RayNodeConfig, SimpleRayCluster
from sunspot.targets import clusters
from sunspot.targets.protocol import WaitsForOthers

CONFIG = SimpleRayCluster(n_nodes=1, node_config=RayNodeConfig(cpu=1, memory_gb=2))
TERMINATED = 128 + signal.SIGTERM


@pytest.fixture
def target(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("ab" * 32)
    fake, fake_ray = FakeTarget(tmp_path / "token"), FakeRay()
    monkeypatch.setattr(clusters, "get", lambda _name: fake)
    for name in ("init", "shutdown"):
        monkeypatch.setattr(ray, name, getattr(fake_ray, name))
    return fake


@pytest.fixture(autouse=True)
def handler():
    """Python's own handler, as in a program of a user's, which is there again afterwards."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    after = signal.signal(signal.SIGTERM, before)
    assert after is signal.SIG_DFL


def terminate(*_):
    os.kill(os.getpid(), signal.SIGTERM)


def ended():
    return pytest.raises(SystemExit, check=lambda error: error.code == TERMINATED)


def test_the_cluster_is_taken_down(target):
    with ended(), RayCluster(CONFIG, name="mine", on_state=lambda *_: None):
        terminate()
    assert target.calls[-1] == "down"


def test_a_start_is_taken_back(target):
    def at_first_step(_state, message):
        if message == target.step:
            terminate()

    with ended():
        RayCluster(CONFIG, name="mine", on_state=at_first_step).__enter__()
    assert target.calls[-1] == "down"


def test_what_is_not_ours_stays(target):
    target.step = WaitsForOthers("another command is at work")
    target.up_error = SystemExit(TERMINATED)
    with ended():
        RayCluster(CONFIG, name="mine", on_state=lambda *_: None).__enter__()
    assert "down" not in target.calls


def test_a_handler_of_the_programs_own_is_left_to_it(target):
    def own(*_):
        received.append(1)

    received = []
    before = signal.signal(signal.SIGTERM, own)
    try:
        with RayCluster(CONFIG, name="mine", on_state=lambda *_: None):
            terminate()
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [1]


def test_another_block_of_the_program_is_the_same(target):
    for _ in range(2):
        with contextlib.suppress(SystemExit):
            test_the_cluster_is_taken_down(target)


def test_a_lost_nodes_name_does_not_steer_the_terminal(target, monkeypatch, caplog):
    def on_state(_state, message):
        if message.startswith("Lost"):
            messages.append(message)
            told.set()

    monkeypatch.setattr("sunspot.cluster_life.WATCH_INTERVAL_S", 0.01)
    told, messages = threading.Event(), []
    with RayCluster(CONFIG, name="mine", on_state=on_state):
        target.found = [node("a\x1b[2J\n", "lost"), node("workers-1", "lost")]
        assert told.wait(10)
    assert messages == [r"Lost 'a\x1b[2J\n', workers-1; 0 nodes are left."]
    assert messages[0] in caplog.messages
