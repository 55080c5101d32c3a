"""Count the batches that are trained twice when a node goes: train.py and plain Ray Train.

Plain Ray Train has the settings of the course that train.py comes from (gourmetgram-train, branch
fault_tolerance): RayTrainReportCallback at the end of each epoch, max_failures=2, resumed by
Lightning. Two worker nodes; one is killed without notice, or drained for 30 s and then killed.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _cluster import Project, project

from sunspot.node.local import ClusterFolder

ROOT = Path(__file__).resolve().parent.parent
EPOCHS, PICTURES, BATCH = 3, 24 * 11, 8
DRAIN_S = 30
DEADLINE_S = 900.0
AT_BATCH = 8  # of the second epoch, some half of it
COMMANDS = {
    "train.py": ["workloads/train.py", "--workers", "1:2", "--cpus-per-worker", "2"],
    "plain Ray Train": ["benchmarks/_seed_train.py"],
}


def batches(trace: Path) -> list[tuple[int, int, int]]:
    """Return epoch, first picture and last picture of each batch that was trained."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [(int(e), int(a), int(b)) for _, e, a, b, _ in map(str.split, lines)]


def again(trace: Path) -> int:
    """Return the number of batches whose pictures had been trained in that epoch before."""
    seen: set[tuple[int, int]] = set()
    twice = 0
    for epoch, first, last in batches(trace):
        pictures = {(epoch, picture) for picture in range(first, last)}
        twice += bool(pictures & seen)
        seen |= pictures
    return twice


def wait(what: str, answer: Any) -> None:
    """Poll until the answer is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not answer():
        if time.monotonic() > deadline:
            sys.exit(f"waited {DEADLINE_S:g} s in vain for {what}")
        time.sleep(0.2)


def take_away(made: Project, notice: bool) -> None:
    """Let the cluster's node that trains, other than the head, go."""
    folder = ClusterFolder(next((made.folder / "state" / "clusters").glob("*/")))
    node = next(
        record.name
        for record in folder.nodes()
        if not record.is_head
        and any("RayTrainWorker" in " ".join(p.cmdline()) for p in folder.processes(record.name))
    )
    if notice:
        cluster = folder.cluster()
        environment = {"RAY_ADDRESS": str(cluster.address), "RAY_AUTH_MODE": "token"}
        subprocess.run(
            [sys.executable, "-m", "sunspot.node.drain", f"--seconds={DRAIN_S}", node],
            env=os.environ | environment | {"RAY_AUTH_TOKEN_PATH": str(folder.token)},
            check=False,
        )
    for process in folder.processes(node):
        process.kill()


def lost(script: str, notice: bool) -> int:
    """Return the batches that a script trains twice when a node goes in its second epoch."""
    with project(workers=2) as made:
        made.sunspot("up", "bench")
        data, trace = made.folder / "data", made.folder / "trace"
        small = ["--training", "24", "--validation", "2", "--evaluation", "2"]
        images = [sys.executable, "workloads/images.py", str(data), *small]
        subprocess.run(images, cwd=ROOT, check=True, capture_output=True)
        sizes = ["--epochs", str(EPOCHS), "--batch-size", str(BATCH), "--width", "0.25"]
        places = ["--data", str(data), "--storage", str(made.folder / "runs")]
        command = ["python", *COMMANDS[script], *sizes, *places, "--trace", str(trace)]
        flags = ["--detach", "--name", "run", "--working-dir", str(ROOT)]
        made.sunspot("submit", *flags, "--", *command)
        wait("the second epoch", lambda: sum(e == 1 for e, _, _ in batches(trace)) >= AT_BATCH)
        take_away(made, notice)
        wait("the end", lambda: _state(made) not in ("PENDING", "RUNNING"))
        if _state(made) != "SUCCEEDED":
            print(made.sunspot("logs", "run"))
            sys.exit(f"{script} did not end")
        return again(trace)


def _state(made: Project) -> str:
    return json.loads(made.sunspot("jobs", "--json"))[0]["status"]


def main() -> None:
    """Run the four cases and print them."""
    found: dict[str, dict[str, int]] = {}
    print(f"{'batches trained twice':<24}{'train.py':>12}{'plain Ray Train':>18}")
    for notice in (False, True):
        name = "drained, 30 s notice" if notice else "killed"
        found[name] = {script: lost(script, notice) for script in COMMANDS}
        ours, peer = found[name].values()
        print(f"{name:<24}{ours:>12}{peer:>18}", flush=True)
    print(json.dumps({"name": "train_loss", **found}))


if __name__ == "__main__":
    main()
