"""What `sunspot status` says of groups and of what is recorded: as lines, and as JSON."""

import io
import json
from dataclasses import replace

from rich.console import Console

from sunspot import status
from sunspot.group_status import GroupStatus
from sunspot.node.events import Event
from sunspot.node.ledger import Spent
from sunspot.node.notices import Notice
from sunspot.recorded import Summary
from sunspot.status import Status


def printed(found):
    out = io.StringIO()
    status.show(found, Console(file=out, width=200, highlight=False))
    return out.getvalue()


def test_a_groups_workers_are_counted_by_market_beside_its_limits():
    group = GroupStatus(
        name="gpu", minimum=0, maximum=8, now={"spot": 2, "on-demand": 1}, starting=1
    )
    found = Status(name="dev", handle=None, nodes=[], groups=[group])
    assert "min/now/max of gpu 0/3/8: 2 spot, 1 on-demand, 1 starting" in printed(found)
    assert status.to_json(found)["groups"] == [
        {
            "name": "gpu",
            "minimum": 0,
            "maximum": 8,
            "now": {"spot": 2, "on-demand": 1},
            "starting": 1,
        }
    ]


def test_what_is_recorded_is_shown_in_short():
    past = Summary(
        events=[Event(kind="evicted", group="gpu", node="gpu-0")],
        notices=[
            Notice(about="group:gpu", text="group 'gpu' is [paused]", since=1.0),
            Notice(about="spot:gpu", text="spot was refused", since=2.0, until=3e9),
        ],
        evicted={"gpu": 3},
        spent={
            "spot": Spent(hours=31.0, usd=3.1),
            "on-demand": Spent(hours=46.0, usd=9.2, price_unknown=("odd",)),
        },
    )
    found = Status(name="dev", handle=None, nodes=[], past=past)
    text = printed(found)
    assert "notice: group 'gpu' is [paused]\n" in text
    assert "notice: spot was refused (until " in text
    assert "evicted in the last day: 3 of gpu\n" in text
    for part in ("12.300 USD so far", "spot 3.100 (31.0 h)", "on-demand 9.200 (46.0 h)", "odd"):
        assert part in text
    data = status.to_json(found)
    assert json.loads(json.dumps(data)) == data | {
        "cost_so_far": {
            "spot": {"hours": 31.0, "usd": 3.1, "price_unknown": []},
            "on-demand": {"hours": 46.0, "usd": 9.2, "price_unknown": ["odd"]},
        }
    }
    assert [one["until"] for one in data["notices"]] == [None, 3e9]
    assert (data["evicted_last_day"], data["record_problem"]) == ({"gpu": 3}, None)


def test_a_record_that_cannot_be_read_is_a_line_and_all_else_is_shown():
    past = Summary(problem="no SSH to the head")
    found = Status(name="dev", handle=None, nodes=[], past=past)
    assert "events and notices are unknown: no SSH to the head\n" in printed(found)
    both = replace(found, problem="no SSH to the head")
    assert "unknown" not in printed(both)
    assert status.to_json(found)["record_problem"] == "no SSH to the head"
