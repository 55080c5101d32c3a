"""What tune.py searches, how many trials fit a cluster at once, and what a trial does."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import _checkpoints
import _vanished
import ray.train
import train
from _food import Settings
from _storage import Storage
from ray import tune
from ray.train.torch import TorchConfig, TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback

METRIC = "val_accuracy"
# A resource that only the head node has (ray/_private/resource_spec.py, 2.60). The driver of a
# trial asks for a little of it and for no CPU: trials that held a CPU while waiting for their
# workers' CPUs could wait for each other forever. And the head outlives the other nodes.
ON_THE_HEAD = {"node:__internal_head__": 0.001}
# Read by Ray Tune and Train in the processes that drive them; values already set take precedence.
DRIVER_SETTINGS = {
    "TUNE_GLOBAL_CHECKPOINT_S": "5",  # how often the search is saved (10 or more by default)
    # A trial that waits for a new node should not start over every 30 s.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune's tables, which it prints even with verbose=0
}


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched, and how large a trial is; saved with the search, for --resume."""

    settings: Settings
    name: str
    samples: int
    batch_sizes: Sequence[int]
    dropout: tuple[float, float]
    workers: int
    cpus: float
    gpus: float
    seed: int

    @property
    def needs(self) -> dict[str, float]:
        """Return what one worker of a trial asks Ray for."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})

    def to_json(self) -> bytes:
        """Return the search as the content of a file."""
        return json.dumps(asdict(self), indent=2).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "Search":
        """Return the search that to_json wrote."""
        values = json.loads(content)
        settings = Settings(**values.pop("settings"))
        values["dropout"] = tuple(values["dropout"])
        return cls(settings=settings, **values)


def at_once(
    nodes: Sequence[Mapping[str, float]],
    free: Mapping[str, float],
    needs: Mapping[str, float],
    workers: int,
) -> int:
    """Return how many trials' workers fit the cluster at the same time, and at least 1.

    More trials would do no harm, they would only wait: a placement group gives a trial's workers
    their resources all at once or not at all, and its driver needs no CPU.

    Args:
        nodes: The resources of each node; a worker needs all of its own on one node.
        free: The unused resources of all nodes together.
        needs: What one worker asks for.
        workers: The number of workers per trial.
    """
    slots = sum(_slots(node, needs) for node in nodes)
    return max(1, min(slots, _slots(free, needs)) // workers)


def _slots(has: Mapping[str, float], needs: Mapping[str, float]) -> int:
    # Slightly more, so that three workers with a third of a GPU each fit one GPU.
    return int(min((has.get(name, 0) / much + 1e-6 for name, much in needs.items() if much)))


class EpochsToTune(TuneReportCallback):
    """Reports each complete epoch to Tune; a save within an epoch has nothing to compare."""

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        """Report to Tune if the epoch is complete."""
        if METRIC in metrics[0] and not metrics[0]["pictures"]:
            super().after_report(run_context, metrics, checkpoint)


def run_trial(chosen: Mapping[str, Any], search: Search, storage: Storage, device: str) -> None:
    """Train with the values that Tune chose, from where this trial stopped before."""
    for name, value in (train.RAY_TRAIN_SETTINGS | DRIVER_SETTINGS).items():
        os.environ.setdefault(name, value)
    settings = replace(search.settings, **chosen)
    runs = Storage(storage.url, storage.filesystem, storage.below(f"{search.name}/runs"))
    result = None
    while result is None or not result.return_value:  # empty: saved because of an eviction
        _vanished.wait_until_nodes_answer()
        result = _trainer(settings, search, runs, device).fit()
    # If all epochs were complete before, this search has had no report yet.
    tune.report(dict(result.metrics or {}))


def _trainer(settings: Settings, search: Search, runs: Storage, device: str) -> TorchTrainer:
    name = tune.get_context().get_trial_id()
    resume = _checkpoints.prepare(runs, name, settings.model())
    return TorchTrainer(
        train.train_on_worker,
        train_loop_config={"settings": settings, "resume": resume, "every": None, "trace": None},
        torch_config=TorchConfig(backend="gloo" if device == train.CPU else None),
        scaling_config=ray.train.ScalingConfig(
            num_workers=search.workers, use_gpu=search.gpus > 0, resources_per_worker=search.needs
        ),
        run_config=ray.train.RunConfig(
            name=name,
            storage_path=runs.path,
            storage_filesystem=runs.filesystem,
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
            failure_config=ray.train.FailureConfig(max_failures=train.MAX_FAILURES),
            callbacks=[_vanished.WaitForNodes(), EpochsToTune()],
        ),
    )
