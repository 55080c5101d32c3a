"""How bring-up grows with the cluster: head and eight workers beside head and two.

python benchmarks/growth.py
"""

from __future__ import annotations

from _cluster import bring_up_seconds
from _pairs import compare

PAIRS = 3


def main() -> None:
    compare(
        "growth",
        lambda: bring_up_seconds(8),
        lambda: bring_up_seconds(2),
        PAIRS,
        peer_name="head and two workers",
        aim=2.5,
    )


if __name__ == "__main__":
    main()
