"""The parts of embed.py that run on the nodes, and the two ways to run them."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import _food
import images
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from _common import Place, here
from _food import FoodClassifier, Settings

IN_FLIGHT = 2  # batches per actor with --core: one in work and one waiting
CPUS_FOR_MODELS = 2 / 3  # the other CPUs decode
LEAST_SHARE = 1 / 64  # of a CPU
Batch = dict[str, Any]
"""Columns by name, as numpy arrays: Ray Data's own form of a batch."""


# What runs on the nodes


def decode(batch: Batch, settings: Settings, split: str) -> Batch:
    """Return the batch with its pictures decoded to uint8 pixels of the network's size."""
    from PIL import Image
    from torchvision import transforms

    folder = settings.folder() / split
    fit = transforms.Compose(
        [transforms.Resize(settings.size), transforms.CenterCrop(settings.size)]
    )
    found = []
    for path in batch["path"]:
        with Image.open(folder / path) as picture:
            found.append(np.asarray(fit(picture.convert("RGB"))))
    return {"path": batch["path"], "pixels": np.stack(found)}


class Embedder:
    """Holds the model; a call turns a batch of pixels into a table of vectors."""

    def __init__(self, settings: Settings, state: list[Any], threads: int, tally: Any) -> None:
        # The reference is in a list because Ray replaces a bare one by its value, which an actor
        # that restarts after the loss of its node would not find.
        import torch

        torch.set_num_threads(threads)
        self._torch, self._tally = torch, tally
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        gpu = self._device.type == "cuda"
        self._device_name = torch.cuda.get_device_name() if gpu else "CPU"
        model = FoodClassifier(replace(settings, weights=None))  # the state includes them
        model.load_state_dict(ray.get(state[0]))
        self._model = model.eval().to(self._device)
        self._mean, self._deviation = (
            torch.tensor(value, device=self._device).view(3, 1, 1)
            for value in (_food.MEAN, _food.DEVIATION)
        )

    def __call__(self, batch: Batch) -> pa.Table:
        torch = self._torch
        with torch.inference_mode():
            # A copy: arrays in the object store are read-only, which torch does not support.
            pixels = torch.tensor(batch["pixels"], device=self._device)
            pixels = pixels.permute(0, 3, 1, 2).float().div_(255)
            vectors = self._model.embed((pixels - self._mean) / self._deviation).cpu().numpy()
        self._tally.report.remote(here(), len(vectors), self._device_name)
        return table_of(batch["path"], vectors)


def table_of(paths: Sequence[str], vectors: np.ndarray) -> pa.Table:
    """Return paths and vectors, a list of floats per row, as a table that reads without Ray."""
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.table({"path": pa.array([str(path) for path in paths]), "embedding": column})


@ray.remote(num_cpus=0)
class Tally:
    """Records each embedded batch: when it was reported, from where, and its number of pictures."""

    def __init__(self) -> None:
        self._reports: list[tuple[float, Place, int]] = []
        self._devices: set[str] = set()

    def report(self, place: Place, pictures: int, device: str) -> None:
        """Record a batch at the time of this actor's clock, so that all nodes share one clock."""
        self._reports.append((time.perf_counter(), place, pictures))
        self._devices.add(device)

    def reports(self) -> tuple[list[tuple[float, Place, int]], list[str]]:
        """Return the records so far, and the names of the devices."""
        return self._reports, sorted(self._devices)


# The input


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many actors run at once, and the resources that each part asks Ray for."""

    workers: tuple[int, int]
    """The minimum and maximum number of actors with a model."""
    worker_cpus: float
    worker_gpus: float
    decode_cpus: float


def plan(free: Mapping[str, float], workers: tuple[int, int] | None, gpus: float | None) -> Plan:
    """Return a plan in which the minimum of actors and a decoding task fit the free resources.

    Actors that held every CPU would wait forever for pictures that no task has a CPU to decode.
    So where CPUs are few, each part asks for a fraction of one.
    """
    gpu = min(1.0, free.get("GPU", 0.0)) if gpus is None else gpus
    cpus = free.get("CPU", 1.0)
    most = int(free.get("GPU", 0.0) / gpu) if gpu else int(cpus * CPUS_FOR_MODELS)
    few, many = workers or (1, max(1, most))
    share = 1.0
    while share * (few + 1) > cpus and share > LEAST_SHARE:
        share /= 2
    return Plan(workers=(few, many), worker_cpus=share, worker_gpus=gpu, decode_cpus=share)


@dataclass(frozen=True, kw_only=True)
class Work:
    """Which pictures, in which batches, with which model."""

    settings: Settings
    split: str
    paths: Sequence[str]
    batch: int
    state: Any
    """The model's parameters as an object reference, so that they go to each node once."""

    def batches(self) -> list[Batch]:
        """Return the pictures' paths in batches."""
        edges = [*range(0, len(self.paths), self.batch), len(self.paths)]
        return [{"path": np.array(self.paths[at:to])} for at, to in pairwise(edges)]


