"""`python -m sunspot.node.drain`, over a stand-in for the GCS. With Ray: tests/integration."""

import time

import pytest

from sunspot.node import drain, gcs


@pytest.fixture
def asked(monkeypatch):
    """The drains that were requested: node id, deadline in ms; `b` never leaves."""
    alive, asked = {"a": "1", "b": "2", "c": "3"}, []

    def drain_node(_, node_id, message, deadline_ms):
        asked.append((node_id, deadline_ms))
        alive.pop("a", None)

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.4:6379")
    monkeypatch.setattr(gcs, "connect", lambda address: address)
    monkeypatch.setattr(gcs, "alive_nodes", lambda _: dict(alive))
    monkeypatch.setattr(gcs, "drain_node", drain_node)
    return asked


def test_it_waits_until_the_nodes_have_left(asked):
    assert drain.main(["--seconds=5", "a"]) == 0
    assert drain.main(["--seconds=0.1", "b", "gone"]) == 1
    assert [node for node, _ in asked] == ["1", "2"]


def test_it_can_leave_the_waiting_to_others_and_nodes_are_told_the_deadline(asked):
    now = time.time()
    assert drain.main(["--seconds=600", "--no-wait", "b", "c"]) == 0
    assert {node for node, _ in asked} == {"2", "3"}
    assert all(now + 590 < deadline / 1000 < now + 700 for _, deadline in asked)
