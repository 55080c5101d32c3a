"""The commands that prepare a VM image's disk: the boot's own scripts, called by bake.sh."""

from __future__ import annotations

import base64
import gzip
import io
import json
import shlex
import tarfile
from collections.abc import Sequence
from pathlib import Path

from cloud_init.render import FILES, IMDS_URL
from sunspot.targets.azure.images import ON_EVERY_HEAD
from sunspot.targets.azure.vm_images import BakedDriver

LIBRARY = "usr/local/lib/sunspot"
BAKE = Path(__file__).parent / "baking_files" / "bake.sh"
# Where apt and needrestart are told how our nodes do it.
SETTINGS = ("etc/apt/apt.conf.d/52sunspot", "etc/needrestart/conf.d/sunspot.conf")


def commands(*, ray_version: str, driver: BakedDriver, images: Sequence[str]) -> list[str]:
    """Command lines for a fresh Ubuntu, whose user may use sudo; the same for the same values.

    Args:
        ray_version: the version of Ray, for /etc/sunspot/baked.json.
        driver: the GPU driver to install.
        images: the container images to pull, which are public.
    """
    baked = {"ray": ray_version, "driver": driver, "images": list(images)}
    environment = {
        "SUNSPOT_BAKED": json.dumps(baked, separators=(",", ":")),
        "SUNSPOT_DRIVER": driver,
        "SUNSPOT_IMAGES": " ".join((*images, *ON_EVERY_HEAD)),
        # docker.sh and image.sh read these. The nodes' own user does not exist yet.
        "SUNSPOT_ADMIN_USER": "root",
        "SUNSPOT_REGISTRY": "",
        "SUNSPOT_IMDS_URL": IMDS_URL,
    }
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    archive = base64.b64encode(_archive()).decode()
    return [
        f"echo {archive} | base64 --decode | sudo tar --extract --gzip --directory=/",
        f"sudo env {settings} /{LIBRARY}/{BAKE.name}",
    ]


def _archive() -> bytes:
    """The scripts and settings as a tar; without times, so that the bytes stay the same."""
    sources = {f"{LIBRARY}/{path.name}": path for path in sorted((FILES / LIBRARY).glob("*.sh"))}
    sources[f"{LIBRARY}/{BAKE.name}"] = BAKE
    sources |= {path: FILES / path for path in SETTINGS}
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as compressed,
        tarfile.open(mode="w", fileobj=compressed) as tar,
    ):
        for path, source in sources.items():
            content = source.read_bytes()
            member = tarfile.TarInfo(path)
            member.size = len(content)
            member.mode = 0o755 if source.suffix == ".sh" else 0o644
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()
