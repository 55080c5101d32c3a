"""Runs ours and a peer in turn and reports which is faster, as a table and as JSON."""

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
    """Print a table of the runs; return and print, as JSON, both sides' medians and their ratio.

    The ratio is the median of the pairs' ratios, not the ratio of the medians: the two runs of a
    pair are close in time, so other work on the machine affects both.

    Args:
        name: The benchmark's name.
        ours: Does our work once and returns the seconds that it took. It decides what does not
            count, such as a start or a warm-up.
        peer: The same for the peer.
        pairs: How often to run both.
        peer_name: The peer's column in the table.
        aim: The ratio to stay at or below.
        extra: Further keys of the JSON line.
    """
    runs: list[tuple[float, float]] = []
    print(f"{name}: seconds, {pairs} pairs")
    print(f"{'pair':>6}{'ours':>10}{peer_name:>18}{'ratio':>9}", flush=True)
    for pair in range(1, pairs + 1):
        # The order alternates, so that a machine that slows down favours neither side.
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
