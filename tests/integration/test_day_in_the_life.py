"""A day in the life of a cluster, sped up: what came of its jobs, its machines and its bill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import day_in_the_life
import pytest
from day_in_the_life import DEADLINE_S, GROUP, STACK, WORK, Day

from sunspot import group_status
from sunspot.node import ledger
from sunspot.targets.azure import costs

pytestmark = pytest.mark.timeout(3 * DEADLINE_S)

TWIN = f"{GROUP}-on-demand"
# Between what the stand-in does and what the head writes of it, on a machine that may be busy.
SLACK_S = 5.0


@pytest.fixture(scope="module")
def day() -> Iterator[Day]:
    with pytest.MonkeyPatch.context() as variables, day_in_the_life.cluster() as made:
        # The watcher of an eviction is in this process.
        variables.setenv("RAY_AUTH_MODE", "token")
        variables.setenv("RAY_AUTH_TOKEN_PATH", str(made.token))
        yield day_in_the_life.live(made)


def test_every_result_is_right(day: Day):
    count = sum(tasks for _, tasks, _, _ in WORK)
    assert [task.result for task in day.tasks] == [number**2 for number in range(count)]
    assert day.total == sum(number**2 for number in range(count))


def test_machines_were_evicted_and_there_was_no_spot_for_a_while(day: Day):
    evicted = {event.node for event in day.events if event.kind == "evicted"}
    assert evicted
    assert evicted <= set(day.evicted)
    assert {task.kind for task in day.tasks} == {GROUP, TWIN}
    assert "refused" in {event.kind for event in day.events if event.group == GROUP}
    assert any("no spot capacity" in notice.text and notice.until for notice in day.notices)


def test_no_machine_is_left(day: Day):
    assert day.left == []
    assert all(machine.ended for machine in day.billed.values())


def test_the_record_has_the_times_of_every_machine(day: Day):
    lives = {life.node: life for life in ledger.lives(day.events)}
    seen = {name: machine for name, machine in day.billed.items() if machine.listed}
    assert lives.keys() == seen.keys()
    for name, machine in seen.items():
        life = lives[name]
        assert machine.listed
        assert machine.ended
        assert machine.unlisted
        assert life.end
        assert machine.begun <= life.begin <= machine.listed + SLACK_S
        assert machine.ended - SLACK_S <= life.end <= machine.unlisted + SLACK_S


def test_the_bill_is_the_machines_times(day: Day):
    prices = costs.of_each(STACK, Path.cwd())
    markets = group_status.markets(STACK)
    spent = ledger.spent(ledger.lives(day.events), markets, prices, now=0.0)
    assert spent.keys() == {"spot", "on-demand"}
    assert 0 < prices[GROUP] < prices[TWIN]
    for kind in (GROUP, TWIN):
        machines = [
            machine
            for name, machine in day.billed.items()
            if machine.listed and name.rpartition("_")[0] == f"sunspot-test-{kind}"
        ]
        shortest = sum((one.ended or 0) - (one.listed or 0) - 2 * SLACK_S for one in machines)
        longest = sum((one.unlisted or 0) - one.begun + SLACK_S for one in machines)
        usd = spent[markets[kind]].usd
        assert shortest * prices[kind] / 3600 <= usd <= longest * prices[kind] / 3600
