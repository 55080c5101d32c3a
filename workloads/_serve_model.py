"""The food model as serve.py uses it: pictures in, classes out."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import _food
import images
import lightning
import torch
from PIL import Image
from torchvision import transforms


class Model:
    """The food model, on a GPU if the replica has one."""

    def __init__(
        self, *, size: int, width: float, weights: str | None, cpus: float, gpu: bool
    ) -> None:
        settings = _food.Settings(size=size, width=width, weights=weights)
        lightning.seed_everything(settings.seed, verbose=False)  # the same weights everywhere
        torch.set_num_threads(max(1, int(cpus)))
        self._device = torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")
        self._model = _food.FoodClassifier(settings).eval().to(self._device)
        self._fit = transforms.Compose(
            [
                transforms.Resize(size),
                transforms.CenterCrop(size),
                transforms.ToTensor(),
                transforms.Normalize(_food.MEAN, _food.DEVIATION),
            ]
        )

    def decode(self, body: bytes) -> Any:
        """Return a picture's pixels.

        Raises:
            ValueError: If it is not a picture.
        """
        try:
            with Image.open(BytesIO(body)) as picture:
                return self._fit(picture.convert("RGB"))
        except (OSError, Image.DecompressionBombError) as error:
            raise ValueError(f"not a picture: {error}") from error

    def classify(self, pictures: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the most probable class of each picture."""
        with torch.inference_mode():
            logits = self._model(torch.stack(list(pictures)).to(self._device))
            best, index = logits.softmax(1).max(1)
        found = zip(index.tolist(), best.tolist(), strict=True)
        return [{"class": images.CLASSES[at], "probability": share} for at, share in found]
