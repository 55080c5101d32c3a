"""The container image of a stack's nodes, for targets whose nodes are containers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sunspot.errors import UsageError
from sunspot.stack import Stack

# The Python of Ray's own images, and of Sunspot's.
IMAGE_PYTHON = "py311"


@dataclass(frozen=True, kw_only=True)
class ImageBuild:
    """An existing folder, and the Dockerfile in it."""

    context: Path
    dockerfile: Path


def build(stack: Stack, folder: Path) -> ImageBuild | None:
    """What the image is built from; None if it is a reference.

    Args:
        stack: the stack.
        folder: the project's folder, to which the context is relative.

    Raises:
        UsageError: the context or its Dockerfile does not exist.
    """
    image = stack.image
    if image.context is None:
        return None
    context = folder / Path(image.context).expanduser()
    if not context.is_dir():
        raise UsageError(f"config > sunspot:image > context: there is no folder {context}")
    dockerfile = context / image.dockerfile
    if not dockerfile.is_file():
        raise UsageError(f"config > sunspot:image > dockerfile: there is no file {dockerfile}")
    return ImageBuild(context=context, dockerfile=dockerfile)


def reference(stack: Stack, *, gpus: bool, arm: bool = False) -> str | None:
    """The image of the nodes with, or without, GPUs; None if it is yet to be built.

    Without `sunspot:image` it is Ray's own, which has CUDA's libraries for nodes with GPUs. Its
    tags without an architecture are x86's only (ray-project/ray#31861).
    """
    if stack.image.context is not None:
        return None
    if stack.image.reference is not None:
        return stack.image.reference
    version = stack.cluster.ray_version.removeprefix("v")
    suffix = ("-gpu" if gpus else "") + ("-aarch64" if arm else "")
    return f"rayproject/ray:{version}-{IMAGE_PYTHON}{suffix}"