def pictures_of(folder: Path) -> list[str]:
    """Return the sorted paths of a split's pictures, relative to its folder."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in images.SUFFIXES)
    return sorted(file.relative_to(folder).as_posix() for file in files)


# The two ways


def with_ray_data(work: Work, chosen: Plan, tally: Any, folder: str, filesystem: Any) -> None:
    """Stream the pictures through decoding tasks and an autoscaled pool of actors to Parquet."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.WARNING)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    few, many = chosen.workers
    paths = ray.data.from_items(
        [{"path": path} for path in work.paths], override_num_blocks=len(work.batches())
    )
    read: Any = decode
    decoded = paths.map_batches(
        read,
        batch_size=work.batch,
        num_cpus=chosen.decode_cpus,
        fn_kwargs={"settings": work.settings, "split": work.split},
    )
    embedded = decoded.map_batches(
        Embedder,
        batch_size=work.batch,
        compute=ray.data.ActorPoolStrategy(min_size=few, max_size=many),
        num_cpus=chosen.worker_cpus,
        num_gpus=chosen.worker_gpus,
        fn_constructor_args=(work.settings, [work.state], _threads(chosen), tally),
    )
    embedded.write_parquet(folder, filesystem=filesystem, ray_remote_args={"num_cpus": 0})


def with_core(work: Work, chosen: Plan, tally: Any, folder: str, filesystem: Any) -> None:
    """Do the same with plain tasks and actors, and two batches in flight per actor."""
    path, writer = f"{folder}/core.parquet", None
    try:
        with filesystem.open_output_stream(path) as file:
            for table in _through_actors(work, chosen, tally):
                writer = writer or pq.ParquetWriter(file, table.schema)
                writer.write_table(table)
            if writer:
                writer.close()
    except BaseException:  # a partial file must not look complete
        with contextlib.suppress(OSError):
            filesystem.delete_file(path)
        raise


def _through_actors(work: Work, chosen: Plan, tally: Any) -> Iterator[pa.Table]:
    """Yield the batches' vectors as they become ready."""
    few, many = chosen.workers
    # An actor may be lost with a spot VM: Ray starts it again and repeats its calls.
    kind = ray.remote(
        num_cpus=chosen.worker_cpus,
        num_gpus=chosen.worker_gpus,
        max_restarts=-1,
        max_task_retries=-1,
    )(_Actor)
    read: Any = ray.remote(num_cpus=chosen.decode_cpus)(decode)

    def start() -> Any:
        return kind.remote(work.settings, [work.state], _threads(chosen), tally)

    actors = [start() for _ in range(few)]
    left = list(reversed(work.batches()))
    busy: dict[Any, Any] = {}
    idle = [actor for actor in actors for _ in range(IN_FLIGHT)]
    try:
        while left or busy:
            while left and idle:
                actor, batch = idle.pop(0), left.pop()
                pixels = read.remote(batch, work.settings, work.split)
                busy[actor.embed.remote(pixels)] = actor
            done, _ = ray.wait(list(busy), timeout=1.0)
            for ref in done:
                idle.append(busy.pop(ref))
                yield ray.get(ref)
            if done and left and len(actors) < many and _room(chosen):
                actors.append(start())
                idle += [actors[-1]] * IN_FLIGHT
    finally:
        for actor in actors:
            ray.kill(actor)


class _Actor(Embedder):
    def embed(self, batch: Batch) -> pa.Table:
        """Return the batch's vectors."""
        return self(batch)


def _room(chosen: Plan) -> bool:
    """Return whether there is room for one more actor and a task that decodes for it."""
    free = ray.available_resources()
    cpus, gpus = free.get("CPU", 0.0), free.get("GPU", 0.0)
    return cpus >= chosen.worker_cpus + chosen.decode_cpus and gpus >= chosen.worker_gpus


def _threads(chosen: Plan) -> int:
    return max(1, int(chosen.worker_cpus))
