"""Runs ours and a peer in turn and tells which is faster, for a person and for a program."""

import json
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any


def compare(
    name: str,
    ours: Callable[[], float],
    peer: Callable[[], float],
    pairs: int = 5,
    *,
    peer_name: str = "peer",
    aim: float | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the medians of both sides and their ratio, after printing a table of the runs.

    Each callable does its work once and returns the seconds that it took; what it leaves out of
    them (a start, a warm-up) is its own choice. The last line printed is the result as JSON, with
    ``extra`` in it. ``aim`` is the ratio to stay at or below.

    The ratio is the median of the pairs' ratios, not the ratio of the medians: the two runs of a
    pair are neighbours in time, so what else the machine does touches both.
    """
    runs: list[tuple[float, float]] = []
    print(f"{name}: seconds, {pairs} pairs")
    print(f"{'pair':>6}{'ours':>10}{peer_name:>18}{'ratio':>9}", flush=True)
    for pair in range(1, pairs + 1):
        # The order changes from pair to pair, so that a machine that slows down favours neither.
        if pair % 2:
            mine, theirs = ours(), peer()
        else:
            theirs, mine = peer(), ours()
        runs.append((mine, theirs))
        print(_row(str(pair), mine, theirs, mine / theirs), flush=True)
    mine, theirs = median(run[0] for run in runs), median(run[1] for run in runs)
    ratio = median(run[0] / run[1] for run in runs)
    print(_row("median", mine, theirs, ratio) + (f"   (aim: at most {aim})" if aim else ""))
    result = {
        "name": name,
        "ours": round(mine, 4),
        "peer": round(theirs, 4),
        "ratio": round(ratio, 4),
        **(extra or {}),
    }
    print(json.dumps(result), flush=True)
    return result


def _row(label: str, mine: float, theirs: float, ratio: float) -> str:
    return f"{label:>6}{mine:>10.3f}{theirs:>18.3f}{ratio:>9.3f}"
