"""Train MobileNetV2 on Food-11 with PyTorch Lightning under Ray Train, on nodes that may be lost.

A run has a name. Its checkpoints lie under that name in the storage: started again, the run resumes
where it stopped. A node that dies costs the batches since the last checkpoint; an eviction that is
announced costs none, because the run is saved before the node goes.
"""

import argparse
import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import _checkpoints
import _common
import _food
import _storage
import _strategy
import _vanished
import images
import lightning
import ray
import ray.train
from _common import (
    add_run_options,
    count,
    folder_name,
    parser,
    positive,
    program,
    refuse,
    say,
    span,
)
from _food import EpochTimes, FoodClassifier, Position, RestSampler, Settings, asked_for
from _strategy import DdpStrategy
from ray import cloudpickle
from ray.exceptions import RayTaskError, TaskUnschedulableError
from ray.train.lightning import RayLightningEnvironment, prepare_trainer
from ray.train.torch import TorchConfig, TorchTrainer
from torch.utils.data import DistributedSampler, Sampler

# A worker on another machine cannot import this file's siblings.
for module in (_checkpoints, _common, _food, _storage, _strategy, _vanished, images):
    cloudpickle.register_pickle_by_value(module)

CPU = "CPU"
DEFAULT_NAME = "food"
MAX_FAILURES = 3  # crashes of the training itself; evictions do not count
# Read by Ray Train in this process and in its controller; values already set take precedence.
RAY_TRAIN_SETTINGS = {
    # An eviction is announced some 30 s in advance; Ray checks every 5 s by default.
    "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
    # At each health check (every 2 s by default) the controller takes one report from a worker, and
    # the next report waits for that: training would pause after each epoch shorter than this.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    # After this a worker group that cannot start is sized anew by what is free (60 s by default).
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "30",
    # Ray shows what workers print in any case; with this on, it shows it twice.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
}


# What runs on the workers


class RestOfTheData(lightning.LightningDataModule):
    """The data from a position on: the first epoch may be the rest of one."""

    def __init__(self, settings: Settings, position: Position) -> None:
        super().__init__()
        context = ray.train.get_context()
        self._rank, self._world = context.get_world_rank(), context.get_world_size()
        # Listed once: each epoch makes new loaders, and a folder of photos takes long to list.
        self._pictures = {split: _food.pictures(settings, split) for split in images.SPLITS}
        self._settings, self._total = settings, len(self._pictures["training"])
        # A smaller group may have left less than one picture for each worker of this one.
        few = self._total - position.pictures < self._world
        self.begin = Position(position.epoch + 1, 0, position.steps) if few else position

    def train_dataloader(self) -> Any:
        """Return this epoch's pictures; Lightning calls it in each epoch."""
        epoch = self.trainer.current_epoch  # pyright: ignore[reportOptionalMemberAccess]
        sampler = RestSampler(
            self._total,
            seed=self._settings.seed,
            position=self.begin if epoch == self.begin.epoch else Position(epoch),
            rank=self._rank,
            world=self._world,
        )
        return self._loader("training", sampler)

    def val_dataloader(self) -> Any:
        """Return this worker's share of the validation split."""
        return self._share("validation")

    def test_dataloader(self) -> Any:
        """Return this worker's share of the evaluation split."""
        return self._share("evaluation")

    def _share(self, split: str) -> Any:
        pictures = self._pictures[split]
        sampler = DistributedSampler(pictures, self._world, self._rank, shuffle=False)
        return self._loader(split, sampler)

    def _loader(self, split: str, sampler: Sampler[int]) -> Any:
        return _food.in_batches(self._settings, self._pictures[split], sampler)


