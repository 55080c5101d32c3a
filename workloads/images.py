"""Generate the pictures for the training workloads, with the same folders as Food-11.

Food-11 is a folder of photos: training, validation and evaluation, each with class_00 to
class_10. This generates such a folder: each class has a colour and a pattern of its own, blurred by
noise, so that a small network learns it in a minute, but not in its first steps. The same arguments
give the same bytes. If FOOD11_DATA_DIR is set, the real data set is used instead.
"""

import argparse
import colorsys
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn


def without(error: ImportError) -> NoReturn:
    """End the program with exit code 2 and what to install."""
    print(
        f"error: this needs torch, Lightning and Pillow ({error}): pip install 'ray[train]' torch "
        "torchvision lightning pillow, or in Sunspot's folder: make setup-train",
        file=sys.stderr,
    )
    sys.exit(2)


try:
    import numpy as np
    from PIL import Image
except ImportError as error:
    without(error)

CLASSES = tuple(f"class_{number:02d}" for number in range(11))
SPLITS = ("training", "validation", "evaluation")
SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
REAL_DATA = "FOOD11_DATA_DIR"
"""The environment variable that names the folder of the real data set."""

SIZE = 32  # side in pixels; the photos of Food-11 have some 400
TRAINING, VALIDATION, EVALUATION = 60, 12, 20  # pictures per class; Food-11 has about 900, 310, 300


class DataError(ValueError):
    """The data set is missing or incomplete; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is generated: the side in pixels, pictures per class in each split, and the seed."""

    size: int = SIZE
    training: int = TRAINING
    validation: int = VALIDATION
    evaluation: int = EVALUATION
    seed: int = 11

    def pictures(self, split: str) -> int:
        """Return the number of pictures that each class has in a split."""
        return int(getattr(self, split))

    def name(self) -> str:
        """Return a folder name that no other shape has."""
        return "-".join(str(value) for value in asdict(self).values())


# Finding or generating it


def asked_for(chosen: str | Path | None) -> str | None:
    """Return the folder that the command line or FOOD11_DATA_DIR names; None to generate one.

    Called in the driver, because nodes have neither its environment nor its working directory.
    """
    named = chosen or os.environ.get(REAL_DATA)
    return str(Path(named).absolute()) if named else None


def data_folder(chosen: str | Path | None = None, shape: Shape | None = None) -> Path:
    """Return a complete data set: ``chosen``, else FOOD11_DATA_DIR, else a generated one.

    Raises:
        DataError: If the folder is missing, or a class of a split is missing or empty.
    """
    named = asked_for(chosen)
    if not named:
        return ensure_dataset(shape=shape)
    folder = Path(named)
    check_dataset(folder)
    return folder


def ensure_dataset(path: str | Path | None = None, shape: Shape | None = None) -> Path:
    """Return the folder of the generated data set, and generate it if it does not exist.

    Many processes may call this at once: the folder appears complete or not at all.

    Args:
        path: The folder; by default one of this user's in the temporary directory.
        shape: What to generate; by default Shape().

    Raises:
        DataError: If ``path`` holds something else.
    """
    shape = shape or Shape()
    folder = Path(path).absolute() if path else _cache() / shape.name()
    if folder.is_dir() and any(folder.iterdir()):
        if _shape_of(folder) != asdict(shape):
            raise DataError(f"{folder} holds something else; name a folder that does not exist")
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _write(made, shape)
        made.chmod(0o755)
        made.rename(folder)
    except OSError:
        # If another process was first, the same bytes are already there.
        if _shape_of(folder) != asdict(shape):
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def check_dataset(folder: Path) -> None:
    """Check that every class of every split has a picture in it.

    Raises:
        DataError: If the folder, a split or a class is missing, or a class is empty.
    """
    hint = (
        f"Name a Food-11 folder with --data or {REAL_DATA}, or leave both out for a generated one"
    )
    if not folder.is_dir():
        raise DataError(f"the data folder {folder} does not exist. {hint}")
    for split in SPLITS:
        for name in CLASSES:
            place = folder / split / name
            if not place.is_dir():
                raise DataError(f"{folder} has no folder {split}/{name}. {hint}")
            if not any(file.suffix.lower() in SUFFIXES for file in place.iterdir()):
                kinds = ", ".join(sorted(SUFFIXES))
                raise DataError(f"the class folder {place} has no picture in it ({kinds})")


