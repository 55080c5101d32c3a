"""The model and the data that the training workloads share: MobileNetV2 on Food-11.

First only the head is trained, then the whole network. This module does not use Ray, so that the
same model also trains in a plain Lightning script.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import images

try:
    import lightning
    import torch
    import torchvision
except ImportError as error:
    images.without(error)

from torch import nn
from torch.utils.data import DataLoader, Sampler
from torchvision import transforms

MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # ImageNet's, for published weights
ARCHITECTURE = "mobilenet_v2"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is trained and how. The default learning rates are for training from scratch."""

    data: str | None = None
    """The folder of the data set; None generates one (see images.py)."""
    size: int = images.SIZE
    """The side of the network's input, in pixels."""
    epochs: int = 6
    freeze_epochs: int = 1
    """The number of epochs at the start in which only the head is trained."""
    batch_size: int = 32
    """Pictures per worker and step."""
    lr: float = 3e-3
    fine_tune_lr: float = 3e-3
    """The learning rate of the layers below the head, once they are trained."""
    dropout: float = 0.2
    width: float = 0.5
    """MobileNetV2's multiplier of channels; the published network has 1."""
    weights: str | None = None
    """A file with the network's weights, as torchvision publishes them."""
    loaders: int = 0
    """Processes per worker that read pictures; 0 reads them in the worker itself."""
    seed: int = 42

    def model(self) -> dict[str, Any]:
        """Return what identifies the model: a checkpoint of it has the same values."""
        return {
            "architecture": ARCHITECTURE,
            "width": self.width,
            "classes": len(images.CLASSES),
        }

    def folder(self) -> Path:
        """Return the data set's folder on this machine; see images.data_folder."""
        return images.data_folder(self.data, images.Shape(size=self.size))


# The original course's values, for weights pretrained on ImageNet.
FROM_WEIGHTS = {"lr": 1e-4, "fine_tune_lr": 1e-6, "freeze_epochs": 5, "dropout": 0.5, "width": 1.0}

# BatchNorm's momentum. With torch's default of 0.1 its statistics lag behind a network that is
# trained from scratch in some 20 steps per epoch, and evaluates at chance for three epochs.
FAST_STATISTICS = 0.3


def add_options(made: argparse.ArgumentParser) -> None:
    """Add the options of the model and its data that the training workloads share."""
    default = Settings()
    data = f"folder like Food-11, on every node (default: {images.REAL_DATA} or generated)"
    made.add_argument("--data", metavar="FOLDER", help=data)
    size = "input size in pixels (default: %(default)s)"
    made.add_argument("--size", type=images.positive, default=default.size, metavar="N", help=size)
    width = "MobileNetV2's width multiplier (default: %(default)s)"
    made.add_argument("--width", type=float, default=default.width, metavar="X", help=width)
    made.add_argument("--weights", metavar="FILE", help="published weights, on every node")
    seed = "random seed (default: %(default)s)"
    made.add_argument("--seed", type=int, default=default.seed, metavar="N", help=seed)


def asked_for(args: argparse.Namespace, *names: str) -> Settings:
    """Return the settings that a command line asks for.

    Published weights bring their own learning rates and their own width.

    Args:
        args: The parsed command line, with the options of add_options.
        names: The other settings to take from it.
    """
    settings = replace(Settings(), width=args.width)
    if args.weights:
        weights = str(Path(args.weights).absolute())
        settings = replace(settings, weights=weights, **FROM_WEIGHTS)
    chosen = {name: getattr(args, name) for name in names}
    return replace(settings, data=images.asked_for(args.data), **chosen)


# The model


