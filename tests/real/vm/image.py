"""The nodes' image in a registry's folder, and on a disk: the stand-in for Ray's and a layer.

Sunspot is not in it: nodes bring what they need of it along.

    PYTHONPATH=tests/real python tests/real/vm/image.py     # makes it ahead of the tests, as root
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from machines import CACHE, base_image
from machines.debian import MAKING_S
from machines.docker import Docker, engine
from machines.kept import key
from machines.registry import Registry, registry

LAYER = "COPY --from={base} /etc/debian_version /home/ray/the-base-was"
NAME = f"a-users-own:{key(LAYER)}"
# As the nodes know it.
REGISTRY = "sunspotdev.azurecr.io"
# Where disk.sh puts Docker's data.
DATA_ROOT = "var/lib/sunspot/docker"
BAKED = "etc/sunspot/baked.json"
# Of an engine's data, what an image is made of. The rest is of the engine's own version.
KEPT = ("image", "overlay2")


@dataclass(frozen=True, kw_only=True)
class Images:
    """The registry's folder, and NAME@DIGEST in it: of Ray's image, and of the nodes' on that."""

    storage: Path
    base: str
    node: str


def published() -> Images:
    """Both images; made where they are not there yet."""
    base = base_image.base_image()
    with registry(base.registry_storage) as server:
        if not (server.has(base_image.NAME) and server.has(NAME)):
            with engine(CACHE / "engine") as docker:
                base_image.publish(docker, server, base)
                _publish(docker, server, base)
        return Images(
            storage=base.registry_storage,
            base=_pinned(server, base_image.NAME),
            node=_pinned(server, NAME),
        )


def _publish(docker: Docker, server: Registry, base: base_image.BaseImage) -> None:
    reference, loaded = server.reference(NAME), base_image.load(docker, base)
    layer = LAYER.format(base=loaded)
    docker("build", "--quiet", "--tag", reference, "-", stdin=f"FROM {loaded}\n{layer}\n")
    docker("push", "--quiet", reference, timeout=MAKING_S)
    docker("rmi", reference)


def _pinned(server: Registry, name: str) -> str:
    return f"{name.partition(':')[0]}@{server.digest(name)}"


def add_to(root: Path, images: Images, reference: str) -> None:
    """Pulls NAME@DIGEST into the system at `root`, in place of what was pulled before.

    Docker knows it there as the nodes do, by `REGISTRY`.
    """
    data = root / DATA_ROOT
    if data.exists():
        shutil.rmtree(data)
    pulled = root.parent / "docker"
    with registry(images.storage) as server, engine(pulled) as docker:
        docker("pull", "--quiet", server.reference(reference))
    data.mkdir(parents=True)
    for name in KEPT:
        (pulled / name).rename(data / name)
    shutil.rmtree(pulled)
    names = data / "image/overlay2/repositories.json"
    names.write_text(names.read_text().replace(server.address, REGISTRY))


def mark_as_baked(root: Path) -> None:
    """Leaves what bake.sh leaves, by which disk.sh knows where the image is."""
    (root / BAKED).parent.mkdir(parents=True)
    (root / BAKED).write_text("{}\n")


if __name__ == "__main__":
    print(published().node)
