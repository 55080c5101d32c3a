"""Saves checkpoints under Ray Train, within an epoch too, and finds the newest one.

Ray's own RayTrainReportCallback saves at the end of an epoch, and Lightning cannot resume within
an epoch with a different number of workers. So our checkpoints record how many pictures of the
epoch all workers together have seen, in place of the state of Lightning's loops.
"""

# ruff: noqa: ARG002 - Lightning defines the arguments of its hooks

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _food  # before Lightning, because it prints what to install
import lightning
import ray
import ray.train
from _common import count
from _storage import Storage
from pyarrow import fs
from ray.train import CheckpointConsistencyMode
from ray.train.collective import broadcast_from_rank_zero
from ray.train.lightning import RayTrainReportCallback

FILE = RayTrainReportCallback.CHECKPOINT_NAME
ABOUT = "about.json"
# Ray's list of a run's checkpoints (ray/train/v2/_internal/constants.py, 2.60).
RAYS_LIST = "checkpoint_manager_snapshot.json"

CHECK_EVERY_S = 0.5  # for a notice of eviction; each check is a call to another process


class CheckpointError(ValueError):
    """A run cannot be resumed from what is stored under its name; the message says why."""


class Evicted(Exception):  # noqa: N818 - nothing went wrong
    """Ends training on every worker once it is saved, before an eviction."""


# Finding a checkpoint


@dataclass(frozen=True)
class Found:
    """A complete checkpoint: its folder, its position, and the attempts that led to it."""

    filesystem: fs.FileSystem
    path: str
    position: _food.Position
    attempts: list[dict[str, Any]]
    file: str = ""
    """The checkpoint file on this machine's disk; empty until it is downloaded."""


def prepare(storage: Storage, name: str, model: dict[str, Any]) -> Found | None:
    """Return a run's newest complete checkpoint, or None for a new run.

    Ray does not start a run whose list of checkpoints is broken, which a full disk can cause. Such
    a list is deleted: the checkpoints themselves show whether they are complete.

    Raises:
        CheckpointError: If a checkpoint is of another model.
    """
    folders = [f for f in storage.folders(name) if f.startswith("checkpoint_")]
    whole = [f for f in (_look(storage, f"{name}/{folder}", model) for folder in folders) if f]
    newest = max(whole, key=lambda found: _order(found.position), default=None)
    _remove_a_broken_list(storage, name, {Path(found.path).name for found in whole})
    return newest


def _order(position: _food.Position) -> tuple[int, int]:
    return position.epoch, position.pictures


def _look(storage: Storage, folder: str, model: dict[str, Any]) -> Found | None:
    try:
        about = json.loads(storage.read(f"{folder}/{ABOUT}"))
        [file] = storage.filesystem.get_file_info([storage.below(f"{folder}/{FILE}")])
    except (OSError, ValueError):
        return None
    if file.size != about["bytes"]:
        return None
    if about["model"] != model:
        raise CheckpointError(
            f"{storage.url}/{folder} is a checkpoint of another model, {about['model']}, not of "
            f"{model}. Give this run another --name"
        )
    position = _food.Position(**about["position"])
    return Found(storage.filesystem, storage.below(folder), position, about["attempts"])


def _remove_a_broken_list(storage: Storage, name: str, whole: set[str]) -> None:
    listed = f"{name}/{RAYS_LIST}"
    try:
        results = json.loads(storage.read(listed))["checkpoint_results"]
        if {result["checkpoint_dir_name"] for result in results} <= whole:
            return
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        pass
    storage.filesystem.delete_file(storage.below(listed))


@contextlib.contextmanager
def newest(known: Found | None) -> Iterator[Found | None]:
    """Download and yield the newer of ``known`` and Ray's own checkpoint; None without either."""
    rays = ray.train.get_checkpoint()
    found = [known, _of_ray(rays) if rays else None]
    chosen = max((f for f in found if f), key=lambda f: _order(f.position), default=None)
    if chosen is None:
        yield None
        return
    checkpoint = ray.train.Checkpoint(chosen.path, chosen.filesystem)
    with checkpoint.as_directory() as folder:
        file = str(Path(folder) / FILE)
        yield Found(chosen.filesystem, chosen.path, chosen.position, chosen.attempts, file)


def _of_ray(checkpoint: ray.train.Checkpoint) -> Found:
    filesystem: fs.FileSystem = checkpoint.filesystem
    with filesystem.open_input_stream(f"{checkpoint.path}/{ABOUT}") as file:
        about = json.loads(file.read())
    position = _food.Position(**about["position"])
    return Found(filesystem, checkpoint.path, position, about["attempts"])


# Saving a checkpoint


