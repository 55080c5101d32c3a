"""A real cluster of this machine that is left alone: it is said, postponed, and then done."""

from __future__ import annotations

import pytest
import yaml
from harness import FOREVER, Sunspot, what_is_left
from waiting import wait_for

from sunspot.node.idle import ABOUT
from sunspot.node.local.folder import ClusterFolder

NAME = "lazy"
NODE = {"cpu": 1, "memory_gb": 2}


@pytest.fixture
def up(sunspot: Sunspot):
    """Brings up a cluster with a policy and one worker, which is taken down at the end."""
    path = sunspot.project / f"Pulumi.{NAME}.yaml"

    def with_policy(action: str, minutes: float) -> ClusterFolder:
        config = {
            "sunspot:target": "local",
            "sunspot:idle": {"after_minutes": minutes, "action": action},
            "sunspot:cluster": {
                "head_node": NODE,
                "scaling_groups": [{"name": "workers", "worker_nodes": NODE}],
                "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
            },
        }
        path.write_text(yaml.safe_dump({"config": config}))
        sunspot.ok("up", NAME)
        return sunspot.folder(NAME)

    yield with_policy
    sunspot.ok("down", NAME)
    path.unlink()
    assert what_is_left(sunspot.folder(NAME)) == []


def idle_events(folder: ClusterFolder) -> list[str]:
    return [event.reason for event in folder.events.read() if event.kind == "idle"]


def said(folder: ClusterFolder) -> list[str]:
    return [one.text for one in folder.notices.read() if one.about == ABOUT]


def test_a_job_and_keep_alive_hold_it_and_then_it_is_suspended(sunspot: Sunspot, up):
    folder = up("stop-head", 0.2)
    sunspot.ok("submit", "--stack", NAME, "--name", "endless", "--detach", "--", *FOREVER)
    wait_for("the job to begin", lambda: "begun" in sunspot.client(NAME).logs("endless"))
    kept = sunspot.ok("keep-alive", NAME, "1h")
    assert "is kept until" in kept
    sunspot.client(NAME).stop("endless")
    # Kept though nothing uses it, for longer than its policy has.
    looks = []
    wait_for("a quarter of a minute", lambda: looks.append(1) or len(looks) > 30, poll_s=0.5)
    assert not sunspot.target.is_suspended(NAME)
    assert (idle_events(folder), said(folder)) == ([], [])

    sunspot.ok("keep-alive", NAME, "0")
    wait_for("the suspension", lambda: sunspot.target.is_suspended(NAME) and not folder.processes())
    warning, done = idle_events(folder)
    assert "keep-alive" in warning
    assert "suspended" in done

    sunspot.ok("start", NAME)
    assert said(folder) == []
    wait_for("the next suspension", lambda: sunspot.target.is_suspended(NAME))
    wait_for("its end", lambda: not folder.processes())


def test_workers_go_and_come_back_with_the_next_job(sunspot: Sunspot, up):
    folder = up("workers", 0.2)

    def workers() -> int:
        return sum(not node.is_head for node in sunspot.target.nodes(NAME) if node.state == "up")

    wait_for("the worker to go", lambda: workers() == 0)
    assert "worker" in said(folder)[0]
    assert sunspot.target.sizes(NAME)["workers"].minimum == 1
    sunspot.ok("submit", "--stack", NAME, "--name", "more", "--detach", "--", *FOREVER)
    wait_for("the worker to come back", lambda: workers() == 1)
    assert said(folder) == []
    sunspot.client(NAME).stop("more")


def test_an_edit_of_the_policy_holds_without_a_restart(sunspot: Sunspot, up):
    folder = up("stop-head", 60)
    before = folder.process("head")
    up("warn", 0.1)
    wait_for("the notice", lambda: any("nothing has used it" in text for text in said(folder)))
    assert folder.process("head") == before
    assert not sunspot.target.is_suspended(NAME)
