"""How the time to bring a cluster up grows: head and eight workers, and head and two.

python benchmarks/growth.py
"""

from __future__ import annotations

import _options
from _cluster import bring_up_seconds
from _pairs import compare

PAIRS = 3


def main() -> None:
    """Print the comparison; its last line is JSON."""
    _options.parser(__doc__).parse_args()
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
