"""The peer of train_loss.py: the model of workloads/train.py, trained as in its original course.

As in the course's branch fault_tolerance (teaching-on-testbeds, gourmetgram-train), Ray's callback
saves at the end of an epoch, two failures are allowed, and Lightning resumes. It is elastic, as
train.py is, since the cluster has one node less after the loss.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

import _food
import images
import lightning
import ray.train
from ray import cloudpickle
from ray.train.lightning import (
    RayDDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    prepare_trainer,
)
from ray.train.torch import TorchTrainer

for module in (_food, images):
    cloudpickle.register_pickle_by_value(module)


class Trace(lightning.Callback):
    """Writes a line for each batch, like --trace of train.py."""

    def __init__(self, file: str, batch_size: int) -> None:
        self._file, self._batch_size = file, batch_size

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: Any,  # noqa: ARG002
        outputs: Any,  # noqa: ARG002
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write the line on rank 0."""
        world = trainer.world_size
        if trainer.global_rank == 0:
            first = batch_idx * self._batch_size * world  # an epoch's last batch may be smaller
            line = f"{time.time()} {trainer.current_epoch} {first} {first + len(batch[1]) * world}"
            with Path(self._file).open("a") as file:
                file.write(f"{line} {world}\n")


def train_func(config: dict[str, Any]) -> None:
    """Train on a worker, as the course does."""
    settings = config["settings"]
    trainer = lightning.Trainer(
        max_epochs=settings.epochs,
        devices="auto",
        accelerator="auto",
        strategy=RayDDPStrategy(find_unused_parameters=True),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback(), Trace(config["trace"], settings.batch_size)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer = prepare_trainer(trainer)
    loaders = [_food.loader(settings, split) for split in ("training", "validation")]
    model = _food.FoodClassifier(settings)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            trainer.fit(model, *loaders, ckpt_path=str(Path(folder) / "checkpoint.ckpt"))
    else:
        trainer.fit(model, *loaders)


def main() -> None:
    """Train as the command line asks."""
    made = argparse.ArgumentParser()
    for name in ("data", "storage", "trace"):
        made.add_argument(f"--{name}", required=True)
    for name in ("epochs", "batch-size"):
        made.add_argument(f"--{name}", type=int, required=True)
    made.add_argument("--width", type=float, required=True)
    args = made.parse_args()
    settings = _food.Settings(
        data=args.data, epochs=args.epochs, batch_size=args.batch_size, width=args.width
    )
    TorchTrainer(
        train_func,
        train_loop_config={"settings": settings, "trace": args.trace},
        scaling_config=ray.train.ScalingConfig(num_workers=(1, 2), resources_per_worker={"CPU": 2}),
        run_config=ray.train.RunConfig(
            name="seed",
            storage_path=args.storage,
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    ).fit()


if __name__ == "__main__":
    main()
