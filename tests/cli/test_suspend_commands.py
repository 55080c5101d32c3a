"""`sunspot suspend` and `sunspot start` as commands: their errors, and what `status` shows."""

import json
import time

import pytest
from cli_runs import failed, run
from local_stacks import WORKERS, stack, write

from sunspot.errors import UsageError
from sunspot.idle import Idle
from sunspot.node.idle import KEEP_ALIVE
from sunspot.node.processes import Process
from sunspot.targets import abilities
from sunspot.targets.clusters import get
from sunspot.targets.idling import Idling, duration
from sunspot.targets.suspending import Suspending

pytestmark = pytest.mark.usefixtures("place")


@pytest.mark.parametrize("command", ["suspend", "start"])
@pytest.mark.parametrize(("names", "told"), [((), "no cluster is up"), (("gpu",), "'gpu' is not")])
def test_what_is_not_there_is_wrong_input(command, names, told):
    message = failed(2, command, *names)
    assert told in message
    assert "there is nothing to" in message


def test_start_of_what_is_up_is_wrong_input(cluster):
    assert "'dev' is not suspended" in failed(2, "start", "dev")


@pytest.fixture
def suspended(place, clusters):
    return write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0, suspended_at=2.0)


def test_status_says_suspended_and_what_comes_next(suspended):
    result = run("status")
    assert result.exit_code == 0
    assert "dev is suspended" in result.stdout
    for command in ("sunspot start dev", "sunspot down dev"):
        assert command in result.stdout
    shown = json.loads(run("status", "--json").stdout)
    assert (shown["suspended"], shown["problem"], shown["nodes"]) == (True, None, [])


@pytest.mark.parametrize(
    "arguments", [["submit", "--", "true"], ["jobs"], ["scale", "workers=1"], ["suspend"]]
)
def test_what_needs_the_cluster_says_how_to_bring_it_back(suspended, arguments):
    assert "bring it back with: sunspot start dev" in failed(2, *arguments).lower()


def test_a_suspended_cluster_can_be_taken_down(suspended):
    assert "dev is down" in run("down", "dev").stdout
    assert not suspended.path.exists()


@pytest.mark.parametrize("name", ["slurm", "compose", "kubernetes"])
def test_a_target_that_cannot_suspend_says_so(name):
    with pytest.raises(UsageError, match=f"'{name}' does not support suspending clusters"):
        abilities.need(get(name), Suspending)


# Keeping a cluster


@pytest.fixture
def lazy(clusters):
    """A cluster that is up, with a policy for when it is idle."""
    idle = {"after_minutes": 60, "action": "stop-head"}
    lazy = stack(WORKERS).model_copy(update={"idle": Idle.model_validate(idle)})
    folder = write(clusters, lazy, address="127.0.0.1:1", ready_at=1.0)
    folder.record_process("head", Process.current())
    return folder


@pytest.mark.usefixtures("cluster")
def test_without_a_policy_there_is_nothing_to_postpone():
    assert "sunspot:idle" in failed(2, "keep-alive", "dev", "2h")


def test_a_cluster_is_kept_for_a_while(lazy):
    assert "is kept until" in run("keep-alive", "2h").stdout
    (kept,) = lazy.notices.read()
    assert (kept.about, kept.until) == (KEEP_ALIVE, pytest.approx(time.time() + 7200, abs=60))
    assert run("keep-alive", "dev", "0").exit_code == 0
    assert lazy.notices.read() == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("0.5d", 43200)],
)
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("given", ["2", "h", "2 h", "-1h", "2h!", "8d", "1w"])
def test_what_is_not_a_duration_names_what_is(given):
    with pytest.raises(UsageError) as caught:
        duration(given)
    assert given in str(caught.value)


@pytest.mark.usefixtures("lazy")
def test_more_than_a_stack_and_a_duration_is_wrong_input():
    assert "3 words" in failed(2, "keep-alive", "dev", "gpu", "2h")


@pytest.mark.parametrize("name", ["slurm", "compose", "kubernetes"])
def test_a_target_that_does_not_look_after_idle_clusters_refuses_the_key(name):
    idle = Idle.model_validate({"action": "warn"})
    with pytest.raises(UsageError, match=rf"sunspot:idle: target '{name}'"):
        stack(WORKERS).model_copy(update={"idle": idle}).for_target(name)
    with pytest.raises(UsageError):
        abilities.need(get(name), Idling)
