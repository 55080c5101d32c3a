"""Two of each command at the same time."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from cut_off import Ended, Installed
from fault_clusters import GONE_S, OWN, Clusters
from fault_table import AS_IT_WAS, NOTHING, Row

Record = Callable[[Row], None]

TWO = "two at once"


def unused() -> str:
    """A job's name; that of a test's first try is taken."""
    return f"twice-{secrets.token_hex(2)}"


def twice(sunspot: Installed, *arguments: str) -> tuple[Ended, Ended]:
    """Both answers, the one that did the work first; none is of a kind that never may be."""
    with sunspot.begun(*arguments) as one, sunspot.begun(*arguments) as other:
        both = one.to_its_end(), other.to_its_end()
    assert [trouble for ended in both for trouble in ended.troubles()] == []
    first, second = sorted(both, key=lambda ended: "waiting for" in ended.errors)
    return first, second


def test_up_and_down(sunspot: Installed, clusters: Clusters, record: Record):
    before = clusters.census()
    first, second = twice(sunspot, "up", OWN)
    wrong = [str(ended) for ended in (first, second) if ended.code != 0]
    assert [*wrong, f"{OWN} is up" in first.out, f"{OWN} is up already" in second.out] == [
        True,
        True,
    ]
    record(Row(fault=TWO, to="up", code="0, 0", says="is up already", left="one cluster"))

    first, second = twice(sunspot, "down", OWN)
    assert (first.code, second.code) == (0, 0)
    assert f"{OWN} is down" in first.out
    assert f"{OWN} is down" in second.out or "nothing to do" in second.out
    assert clusters.changes(before, within_s=GONE_S) == []
    record(Row(fault=TWO, to="down", code="0, 0", says="is down", left=NOTHING))


def test_scale(sunspot: Installed, clusters: Clusters, record: Record):
    before = clusters.share()
    for count in (2, 1):
        first, second = twice(sunspot, "scale", f"workers={count}")
        assert (first.code, second.code) == (0, 0), (first, second)
        assert len(clusters.workers()) == clusters.minimum() == count
    assert clusters.changes(before) == []
    says = "waiting for the other's process"
    record(Row(fault=TWO, to="scale", code="0, 0", says=says, left="the number that was asked for"))


def test_submit_of_one_name(sunspot: Installed, clusters: Clusters, record: Record):
    before, name = clusters.share(), unused()
    both = twice(sunspot, "submit", "--name", name, "--", "echo", "done")
    did, refused = sorted(both, key=lambda ended: ended.code or 0)
    assert (did.code, refused.code) == (0, 2), both
    assert "done" in did.out
    assert name in refused.error
    assert clusters.changes(before) == []
    code = f"{did.code}, {refused.code}"
    record(Row(fault=TWO, to="submit --name", code=code, says="already", left=AS_IT_WAS))


def test_logs(sunspot: Installed, clusters: Clusters, record: Record):
    clusters.share()
    name = unused()
    sunspot.ok("submit", "--name", name, "--", "echo", "done")
    before = clusters.without_jobs()
    first, second = twice(sunspot, "logs", name, "-f")
    assert (first.code, second.code) == (0, 0)
    assert first.out == second.out
    assert "done" in first.out
    assert clusters.changes(before) == []
    record(Row(fault=TWO, to="logs -f", code="0, 0", says="the same", left=AS_IT_WAS))
