"""How the cost of the Pulumi program grows with the cluster: 1, 10 and 50 groups.

    python benchmarks/program.py

Each run is a fresh interpreter, like each `pulumi up`: it imports the SDK, evaluates the whole
program under mocks and waits for every registration. The ratio is that of 50 groups to 1; numbers
are CPU seconds of the child process, medians of the rounds. `sunspot preview hybrid` is measured as
well, from its start to its end. The last line is one JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import _options

ROUNDS = 5
SIZES = (1, 10, 50)
AIM = 2.0
ROOT = Path(__file__).resolve().parent.parent
SUNSPOT = Path(sys.executable).with_name("sunspot")


def evaluate(groups: int) -> dict[str, float]:
    """Evaluate the program in this process, and return what it took."""
    started = time.process_time()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "infra")]
    builds = importlib.import_module("builds")  # the tests' own stacks and mocks
    importlib.import_module("infra.program")
    stack = builds.make_stack(
        *(builds.group(f"g{number}", max_workers=3) for number in range(groups)),
        access={"ssh_cidrs": ["10.0.0.0/8"]},
    )
    imported = time.process_time()
    made = builds.build(stack)
    ended = time.process_time()
    return {
        "whole": ended - started,
        "evaluation": ended - imported,
        "resources": len(made.resources),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run_evaluation(groups: int) -> dict[str, float]:
    """Return what evaluate() takes in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, __file__, str(groups)], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def run_preview() -> dict[str, float]:
    """Return the seconds, CPU seconds and peak memory of `sunspot preview hybrid`."""
    started = time.monotonic()
    with subprocess.Popen(
        [str(SUNSPOT), "preview", "hybrid"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return {
        "seconds": time.monotonic() - started,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def median_of(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each number."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    """Print the table; the last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("groups", type=int, nargs="?", help="only evaluate a program of so many")
    if groups := options.parse_args().groups:
        print(json.dumps(evaluate(groups)))
        return
    runs: dict[int, list[dict[str, float]]] = {groups: [] for groups in SIZES}
    previews = []
    run_evaluation(1)  # compiles bytecode and fills the file cache
    run_preview()
    for _ in range(ROUNDS):
        for groups in SIZES:
            runs[groups].append(run_evaluation(groups))
        previews.append(run_preview())
    print(f"the program under mocks, medians of {ROUNDS} rounds; CPU seconds\n")
    print(f"{'groups':>8}{'resources':>11}{'whole':>9}{'evaluation':>12}{'peak MiB':>10}")
    medians = {groups: median_of(found) for groups, found in runs.items()}
    for groups, found in medians.items():
        print(
            f"{groups:>8}{found['resources']:>11.0f}{found['whole']:>9.2f}"
            f"{found['evaluation']:>12.2f}{found['peak_mib']:>10.0f}"
        )
    preview = median_of(previews)
    print(
        f"\nsunspot preview hybrid: {preview['seconds']:.2f} s, {preview['cpu']:.2f} CPU s, "
        f"{preview['peak_mib']:.0f} MiB"
    )
    print(f"\n{json.dumps(summary(runs, medians, preview))}")


def summary(
    runs: dict[int, list[dict[str, float]]],
    medians: dict[int, dict[str, float]],
    preview: dict[str, float],
) -> dict[str, Any]:
    """Return the result as printed in JSON; the ratio is the median of the rounds' ratios."""
    least, most = SIZES[0], SIZES[-1]
    first, last = medians[least], medians[most]

    def growth(key: str) -> float:
        pairs = zip(runs[most], runs[least], strict=True)
        return round(statistics.median(a[key] / b[key] for a, b in pairs), 4)

    per_resource = (last["evaluation"] - first["evaluation"]) / (
        last["resources"] - first["resources"]
    )
    return {
        "name": "program",
        "ours": round(last["whole"], 4),
        "peer": round(first["whole"], 4),
        "ratio": growth("whole"),
        "aim": AIM,
        "evaluation_ratio": growth("evaluation"),
        "resources": {str(groups): int(found["resources"]) for groups, found in medians.items()},
        "resources_ratio": round(last["resources"] / first["resources"], 4),
        "ms_per_further_resource": round(per_resource * 1000, 2),
        "peak_mib": {str(groups): round(found["peak_mib"]) for groups, found in medians.items()},
        "preview_seconds": round(preview["seconds"], 4),
        "preview_cpu_seconds": round(preview["cpu"], 4),
        "preview_peak_mib": round(preview["peak_mib"]),
    }


if __name__ == "__main__":
    main()
