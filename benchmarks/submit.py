"""What submitting a job costs: `sunspot submit -- true`, and `ray job submit -- true`.

Both run on the same cluster, in the same empty folder, and end when the job has ended.

    python benchmarks/submit.py
"""

from __future__ import annotations

import re
import subprocess
import time

import _options
from _cluster import BIN, STACK, Project, project
from _pairs import compare

PAIRS = 7


def _seconds(made: Project, environment: dict[str, str], command: list[str]) -> float:
    empty = made.folder / "empty"
    empty.mkdir(exist_ok=True)
    started = time.monotonic()
    subprocess.run(command, cwd=empty, env=environment, check=True, capture_output=True)
    return time.monotonic() - started


def main() -> None:
    """Print the comparison; its last line is JSON."""
    _options.parser(__doc__).parse_args()
    with project(workers=1) as made:
        exports = dict(re.findall(r"export (\w+)=(\S+)", made.sunspot("up", STACK)))
        environment = {**made.environment, **exports}
        sunspot = [str(BIN / "sunspot"), "submit", "--", "true"]
        ray = [str(BIN / "ray"), "job", "submit", "--", "true"]
        for command in (sunspot, ray):  # the first job of a cluster is slower
            _seconds(made, environment, command)
        compare(
            "submit",
            lambda: _seconds(made, environment, sunspot),
            lambda: _seconds(made, environment, ray),
            PAIRS,
            peer_name="ray job submit",
            aim=0.8,
        )


if __name__ == "__main__":
    main()
