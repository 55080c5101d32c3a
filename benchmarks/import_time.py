"""How much CPU time `import sunspot` costs, compared with `import ray`.

    python benchmarks/import_time.py

Each statement runs in a fresh interpreter, in turn with the others; the numbers are medians of the
rounds, user and system time of the child process. The last line is one JSON object.
"""

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import _options

ROUNDS = 9
ROOT = Path(__file__).resolve().parent.parent

OURS = "import sunspot"
PEER = "import ray"
# `import sunspot` by itself loads little, so the cost of using it is shown as well.
STATEMENTS = {
    "bare Python": "pass",
    "import sunspot": OURS,
    "... and its config classes": "import sunspot; sunspot.Stack, sunspot.RayClusterConfig",
    "import ray": PEER,
}


def cpu_seconds(statement: str) -> float:
    """Return the CPU seconds of a fresh interpreter that runs one statement."""
    before = _children()
    subprocess.run([sys.executable, "-c", statement], cwd=ROOT, check=True)
    return _children() - before


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure() -> dict[str, list[float]]:
    """Return the CPU seconds of each statement, one number per round."""
    for statement in STATEMENTS.values():
        cpu_seconds(statement)  # the first run compiles bytecode and fills the file cache
    seconds: dict[str, list[float]] = {label: [] for label in STATEMENTS}
    for _ in range(ROUNDS):
        for label, statement in STATEMENTS.items():
            seconds[label].append(cpu_seconds(statement))
    return seconds


def main() -> None:
    """Print the medians; the last line is JSON."""
    _options.parser(__doc__).parse_args()
    seconds = measure()
    print(f"CPU seconds, median of {ROUNDS} rounds\n")
    for label, numbers in seconds.items():
        print(f"{label:<28}{statistics.median(numbers):8.3f}")
    ours, peer = seconds["import sunspot"], seconds["import ray"]
    ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    result = {
        "name": "import_time",
        "ours": round(statistics.median(ours), 4),
        "peer": round(statistics.median(peer), 4),
        "ratio": round(ratio, 4),
    }
    print(f"\n{json.dumps(result)}")


if __name__ == "__main__":
    main()
