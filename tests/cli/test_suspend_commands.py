"""`sunspot suspend` and `sunspot start` as commands: their errors, and what `status` shows."""

import json

import pytest
from cli_runs import failed, run
from local_stacks import WORKERS, stack, write

from sunspot.errors import UsageError
from sunspot.targets import abilities
from sunspot.targets.clusters import get
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


@pytest.mark.parametrize("name", ["azure", "slurm", "compose"])
def test_a_target_that_cannot_suspend_says_so(name):
    with pytest.raises(UsageError, match=f"'{name}' does not support suspending clusters"):
        abilities.need(get(name), Suspending)