def train_on_worker(config: dict[str, Any]) -> dict[str, Any] | None:
    """Train to the end from the newest checkpoint, and evaluate.

    Returns:
        The figures of the evaluation, or None if training was saved and ended because a node of
        the worker group is to be evicted.
    """
    settings: Settings = config["settings"]
    # Ray Train prints each checkpoint twice; one line per epoch is enough.
    for name in ("lightning.pytorch", "ray.train"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Caused by Lightning's own call of torch, which its users cannot change.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
    lightning.seed_everything(settings.seed, verbose=False)
    with _checkpoints.newest(config["resume"]) as found:
        data = RestOfTheData(settings, found.position if found else Position())
        keeper = _checkpoints.Keeper(
            model=settings.model(),
            begin=data.begin,
            attempts=found.attempts if found else [],
            every=config["every"],
            trace=config["trace"],
        )
        times = EpochTimes()
        trainer = lightning.Trainer(
            max_epochs=settings.epochs,
            accelerator="auto",
            devices="auto",
            strategy=DdpStrategy(find_unused_parameters=settings.freeze_epochs > 0),
            plugins=[RayLightningEnvironment()],
            callbacks=[keeper, times],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,  # our samplers know what has been seen
            # The first epoch may be the rest of one, so the next has another length.
            reload_dataloaders_every_n_epochs=1,
        )
        trainer = prepare_trainer(trainer)
        model = FoodClassifier(settings)
        try:
            trainer.fit(model, datamodule=data, ckpt_path=found.file if found else None)
        except _checkpoints.Evicted:
            return None
    [figures] = trainer.test(model, datamodule=data, verbose=False)
    return {
        "accuracy": figures["test_accuracy"],
        "loss": figures["test_loss"],
        "steps": trainer.global_step,
        "epoch_seconds": times.seconds,
    }


# Checks before training


def _preflight(settings: Settings, storage: _storage.Storage, marker: str, gpus: float) -> str:
    """Check data, weights and storage on a node that may train; return the device's name."""
    settings.folder()
    if settings.weights and not Path(settings.weights).is_file():
        raise images.DataError(
            f"the weights {settings.weights} are not on the nodes. Name a file that every node has "
            "with --weights"
        )
    _storage.check_writable(storage, marker)
    if not gpus:
        return CPU
    import torch  # takes seconds

    return torch.cuda.get_device_name() if torch.cuda.is_available() else CPU


def check(settings: Settings, storage: _storage.Storage, needs: dict[str, float]) -> str:
    """Return the device's name, or end the program with exit code 2 and what is wrong.

    Waits if no node is large enough yet but the cluster may still get one.
    """
    _refuse_too_large(needs)
    _vanished.remove_groups_of_dead_jobs()
    gpus = needs.get("GPU", 0)
    try:
        marker = _storage.check_writable(storage)
        try:
            task: Any = ray.remote(num_cpus=needs["CPU"], num_gpus=gpus, max_retries=5)(_preflight)
            return ray.get(task.remote(settings, storage, marker, gpus))
        finally:
            _storage.remove(storage, marker)
    except RayTaskError as error:
        if isinstance(error.cause, (images.DataError, _storage.StorageError)):
            refuse(str(error.cause))
        raise
    except (TaskUnschedulableError, _storage.StorageError) as error:
        refuse(str(error))


def _refuse_too_large(needs: dict[str, float]) -> None:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(n, 0) >= amount for n, amount in needs.items()) for node in nodes):
        return
    if _has_node_types():
        # A node type that is not up may be larger; the autoscaler fails what no type can hold.
        say("No node that is up can hold a worker; asking for one that can")
        return
    largest = ", ".join(
        f"{name}: asked {amount:g}, the largest node has {max(n.get(name, 0) for n in nodes):g}"
        for name, amount in needs.items()
    )
    refuse(f"no node of this cluster can hold a worker ({largest}). Ask for less per worker")


def _has_node_types() -> bool:
    from ray._private.state import state

    return bool(state.get_max_resources_from_cluster_config())


# The command


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    made = parser(__doc__, "python workloads/train.py --workers 1:2 --name food --storage s3://ray")
    default = Settings()
    made.add_argument(
        "--name", type=folder_name, default=DEFAULT_NAME, help="run to start or resume"
    )
    add_run_options(made)
    made.add_argument("--workers", type=span, default="1", metavar="N|MIN:MAX", help="workers")
    made.add_argument(
        "--epochs", type=positive, default=default.epochs, metavar="N", help="epochs to train"
    )
    made.add_argument(
        "--batch-size",
        type=positive,
        default=default.batch_size,
        metavar="N",
        help="pictures per worker and step",
    )
    _food.add_options(made)
    made.add_argument(
        "--checkpoint-every",
        type=positive,
        metavar="BATCHES",
        help="save after every so many batches too",
    )
    made.add_argument("--keep", type=positive, default=2, metavar="N", help="checkpoints to keep")
    made.add_argument(
        "--max-failures",
        type=int,
        default=MAX_FAILURES,
        metavar="N",
        help="failures before giving up, -1 for no limit",
    )
    made.add_argument(
        "--max-evictions",
        type=int,
        default=-1,
        metavar="N",
        help="evictions before giving up (default: no limit)",
    )
    made.add_argument(
        "--trace", metavar="FILE", help="write a line per batch, on the node of rank 0"
    )
    return made.parse_args(argv)


