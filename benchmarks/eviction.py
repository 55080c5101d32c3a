"""What an eviction costs: drained by our watcher, and the same node killed without notice.

On a local cluster of three nodes, one of them runs a task of five seconds and an actor that trains
(see _evicted_work.py). A stand-in for Azure on the loopback address gives it 0, 10 or 30 s of
notice; then its processes are killed, as when a VM is switched off. The peer's processes are killed
without notice.

The seconds in the tables are those from the actor's last step on the node to its first one on
another; `lost_s` is the work that was done again, the actor's and the task's. The peer has an
advantage here: on one host a killed process resets its connections at once, which a VM that
vanishes does not.

    python benchmarks/eviction.py          # the notice of 30 s comes last
    python benchmarks/eviction.py --pairs 1 --notice 30
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import _options
import psutil
from _cluster import STACK, Project, project
from _pairs import compare

from sunspot.node import gcs
from sunspot.node.local.folder import HEAD, ClusterFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from azure_model import imds

WORK = Path(__file__).with_name("_evicted_work.py")
NOTICES_S = (0.0, 10.0, 30.0)
PAIRS = 3
TASK_S = 5.0
AIM = 0.25
UP_TIMEOUT_S = 600.0
POLL_S = 0.5


@dataclass(frozen=True)
class Outcome:
    """Seconds without a step, and seconds of work that were done twice."""

    gap_s: float
    lost_s: float


@dataclass(frozen=True)
class Bench:
    """The cluster of a project, and the environment of programs that connect to it."""

    made: Project
    environment: Mapping[str, str]

    def evict(self, notice_s: float | None) -> Outcome:
        """Run the work on one worker and take that worker away; None gives no notice."""
        node = self._worker()
        folder = ClusterFolder(self.made.folder / "state" / "clusters" / STACK)
        with contextlib.ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            azure = imds.FakeAzure(name=node)
            if notice_s is not None:
                stack.enter_context(imds.serving(azure))
                flags = [f"--name={node}", f"--imds={azure.url}", "--group=bench"]
                watcher = self._program(scratch, "-m", "sunspot.node.azure.eviction", *flags)
                stack.enter_context(watcher)
                _wait_for(azure.polls)
            work = self._program(scratch, str(WORK), node, str(scratch), str(TASK_S))
            seen = _follow(stack.enter_context(work), lambda: _take(azure, notice_s, folder, node))
            if "done" not in seen:
                raise RuntimeError(f"it ended after {[*seen]}: {_end(scratch / 'errors')}")
        done, task = seen["done"], seen["task"]
        lost = done["lost_steps"] * done["step_s"] + sum(task["attempts"][:-1])
        return Outcome(gap_s=done["gap_s"], lost_s=round(lost, 3))

    def _worker(self) -> str:
        """Return a worker once two are up: the previous one is being replaced."""

        def two() -> list[str]:
            up = gcs.alive_nodes(gcs.connect(self.environment["RAY_ADDRESS"])).keys()
            return sorted(up - {HEAD}) if len(up) == 3 else []

        return _wait_for(two)[-1]

    @contextlib.contextmanager
    def _program(self, folder: Path, *arguments: str) -> Any:
        with (folder / "errors").open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=dict(self.environment),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        with process:
            try:
                yield process
            finally:
                process.kill()


def _take(azure: Any, notice_s: float | None, folder: ClusterFolder, node: str) -> None:
    """Announce the eviction and, at its deadline, kill what is left of the node."""
    if notice_s is not None:
        status = "Scheduled" if notice_s else "Started"
        azure.announce("Preempt", notice_s or None, status=status)
        # Without any time, the watcher still has until its next check a second later.
        time.sleep(notice_s or 2.0)
    for process in folder.processes(node):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _follow(driver: Any, when_running: Any) -> dict[str, Any]:
    """Return the driver's last event of each kind; call back once its work runs on the node."""
    seen: dict[str, Any] = {}
    for line in driver.stdout:
        if not line.startswith("{"):  # a line of Ray's own
            continue
        event = json.loads(line)
        if event["event"] == "step" and "step" not in seen:
            threading.Thread(target=when_running, daemon=True).start()
        seen[event["event"]] = event
    return seen


def _end(log: Path) -> str:
    return log.read_text()[-2000:]


def _wait_for(answer: Any) -> Any:
    deadline = time.monotonic() + UP_TIMEOUT_S
    while not (got := answer()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {UP_TIMEOUT_S:g} s in vain")
        time.sleep(POLL_S)
    return got


def _compare(bench: Bench, notice_s: float, pairs: int) -> dict[str, Any]:
    lost: dict[str, list[float]] = {"ours": [], "peer": []}

    def run(side: str, notice: float | None) -> float:
        outcome = bench.evict(notice)
        lost[side].append(outcome.lost_s)
        print(f"  {side}: gap {outcome.gap_s:.1f} s, lost {outcome.lost_s:.1f} s", flush=True)
        return outcome.gap_s

    result = compare(
        f"eviction, {notice_s:g} s of notice",
        lambda: run("ours", notice_s),
        lambda: run("peer", None),
        pairs,
        peer_name="killed",
        aim=AIM,
    )
    lost_s = {f"lost_s_{side}": median(values) for side, values in lost.items()}
    return {"ours": result["ours"], "peer": result["peer"], "ratio": result["ratio"], **lost_s}


def main() -> None:
    """Print a comparison for each notice; the last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--pairs", type=int, default=PAIRS, help=f"default: {PAIRS}")
    options.add_argument("--notice", type=float, action="append", help="seconds; default: 0 10 30")
    given = options.parse_args()
    notices = given.notice or NOTICES_S
    with project(workers=2) as made:
        exports = dict(re.findall(r"export (\w+)=(\S+)", made.sunspot("up", STACK)))
        os.environ.update(exports)  # Ray reads the token's path when it is loaded
        bench = Bench(made, {**os.environ, **made.environment})
        results = {f"{n:g}": _compare(bench, n, given.pairs) for n in notices}
    last = results[f"{notices[-1]:g}"]
    print(json.dumps({"name": "eviction", **last, "by_notice_s": results}))


if __name__ == "__main__":
    main()