class FoodClassifier(lightning.LightningModule):
    """MobileNetV2 with its own head for the classes of Food-11."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        network = torchvision.models.mobilenet_v2(width_mult=settings.width)
        if settings.weights is None:
            for layer in network.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.momentum = FAST_STATISTICS
        else:
            network.load_state_dict(torch.load(settings.weights, weights_only=True))
        self.features = network.features
        self.head = nn.Sequential(
            nn.Dropout(settings.dropout), nn.Linear(network.last_channel, len(images.CLASSES))
        )

    def embed(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return one vector per picture, the input of the head."""
        return self.features(pictures).mean((2, 3))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return one logit per class for each picture."""
        # Not requires_grad=False: DDP fixes what it synchronizes before the first batch.
        learns = torch.is_grad_enabled() and self.current_epoch >= self.settings.freeze_epochs
        with torch.set_grad_enabled(learns):
            vectors = self.embed(pictures)
        return self.head(vectors)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = self._loss(batch)[0]
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self._measure("val", batch)

    def test_step(self, batch: list[torch.Tensor]) -> None:
        self._measure("test", batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            [
                {"params": self.head.parameters(), "lr": self.settings.lr},
                {"params": self.features.parameters(), "lr": self.settings.fine_tune_lr},
            ]
        )

    def _loss(self, batch: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        pictures, labels = batch
        logits = self(pictures)
        accuracy = (logits.argmax(1) == labels).float().mean()
        return nn.functional.cross_entropy(logits, labels), accuracy

    def _measure(self, name: str, batch: list[torch.Tensor]) -> None:
        loss, accuracy = self._loss(batch)
        values = {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        self.log_dict(values, batch_size=len(batch[1]), sync_dist=True)


class EpochTimes(lightning.Callback):
    """Records the seconds of each complete epoch, with its validation and its checkpoint."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_train_epoch_start(self, *_: Any, **__: Any) -> None:
        """Record the previous epoch and start timing this one."""
        self._end()
        self._began = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Record the last epoch."""
        self._end()

    def _end(self) -> None:
        if self._began:
            self.seconds.append(time.perf_counter() - self._began)


# The data


def pictures(settings: Settings, split: str) -> torchvision.datasets.ImageFolder:
    """Return a split of the data set; training pictures are mirrored and cropped at random."""
    size = settings.size
    varied = [transforms.RandomHorizontalFlip(), transforms.RandomCrop(size, padding=size // 16)]
    steps = [
        transforms.Resize(size),
        transforms.CenterCrop(size),
        *(varied if split == "training" else []),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, DEVIATION),
    ]
    folder = settings.folder() / split
    return torchvision.datasets.ImageFolder(str(folder), transforms.Compose(steps))


def loader(settings: Settings, split: str) -> DataLoader:
    """Return a split in batches; the training split in a random order."""
    return in_batches(settings, pictures(settings, split), shuffle=split == "training")


def in_batches(
    settings: Settings,
    found: torchvision.datasets.ImageFolder,
    sampler: Sampler[int] | None = None,
    *,
    shuffle: bool = False,
) -> DataLoader:
    """Return pictures in batches, in the sampler's order, a random one, or their own."""
    return DataLoader(
        found,
        batch_size=settings.batch_size,
        sampler=sampler,
        shuffle=shuffle,
        num_workers=settings.loaders,
        pin_memory=torch.cuda.is_available(),
    )


@dataclass(frozen=True)
class Position:
    """How far training has come: complete epochs, and all workers' pictures of the next one."""

    epoch: int = 0
    pictures: int = 0
    steps: int = 0
    """Steps of the optimizer since the training began."""

    def as_dict(self) -> dict[str, int]:
        """Return the position for a JSON file or a checkpoint."""
        return asdict(self)


class RestSampler(Sampler[int]):
    """One worker's share of the pictures of an epoch that no worker has seen yet.

    An epoch's order depends only on the seed and the epoch's number. So training that stopped
    after some pictures resumes with the next one, with any number of workers.
    """

    def __init__(
        self, total: int, *, seed: int, position: Position, rank: int = 0, world: int = 1
    ) -> None:
        self._total, self._seed = total, seed
        self._position, self._rank, self._world = position, rank, world

    def __len__(self) -> int:
        return (self._total - self._position.pictures) // self._world

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed * 100_003 + self._position.epoch)
        order = torch.randperm(self._total, generator=generator)[self._position.pictures :]
        # The same number for each worker: one that ended early would wait forever for the others.
        share = order[self._rank :: self._world][: len(self)]
        return iter(share.tolist())
