"""The training workload as a user submits it, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import Sunspot, alive, kill_node
from waiting import wait_for

from sunspot.errors import SunspotError

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "train"
FROM_HERE = ("--working-dir", str(ROOT))
# The machine may be busy: starting a worker means importing torch.
DEADLINE_S = 600.0
# To ask a busy head for its jobs takes time from the training.
POLL_S = 1.0
# Small enough for seconds an epoch, with enough batches to be caught in the middle of one.
NARROW = ("--width", "0.25")
TINY = (*NARROW, "--batch-size", "8")
TINY_DATA = ("--training", "24", "--validation", "2", "--evaluation", "2")
EPOCH_PICTURES = 11 * 24
ONE_A_NODE = ("--cpus-per-worker", "2")


@dataclass(frozen=True)
class Batch:
    """A line of --trace: the pictures of an epoch that a batch went through."""

    epoch: int
    first: int
    last: int
    workers: int


@dataclass(frozen=True)
class Training:
    """Runs workloads/train.py on a cluster; storage, results and trace lie in a folder."""

    sunspot: Sunspot
    folder: Path
    cluster: str = CLUSTER

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def trace_file(self) -> Path:
        return self.folder / "trace"

    def make_whole(self) -> None:
        """Bring the cluster up, or its missing nodes back."""
        try:
            self.sunspot.target.handle(self.cluster)
        except SunspotError:
            self.up()
            return
        states = [node.state for node in self.sunspot.target.nodes(self.cluster)]
        if states.count("up") != 3:
            self.sunspot("down", self.cluster, timeout=DEADLINE_S)
            self.up()

    def up(self) -> None:
        done = self.sunspot("up", self.cluster, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr

    def arguments(self, *extra: str, storage: str | None = None) -> list[str]:
        own = ["--storage", storage or str(self.storage), "--trace", str(self.trace_file)]
        out = ["--out", str(self.folder / "result.json")]
        return ["python", "workloads/train.py", *own, *out, *extra]

    def tiny(self, *extra: str, storage: str | None = None) -> list[str]:
        """The command with a small network on few pictures."""
        return self.arguments("--data", str(self.data()), *TINY, *extra, storage=storage)

    def small_trials(self) -> list[str]:
        """What makes the trials of tune.py small."""
        return ["--data", str(self.data()), *NARROW]

    def data(self) -> Path:
        """A folder with few pictures."""
        folder = self.folder / "data"
        if not folder.exists():
            command = [sys.executable, "workloads/images.py", str(folder), *TINY_DATA]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return folder

    def submit(
        self, *command: str, env: Mapping[str, str] | None = None, flags: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the cluster to its end."""
        variables = [f"--env={name}={value}" for name, value in (env or {}).items()]
        return self.sunspot(
            *("submit", f"--stack={self.cluster}", *FROM_HERE, *variables, *flags, "--", *command),
            timeout=DEADLINE_S,
        )

    @contextlib.contextmanager
    def started(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        name: str = "run",
    ) -> Iterator[None]:
        """Run a command on the cluster beside the block; stopped after it if it still runs."""
        variables = [f"--env={key}={value}" for key, value in (env or {}).items()]
        done = self.sunspot(
            *("submit", f"--stack={self.cluster}", "--detach", f"--name={self.id(name)}"),
            *(*FROM_HERE, *variables, *flags, "--", *command),
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        try:
            yield
        finally:
            if not self.sunspot.job(self.cluster, self.id(name)).has_ended:
                self.sunspot("stop", f"--stack={self.cluster}", self.id(name))

    def id(self, name: str) -> str:
        """A job's id: a cluster takes a name once, and tests share it."""
        return f"{name}-{self.folder.name}"

    def log(self, name: str = "run") -> str:
        return self.sunspot.client(self.cluster).logs(self.id(name))

    def wait_for_end(self, name: str = "run") -> str:
        """The job's state at its end."""
        wait_for(
            f"{name} to end",
            lambda: self.sunspot.job(self.cluster, self.id(name)).has_ended,
            DEADLINE_S,
            poll_s=POLL_S,
        )
        return self.sunspot.job(self.cluster, self.id(name)).status

    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "result.json").read_text())

    def batches(self) -> list[Batch]:
        if not self.trace_file.exists():
            return []
        lines = [line.split()[1:] for line in self.trace_file.read_text().splitlines()]
        return [Batch(*map(int, line)) for line in lines if len(line) == 4]

    def wait_for_batch(self, epoch: int, number: int) -> None:
        """Wait until so many batches of an epoch have been trained."""
        wait_for(
            f"batch {number} of epoch {epoch}",
            lambda: sum(b.epoch == epoch for b in self.batches()) >= number,
            DEADLINE_S,
            seen=lambda: str(self.batches()[-3:]),
        )

    def checkpoints(self, name: str = "food") -> list[dict[str, Any]]:
        """What each whole checkpoint says of itself."""
        files = sorted((self.storage / name).glob("checkpoint_*/about.json"))
        return [json.loads(file.read_text()) for file in files]

    def working_node(self) -> str:
        """The name of a node that a training worker runs on."""
        folder = self.sunspot.folder(self.cluster)
        for node in self.sunspot.target.nodes(self.cluster):
            for process in folder.processes(node.name):
                with contextlib.suppress(Exception):
                    if "RayTrainWorker" in " ".join(process.cmdline()):
                        return node.name
        raise AssertionError("no node has a training worker")

    def kill(self, node: str) -> None:
        """Switch a node off."""
        folder = self.sunspot.folder(self.cluster)
        processes = folder.processes(node)
        kill_node(folder, node)
        wait_for(f"the processes of {node} to end", lambda: not alive(processes))

    def drain(self, node: str, seconds: int = 60) -> None:
        """Announce a node's eviction; it is switched off at the deadline if it is still there."""
        handle = self.sunspot.target.handle(self.cluster)
        command = [sys.executable, "-m", "sunspot.node.drain", f"--seconds={seconds}", node]
        subprocess.run(
            command, env=os.environ | handle.environment(), check=False, timeout=DEADLINE_S
        )
        with contextlib.suppress(AssertionError):  # it has gone by itself
            self.kill(node)

    def alive_nodes(self) -> set[str]:
        handle = self.sunspot.target.handle(self.cluster)
        code = (
            "import os, json; from sunspot.node import gcs;"
            "print(json.dumps(list(gcs.alive_nodes(gcs.connect(os.environ['RAY_ADDRESS'])))))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | handle.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return set(json.loads(done.stdout))


def repeated(batches: Sequence[Batch]) -> int:
    """How many pictures were trained on more than once in the same epoch."""
    seen: dict[int, set[int]] = {}
    twice = 0
    for batch in batches:
        before = seen.setdefault(batch.epoch, set())
        pictures = set(range(batch.first, batch.last))
        twice += len(before & pictures)
        before |= pictures
    return twice


def restarts(batches: Sequence[Batch]) -> list[tuple[Batch, Batch]]:
    """The pairs of neighbours between which the order of the epoch was broken."""
    return [
        (before, after)
        for before, after in pairwise(batches)
        if (after.epoch, after.first) < (before.epoch, before.last)
    ]


__all__ = ["CLUSTER", "EPOCH_PICTURES", "ONE_A_NODE", "Batch", "Training", "repeated", "restarts"]