def run(
    args: argparse.Namespace,
    settings: Settings,
    storage: _storage.Storage,
    needs: dict[str, float],
    device: str,
) -> dict[str, Any]:
    """Train to the end, resuming after each eviction, and return the figures.

    Raises:
        TrainingFailedError: If it failed or was evicted more often than allowed.
    """
    evictions = 0
    _vanished.forget_dead_runs()
    with _vanished.no_endless_start():
        while True:
            _vanished.wait_until_nodes_answer()
            figures = trainer(args, settings, storage, needs, device).fit().return_value
            if figures:
                return figures | {"evictions": evictions}
            evictions += 1
            if 0 <= args.max_evictions < evictions:
                raise ray.train.TrainingFailedError(f"evicted {count(evictions, 'time')}")


def trainer(
    args: argparse.Namespace,
    settings: Settings,
    storage: _storage.Storage,
    needs: dict[str, float],
    device: str,
) -> TorchTrainer:
    """Return the run's TorchTrainer, which resumes from the newest complete checkpoint."""
    try:
        resume = _checkpoints.prepare(storage, args.name, settings.model())
    except _checkpoints.CheckpointError as error:
        refuse(str(error))
    if resume:
        epochs, pictures = resume.position.epoch, resume.position.pictures
        done = f"{count(epochs, 'epoch')} and {count(pictures, 'picture')}"
        say(f"Resuming {args.name!r} after {done}")
    least, most = args.workers
    return TorchTrainer(
        train_on_worker,
        train_loop_config={
            "settings": settings,
            "resume": resume,
            "every": args.checkpoint_every,
            "trace": str(Path(args.trace).absolute()) if args.trace else None,
        },
        # Ray would choose NCCL wherever GPUs are asked for; a local cluster's are only logical.
        torch_config=TorchConfig(backend="gloo" if device == CPU else None),
        scaling_config=ray.train.ScalingConfig(
            num_workers=least if least == most else (least, most),
            use_gpu=args.gpus_per_worker > 0,
            resources_per_worker=needs,
            elastic_resize_monitor_interval_s=30,
        ),
        run_config=ray.train.RunConfig(
            name=args.name,
            storage_path=storage.path,
            storage_filesystem=storage.filesystem,
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=args.keep),
            failure_config=ray.train.FailureConfig(
                max_failures=args.max_failures, max_preemption_failures=args.max_evictions
            ),
            callbacks=[_vanished.WaitForNodes()],
        ),
    )


@program
def main(argv: list[str] | None = None) -> None:
    """Train as the command line asks."""
    args = _arguments(argv)
    for name, value in RAY_TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    settings = asked_for(args, "epochs", "batch_size", "size", "seed")
    url = args.storage or _storage.default_url()
    try:
        storage = _storage.open_storage(url)
    except _storage.StorageError as error:
        refuse(str(error))
    # The watcher in which Ray Train removes a dead driver's groups asks the state API.
    _common.connect(tell_workers=True)
    needs = {"CPU": args.cpus_per_worker}
    if args.gpus_per_worker:
        needs["GPU"] = args.gpus_per_worker
    device = check(settings, storage, needs)
    say(f"Training {args.name!r} on {device}; checkpoints go to {url}")
    began = time.perf_counter()
    try:
        figures = run(args, settings, storage, needs, device)
    except ray.train.TrainingFailedError as error:
        print(f"error: {args.name!r} failed: {error}", file=sys.stderr)
        say(f"Its checkpoints are in {url}; start it again with --name {args.name}")
        sys.exit(1)
    seconds = time.perf_counter() - began
    say(
        f"Evaluation accuracy {figures['accuracy']:.3f} after {count(settings.epochs, 'epoch')} "
        f"on {device}, {seconds:.1f} s"
    )
    if args.out:
        newest = _checkpoints.prepare(storage, args.name, settings.model())
        summary = {
            "workload": "train",
            "name": args.name,
            "storage": url,
            "device": device,
            "epochs": settings.epochs,
            "seconds": seconds,
            "attempts": newest.attempts if newest else [],
            **figures,
        }
        args.out.write_text(json.dumps(summary, indent=2) + "\n")
        say(f"Written to {args.out}")


if __name__ == "__main__":
    main()
