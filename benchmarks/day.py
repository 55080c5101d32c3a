"""A day in the life of a cluster on Azure, sped up, as a picture: demand, nodes by market, cost.

Azure Resource Manager is the stand-in of the tests; the head, its autoscaler and the workers are
real Ray nodes on this machine. Spot machines are evicted every now and then, and from some moment
on there is none. The last line compares the bill that the cluster's record gives with that of the
machines' times as the stand-in saw them.

    python benchmarks/day.py --picture docs/images/elastic.svg
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import _options
from _steps import Row, Step, Steps, picture

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import day_in_the_life
from day_in_the_life import STACK, Day

from sunspot import group_status
from sunspot.node import ledger
from sunspot.node.ledger import Life
from sunspot.targets.azure import costs

HOUR_S = 3600.0


def lived() -> Day:
    """Live the day, on a cluster that is gone afterwards."""
    with day_in_the_life.cluster() as made:
        # The watcher of an eviction is in this process.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(made.token)}
        return day_in_the_life.live(made)


def drawn(day: Day) -> str:
    """Return the picture of a day."""
    begin = min(task.asked for task in day.tasks)
    lives = ledger.lives(day.events)
    end = max(life.end or 0.0 for life in lives)
    evicted = [one.time - begin for one in day.events if one.kind == "evicted"]
    markets = group_status.markets(STACK)
    by_market = {
        market: [life for life in lives if markets[life.group] == market]
        for market in ("spot", "on-demand")
    }
    waiting = _count([(task.asked, task.began) for task in day.tasks], begin)
    running = _count([(task.began, task.ended) for task in day.tasks], begin)
    nodes = [
        Steps(label=market, steps=_count([(one.begin, one.end or end) for one in of], begin))
        for market, of in by_market.items()
    ]
    cost = [
        Steps(label=market, steps=_cents(of, begin, end), sloped=True)
        for market, of in by_market.items()
    ]
    rows = [
        Row(
            heading="tasks",
            values=[Steps(label="waiting", steps=waiting), Steps(label="running", steps=running)],
        ),
        Row(heading="machines", values=nodes, marks=evicted, marked="an eviction"),
        Row(heading="cost so far, US cents", values=cost),
    ]
    return picture("A day in the life of an elastic group, sped up", rows, end - begin)


def _count(spans: Iterable[tuple[float, float]], begin: float) -> list[Step]:
    """How many of these spans there are, from each moment at which that changes."""
    changes = sorted(
        change for start, end in spans for change in ((start - begin, 1), (end - begin, -1))
    )
    steps, count = [], 0
    for at, change in changes:
        count += change
        steps.append((at, float(count)))
    return steps


def _cents(lives: Sequence[Life], begin: float, end: float) -> list[Step]:
    """The cost of these machines so far, at each second."""
    prices = costs.of_each(STACK, Path.cwd())
    return [
        (
            float(second),
            sum(
                100 * prices[life.group] / HOUR_S * max(0.0, min(life.end or end, now) - life.begin)
                for life in lives
            ),
        )
        for second in range(int(end - begin) + 1)
        for now in [begin + second]
    ]


def main() -> None:
    """Print the comparison as JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--picture", type=Path, metavar="FILE", help="where to draw the day")
    given = options.parse_args()
    print(json.dumps(_result(lived(), given.picture)))


def _result(day: Day, file: Path | None) -> dict[str, object]:
    if file is not None:
        file.write_text(drawn(day), encoding="utf-8")
    prices, markets = costs.of_each(STACK, Path.cwd()), group_status.markets(STACK)
    spent = ledger.spent(ledger.lives(day.events), markets, prices, now=0.0)
    ours = sum(one.usd for one in spent.values())
    # A machine is named after its set, and the set after the kind of its machines.
    theirs = sum(
        ((machine.ended or 0.0) - machine.begun)
        / HOUR_S
        * prices[name.rpartition("_")[0].removeprefix("sunspot-test-")]
        for name, machine in day.billed.items()
        if machine.listed
    )
    return {
        "name": "day",
        "ours": round(ours, 5),
        "peer": round(theirs, 5),
        "ratio": round(ours / theirs, 4),
        "machine_hours": {market: round(one.hours, 4) for market, one in spent.items()},
        "evicted": len(day.evicted),
        "tasks": len(day.tasks),
    }


if __name__ == "__main__":
    main()
