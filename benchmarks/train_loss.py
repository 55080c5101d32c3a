"""Count the batches that are trained twice when a node is lost: train.py and plain Ray Train.

Plain Ray Train has the settings of the course that train.py comes from (gourmetgram-train, branch
fault_tolerance): RayTrainReportCallback at the end of each epoch, max_failures=2, resumed by
Lightning. Two workers on nodes of their own; early in the second epoch a node is killed without
notice, or drained and killed at the deadline. An epoch is longer than the notice, as a real one is.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import _options
import psutil
from _cluster import STACK, Project, project

from sunspot.node.local.folder import ClusterFolder
from sunspot.ray.jobs import JobClient
from sunspot.targets.local.target import LocalTarget

ROOT = Path(__file__).resolve().parent.parent
EPOCHS, BATCH = 2, 8
PICTURES = 500  # per class
NOTICE_S = 10
DEADLINE_S = 900.0
AT_BATCH = 40  # of the second epoch
STRAY = 2  # lines that a worker may still write after its peer is lost
COMMANDS = {
    "train.py": ["workloads/train.py", "--workers", "1:2", "--cpus-per-worker", "2"],
    "plain Ray Train": ["benchmarks/_seed_train.py"],
}

Batch = tuple[int, int, int]
"""The epoch, the first picture in its order, and the one after the last picture."""


def batches(trace: Path) -> list[Batch]:
    """Return each batch that all workers together trained."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    whole = [line.split() for line in lines if len(line.split()) == 5]
    return [(int(epoch), int(first), int(last)) for _, epoch, first, last, _ in whole]


def again(trained: list[Batch]) -> float:
    """Return how much was trained twice in the same epoch, in batches of one worker."""
    seen: set[tuple[int, int]] = set()
    twice = 0
    for epoch, first, last in trained:
        pictures = {(epoch, picture) for picture in range(first, last)}
        twice += len(pictures & seen)
        seen |= pictures
    return twice / BATCH


def wait(what: str, answer: Callable[[], bool]) -> None:
    """Poll until the answer is true, or end the program after DEADLINE_S seconds."""
    deadline = time.monotonic() + DEADLINE_S
    while not answer():
        if time.monotonic() > deadline:
            sys.exit(f"waited {DEADLINE_S:g} s in vain for {what}")
        time.sleep(0.2)


def take_away(made: Project, notice: bool) -> None:
    """Drain or kill a node that trains and is not the head."""
    target = LocalTarget(made.folder / "state" / "clusters")
    handle = target.handle(STACK)
    folder = ClusterFolder(target.clusters / STACK)
    node = next(r.name for r in folder.nodes() if not r.is_head and _trains(folder, r.name))
    if notice:
        drain = [sys.executable, "-m", "sunspot.node.drain", f"--seconds={NOTICE_S}", node]
        subprocess.run(drain, env=os.environ | handle.environment(), check=False)
    for process in folder.processes(node):  # none left if the node ended by itself
        with contextlib.suppress(psutil.Error):
            process.kill()


def lost(script: str, notice: bool, data: Path) -> float:
    """Return the batches that a script trains twice when it loses a node in its second epoch."""
    with project(workers=2) as made:
        made.sunspot("up", STACK)
        trace = made.folder / "trace"
        sizes = ["--epochs", str(EPOCHS), "--batch-size", str(BATCH), "--width", "0.25"]
        places = ["--data", str(data), "--storage", str(made.folder / "runs")]
        command = ["python", *COMMANDS[script], *sizes, *places, "--trace", str(trace)]
        flags = ["--detach", "--name", "run", "--working-dir", str(ROOT)]
        made.sunspot("submit", *flags, "--", *command)
        jobs = JobClient(LocalTarget(made.folder / "state" / "clusters").handle(STACK))

        def has_ended() -> bool:
            return jobs.get("run").has_ended

        def in_second() -> int:
            return sum(epoch == 1 for epoch, _, _ in batches(trace))

        wait("the second epoch", lambda: in_second() >= AT_BATCH or has_ended())
        if has_ended():
            sys.exit(f"{script} ended too early:\n{jobs.logs('run')}")
        take_away(made, notice)
        before = batches(trace)
        furthest = max((epoch, last) for epoch, _, last in before)

        def is_back() -> bool:
            after = batches(trace)[len(before) :]
            return sum((epoch, last) > furthest for epoch, _, last in after) > STRAY

        # The loss is known as soon as the run is back where it was.
        wait("the run to be back where it was", lambda: is_back() or has_ended())
        if not is_back() and jobs.get("run").status != "SUCCEEDED":
            sys.exit(f"{script} did not resume:\n{jobs.logs('run')}")
        return again(batches(trace))


def _trains(folder: ClusterFolder, node: str) -> bool:
    for process in folder.processes(node):
        with contextlib.suppress(psutil.Error):
            if "RayTrainWorker" in " ".join(process.cmdline()):
                return True
    return False


def main() -> None:
    """Run the cases and print them; the last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--pictures", type=int, default=PICTURES, help="per class and epoch")
    pictures = options.parse_args().pictures
    cases: dict[str, dict[str, float | None]] = {}
    with tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name:
        data = Path(name) / "data"
        small = ["--training", str(pictures), "--validation", "2", "--evaluation", "2"]
        images = [sys.executable, "workloads/images.py", str(data), *small]
        subprocess.run(images, cwd=ROOT, check=True, capture_output=True)
        print(f"{'batches trained twice':<24}{'train.py':>12}{'plain Ray Train':>18}", flush=True)
        for case, notice in (("killed", False), (f"drained, {NOTICE_S} s", True)):
            ours, peer = (lost(script, notice, data) for script in COMMANDS)
            print(f"{case:<24}{ours:>12g}{peer:>18g}", flush=True)
            ratio = round(ours / peer, 4) if peer else None
            cases[case] = {"ours": ours, "peer": peer, "ratio": ratio}
    # The last case, the announced eviction, is the figure of this benchmark.
    print(json.dumps({"name": "train_loss", **cases[case], "cases": cases}))


if __name__ == "__main__":
    main()
