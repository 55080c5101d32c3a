"""The nodes' image in a registry's folder, and on a disk: the stand-in for Ray's image.

Sunspot is not in it: nodes bring what they need of it along.

    PYTHONPATH=tests/real python tests/real/vm/image.py     # makes it ahead of the tests, as root
"""

import shutil
from pathlib import Path

from machines import CACHE, base_image
from machines.docker import engine
from machines.registry import registry

# As the nodes know it.
REGISTRY = "sunspotdev.azurecr.io"
# Where disk.sh puts Docker's data.
DATA_ROOT = "var/lib/sunspot/docker"
BAKED = "etc/sunspot/baked.json"
# Of an engine's data, what an image is made of. The rest is of the engine's own version.
KEPT = ("image", "overlay2")


def published() -> tuple[Path, str]:
    """The registry's folder, and the image's NAME@DIGEST in it; made where it is not there yet."""
    base = base_image.base_image()
    with registry(base.registry_storage) as server:
        if not server.has(base_image.NAME):
            with engine(CACHE / "engine") as docker:
                base_image.publish(docker, server, base)
        digest = server.digest(base_image.NAME)
    return base.registry_storage, f"{base_image.NAME.partition(':')[0]}@{digest}"


def add_to(root: Path, storage: Path, reference: str) -> None:
    """Pulls NAME@DIGEST from the registry's folder into the system at `root`.

    Docker knows it there as the nodes do, by `REGISTRY`.
    """
    data = root / DATA_ROOT
    pulled = root.parent / "docker"
    with registry(storage) as server, engine(pulled) as docker:
        docker("pull", "--quiet", server.reference(reference))
    data.mkdir(parents=True)
    # What bake.sh leaves, by which disk.sh knows where the image is.
    (root / "etc/sunspot").mkdir(parents=True)
    (root / BAKED).write_text("{}\n")
    for name in KEPT:
        (pulled / name).rename(data / name)
    shutil.rmtree(pulled)
    names = data / "image/overlay2/repositories.json"
    names.write_text(names.read_text().replace(server.address, REGISTRY))


if __name__ == "__main__":
    print(published()[1])