def _cache() -> Path:
    return Path(tempfile.gettempdir()) / f"sunspot-images-{os.getuid()}"


def _shape_of(folder: Path) -> object:
    try:
        return json.loads((folder / "images.json").read_text())
    except (OSError, ValueError):
        return None


# Drawing it


def _write(folder: Path, shape: Shape) -> None:
    for split in SPLITS:
        for number, name in enumerate(CLASSES):
            place = folder / split / name
            place.mkdir(parents=True)
            for index, pixels in enumerate(_pictures(shape, split, number)):
                Image.fromarray(pixels).save(place / f"{index:04d}.jpg", quality=90)
    (folder / "images.json").write_text(json.dumps(asdict(shape)) + "\n")


def _pictures(shape: Shape, split: str, number: int) -> Iterator[np.ndarray]:
    # One generator per class and split, so more pictures of one do not change the others.
    random = np.random.default_rng([shape.seed, SPLITS.index(split), number])
    for _ in range(shape.pictures(split)):
        yield draw(number, shape.size, random)


def draw(number: int, size: int, random: np.random.Generator) -> np.ndarray:
    """Return one picture of a class: stripes of its colour and direction on a grey plate."""
    hue = (number / len(CLASSES) + random.normal(0, 0.02)) % 1.0
    colour = np.array(colorsys.hsv_to_rgb(hue, 0.5 + 0.3 * random.random(), 0.9))
    angle = np.pi * (number * 4 % len(CLASSES)) / len(CLASSES) + random.normal(0, 0.1)
    waves = 2 + number % 3 + random.random()
    rows, columns = np.mgrid[0:size, 0:size] / size
    along = rows * np.sin(angle) + columns * np.cos(angle)
    stripes = 0.5 + 0.5 * np.sin(2 * np.pi * (waves * along + random.random()))
    middle = 0.35 + 0.3 * random.random(2)
    plate = np.hypot(rows - middle[0], columns - middle[1]) < 0.3 + 0.15 * random.random()
    strength = (stripes * (0.35 + 0.65 * plate))[..., None]
    grey = 0.3 + 0.4 * random.random()
    pixels = strength * colour + (1 - strength) * grey + random.normal(0, 0.1, (size, size, 3))
    return (pixels.clip(0, 1) * 255).astype(np.uint8)


# The command


def positive(text: str) -> int:
    """Return a whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def count(folder: Path) -> dict[str, int]:
    """Return the number of pictures in each split."""
    return {
        split: sum(file.suffix.lower() in SUFFIXES for file in (folder / split).rglob("*"))
        for split in SPLITS
    }


def main(argv: list[str] | None = None) -> None:
    """Generate the data set that the command line asks for, or check the one that it names."""
    made = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        epilog="example:\n  python workloads/images.py food --size 64 --training 100",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "folder", nargs="?", help="where to write (default: in the temporary directory)"
    )
    made.add_argument(
        "--check", action="store_true", help="only check the folder, do not generate anything"
    )
    made.add_argument(
        "--size",
        type=positive,
        default=SIZE,
        metavar="N",
        help="size in pixels (default: %(default)s)",
    )
    for split, number in zip(SPLITS, (TRAINING, VALIDATION, EVALUATION), strict=True):
        made.add_argument(
            f"--{split}",
            type=positive,
            default=number,
            metavar="N",
            help="pictures per class (default: %(default)s)",
        )
    made.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON")
    args = made.parse_args(argv)
    shape = Shape(
        size=args.size,
        training=args.training,
        validation=args.validation,
        evaluation=args.evaluation,
    )
    try:
        if args.check or (not args.folder and os.environ.get(REAL_DATA)):
            folder = data_folder(args.folder, shape)
        else:
            folder = ensure_dataset(args.folder, shape)
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    found = count(folder)
    print(f"{folder}: {', '.join(f'{number:,} {split}' for split, number in found.items())}")
    if args.out:
        args.out.write_text(json.dumps({"folder": str(folder), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