class Keeper(lightning.Callback):
    """Saves after each epoch, every few batches if asked, and when an eviction is announced."""

    def __init__(
        self,
        *,
        model: dict[str, Any],
        begin: _food.Position,
        attempts: list[dict[str, Any]],
        every: int | None = None,
        trace: str | None = None,
    ) -> None:
        context = ray.train.get_context()
        self._rank, self._world = context.get_world_rank(), context.get_world_size()
        self._model, self._every, self._trace = model, every, trace
        self._begin = self._position = begin
        attempt = {"from": begin.as_dict(), "workers": self._world, "at": time.time()}
        self._attempts = [*attempts, attempt]
        self._batches = 0  # of this attempt
        self._stride = 1  # batches between two checks for a notice
        self._batch_seconds = 0.0  # the last epoch's average, with reading and saving
        self._first_end, self._ends = 0.0, 0

    # Lightning's hooks

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Set Lightning's progress, since our checkpoints do not contain its loops."""
        epochs: Any = trainer.fit_loop.epoch_progress
        for counter in (epochs.current, epochs.total):
            counter.ready = counter.started = self._begin.epoch
            counter.processed = counter.completed = self._begin.epoch
        steps: Any = (
            trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step
        )
        for counter in (steps.current, steps.total):
            counter.ready = counter.completed = self._begin.steps

    def on_save_checkpoint(
        self,
        trainer: lightning.Trainer,
        pl_module: Any,
        checkpoint: dict[str, Any],
    ) -> None:
        """Leave out Lightning's loops, which count batches for a fixed number of workers."""
        checkpoint.pop("loops", None)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Agree with the other workers on how often to check for a notice."""
        seconds = self._batch_seconds
        stride = max(1, int(CHECK_EVERY_S / seconds)) if seconds else 1
        self._stride = broadcast_from_rank_zero(stride)
        self._ends = 0

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Count the batch; save if a save is due or a node is to be evicted."""
        self._time_batch()
        self._batches += 1
        epoch, seen = trainer.current_epoch, self._position.pictures
        if trainer.is_last_batch:
            # Fewer pictures are left than there are workers.
            self._position = _food.Position(epoch + 1, 0, trainer.global_step)
        else:
            pictures = seen + len(batch[1]) * self._world
            self._position = _food.Position(epoch, pictures, trainer.global_step)
        self._write_trace(epoch, seen, len(batch[1]) * self._world)
        if self._batches % self._stride == 0 and (notice := ray.train.get_preemption_info()):
            self._leave(trainer, notice)
        if self._every and self._batches % self._every == 0 and not trainer.is_last_batch:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Save, and print the epoch's result."""
        self._save(trainer, validated=True)
        if self._rank == 0:
            figures = trainer.callback_metrics
            print(
                f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}: validation accuracy "
                f"{float(figures.get('val_accuracy', 0)):.3f}, {count(self._world, 'worker')}",
                flush=True,
            )

    # Helpers

    def _time_batch(self) -> None:
        now = time.perf_counter()
        if self._ends:
            self._batch_seconds = (now - self._first_end) / self._ends
        else:
            self._first_end = now
        self._ends += 1

    def _save(self, trainer: lightning.Trainer, *, validated: bool = False) -> None:
        """Save and report.

        Until an epoch is validated, Lightning's validation figures are those of the previous one.
        """
        folder = tempfile.mkdtemp(prefix="sunspot-checkpoint-")
        try:
            file = Path(folder) / FILE
            trainer.save_checkpoint(file)  # called on every rank; rank 0 writes
            figures = {
                name: float(value)
                for name, value in trainer.callback_metrics.items()
                if validated or not name.startswith("val_")
            }
            position = self._position.as_dict()
            checkpoint = None
            if self._rank == 0:
                about = {
                    "model": self._model,
                    "position": position,
                    "attempts": self._attempts,
                    "bytes": file.stat().st_size,
                }
                (Path(folder) / ABOUT).write_text(json.dumps(about))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({**figures, **position}, checkpoint=checkpoint)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _leave(self, trainer: lightning.Trainer, notice: ray.train.PreemptionInfo) -> None:
        """Save, and end this worker group so that the next one starts where it stopped.

        Ray Train would keep the group running until the deadline. Ended now, the workers leave the
        node at once, and the node leaves the cluster before it is evicted.
        """
        self._save(trainer)
        # report() returns when the files are stored; Ray updates its list of them later.
        ray.train.get_all_reported_checkpoints(consistency_mode=CheckpointConsistencyMode.COMMITTED)
        if self._rank == 0:
            left = notice.deadline_ms / 1000 - time.time() if notice.deadline_ms else None
            before = f", {left:.1f} s before the deadline" if left is not None else ""
            nodes, steps = len(notice.preempted_node_ids), self._position.steps
            print(f"eviction of {nodes} node(s) announced: saved after {steps} steps{before}")
        raise Evicted

    def _write_trace(self, epoch: int, seen: int, number: int) -> None:
        if self._trace and self._rank == 0:
            with Path(self._trace).open("a") as file:
                file.write(f"{time.time():.3f} {epoch} {seen} {seen + number} {self._world}\n")
