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
# Ray's name for what only the head node has (ray/_private/resource_spec.py, 2.60). The driver of
# a trial asks for a little of it and for no CPU: trials that waited with a CPU in hand for their
# workers' CPUs could wait for each other for ever. And the head is the node that stays.
ON_THE_HEAD = {"node:__internal_head__": 0.001}
# Read by Ray Tune and Train in the processes that drive them; what is set already wins.
DRIVER_SETTINGS = {
    "TUNE_GLOBAL_CHECKPOINT_S": "5",  # how often the search is saved (10 or more by default)
    # A trial that waits for a node to be made is not to start over every 30 s.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_AIR_NEW_OUTPUT": "0",  # tables of Tune's own, even where it is told to print nothing
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
        """Return it as a file's content."""
        return json.dumps(asdict(self), indent=2).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "Search":
        """Return what to_json wrote."""
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

    ``nodes`` are the resources of each node, ``free`` what is unused in all of them together. A
    worker never lies on two nodes. More trials would do no harm, they would wait: a trial's
    workers get their places all at once or none (a placement group), and its driver needs no CPU.
    """
    slots = sum(_slots(node, needs) for node in nodes)
    return max(1, min(slots, _slots(free, needs)) // workers)


def _slots(has: Mapping[str, float], needs: Mapping[str, float]) -> int:
    # A hair more: three workers of a third of a GPU are one GPU.
    return int(min((has.get(name, 0) / much + 1e-6 for name, much in needs.items() if much)))


class EpochsToTune(TuneReportCallback):
    """Tells Tune of each whole epoch; a save within one has nothing to compare."""

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        """Tell it, if it is one."""
        if METRIC in metrics[0] and not metrics[0]["pictures"]:
            super().after_report(run_context, metrics, checkpoint)


def run_trial(chosen: Mapping[str, Any], search: Search, storage: Storage, device: str) -> None:
    """Train with a choice of Tune's, from where an earlier start of this trial came to."""
    for name, value in (train.RAY_TRAIN_SETTINGS | DRIVER_SETTINGS).items():
        os.environ.setdefault(name, value)
    settings = replace(search.settings, **chosen)
    runs = Storage(storage.url, storage.filesystem, storage.below(f"{search.name}/runs"))
    result = None
    while result is None or not result.return_value:  # none: saved, because a node had to go
        _vanished.wait_for_the_truth()
        result = _trainer(settings, search, runs, device).fit()
    # Where all epochs were done before, none has been told to this search.
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
            callbacks=[_vanished.WaitForTheTruth(), EpochsToTune()],
        ),
    )
