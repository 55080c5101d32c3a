"""Compare an epoch of `workloads/train.py --workers 1` with one of the same model without Ray.

Both train in one process with one thread and the same priority, validate and write a checkpoint
in each epoch. The start of Ray, its worker and torch does not count: it happens once, and the first
epoch is left out with it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import _options
from _local_ray import own_ray_settings
from _pairs import compare

ROOT = Path(__file__).resolve().parent.parent
EPOCHS = 8
PAIRS = 3
AIM = 1.05


def epoch(script: str, folder: Path, *arguments: str) -> float:
    """Return the median seconds of a script's epochs, without the first."""
    out = folder / f"{script}.json"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # what Ray gives a worker of one CPU
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, f"workloads/{script}.py", "--epochs", str(EPOCHS), "--out", str(out)]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{script} failed:\n{done.stdout}{done.stderr}")
    return median(json.loads(out.read_text())["epoch_seconds"][1:])


def main() -> None:
    """Run the pairs and print them; the last line is JSON."""
    _options.parser(__doc__).parse_args()
    with own_ray_settings(), tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name:
        folder = Path(name)
        runs = iter(range(2 * PAIRS))

        def ours() -> float:
            storage = ("--storage", str(folder / "runs"), "--name", f"run-{next(runs)}")
            return epoch("train", folder, *storage)

        def peer() -> float:
            return epoch("plain_train", folder, "--checkpoints", str(folder / "checkpoints"))

        compare("train_epoch", ours, peer, PAIRS, peer_name="plain Lightning", aim=AIM)


if __name__ == "__main__":
    main()
