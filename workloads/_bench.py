"""The measurements of feed.py, as they run on a node."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import images
from _common import Place, here

PICTURES = images.Shape(size=384, training=6, validation=1, evaluation=1)  # as large as Food-11's
WARM_BATCHES = 2


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Images a second with some CPUs: the loaders on their own, and feeding the model."""

    cpus: int
    loader: float
    together: float


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is measured, and for how long each time."""

    data: str | None
    batch: int
    crop: int
    seconds: float
    rate: float | None
    """Images a second of the stand-in model; None means a real model."""
    train: bool
    """Whether the model is also trained on the batches."""


class Pictures:
    """An endless data set of pictures, decoded and cropped as for training."""

    def __init__(self, files: Sequence[Path], crop: int) -> None:
        from torchvision.transforms import v2

        self._files = files
        self._change = v2.Compose([v2.PILToTensor(), v2.RandomResizedCrop(crop, antialias=True)])

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self._files[index % len(self._files)]) as picture:
            return self._change(picture.convert("RGB"))


class Model:
    """A MobileNetV2 on the GPU if there is one, else on one CPU thread."""

    def __init__(self, *, train: bool) -> None:
        import torch
        from torchvision.models import mobilenet_v2

        torch.set_num_threads(1)  # more threads would take the loaders' CPU time
        gpu = torch.cuda.is_available()
        self._torch = torch
        self.name = torch.cuda.get_device_name() if gpu else "one CPU thread"
        self.on_cpu = not gpu
        self._device = torch.device("cuda" if gpu else "cpu")
        self._net = mobilenet_v2(num_classes=len(images.CLASSES)).to(self._device).train(train)
        self._steps = torch.optim.Adam(self._net.parameters(), 1e-4) if train else None

    def take(self, batch: Any) -> None:
        """Process a batch of uint8 pictures."""
        pixels = batch.to(self._device, non_blocking=True).float().div_(255)
        with self._torch.set_grad_enabled(self._steps is not None):
            found = self._net(pixels)
        if self._steps is not None:
            found.logsumexp(1).mean().backward()
            self._steps.step()
            self._steps.zero_grad()

    def wait(self) -> None:
        """Return when every batch so far is done: a GPU runs asynchronously to Python."""
        if not self.on_cpu:
            self._torch.cuda.synchronize()


class StandIn:
    """Takes as long as a GPU of a known rate and, like a GPU, uses no CPU."""

    on_cpu = False

    def __init__(self, rate: float) -> None:
        self.name = f"a stand-in, {rate:g} images a second"
        self._rate = rate

    def take(self, batch: Any) -> None:
        """Sleep as long as the batch would take."""
        time.sleep(len(batch) / self._rate)

    def wait(self) -> None:
        """Return at once."""


class Bench:
    """Measures on the node that it runs on, whose CPUs no other program may use meanwhile."""

    def __init__(self, setup: Setup) -> None:
        folder = images.data_folder(setup.data, PICTURES)
        kinds = images.SUFFIXES
        self._files = sorted(
            f for f in (folder / "training").rglob("*") if f.suffix.lower() in kinds
        )
        self._setup = setup
        self._model = StandIn(setup.rate) if setup.rate else Model(train=setup.train)
        self._cores = sorted(os.sched_getaffinity(0))

    def about(self) -> tuple[Place, int, str, bool]:
        """Return the place, its CPUs, the model's name, and whether the model runs on a CPU."""
        return here(), len(self._cores), self._model.name, self._model.on_cpu

    def model_rate(self) -> float:
        """Return the images a second that the model processes when they are in memory."""
        import torch

        setup = self._setup
        batch = torch.zeros(setup.batch, 3, setup.crop, setup.crop, dtype=torch.uint8)
        os.sched_setaffinity(0, self._cores)
        return self._rate(iter(lambda: batch, None), self._model.take)

    def rates(self, cpus: int) -> Rates:
        """Return the images a second with this many CPUs and as many loaders."""
        # The loaders are forked and inherit the affinity, so they share these CPUs with this
        # process, as on a machine that has no others.
        os.sched_setaffinity(0, self._cores[:cpus])
        loader = self._loading(cpus, lambda _batch: None)
        return Rates(cpus=cpus, loader=loader, together=self._loading(cpus, self._model.take))

    def _loading(self, cpus: int, take: Callable[[Any], None]) -> float:
        from torch.utils.data import DataLoader

        pictures: Any = Pictures(self._files, self._setup.crop)
        batches = iter(DataLoader(pictures, self._setup.batch, num_workers=cpus))
        for _ in range(cpus):  # each loader's first batch includes its start
            next(batches)
        return self._rate(batches, take)

    def _rate(self, batches: Iterator[Any], take: Callable[[Any], None]) -> float:
        for _ in range(WARM_BATCHES):
            take(next(batches))
        self._model.wait()
        began, taken = time.perf_counter(), 0
        while time.perf_counter() - began < self._setup.seconds:
            batch = next(batches)
            take(batch)
            taken += len(batch)
        self._model.wait()
        return taken / (time.perf_counter() - began)
