"""VM images other than Azure's plain ones: how a stack names one, and what a baked one's name says.

`sunspot bake` writes what an image was made for into its name, so that a plan can be checked
without a login: /.../images/sunspot-STACK-ray-2.60.0-nvidia/versions/2026.1122.905, where the
version is the time (UTC) at which it was made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sunspot.errors import UsageError

KEY = "config > sunspot:image > vm_image"

# What `sunspot bake` can put on the disk; AMD's driver is only in images of Microsoft's.
BakedDriver = Literal["none", "nvidia"]

# Ubuntu 24.04 of Canonical, generation 2: H100 and A100 sizes support nothing else.
UBUNTU = ("Canonical", "ubuntu-24_04-lts", "server")

# Of a baked image, and the most that an image of a user's own may have: the smallest disk that a
# node gets (machine.DISK_GIB), since Azure refuses a disk that is smaller than its image.
DISK_GIB = 64

# Ubuntu's own image is replaced every two or three weeks; unattended upgrades install what a VM's
# image lacks, while Ray works.
MAX_AGE_DAYS = 60

_GALLERY = re.compile(
    r"(?P<definition_id>/subscriptions/[^/\s]+/resourceGroups/[^/\s]+/providers/Microsoft\.Compute"
    r"/galleries/[^/\s]+/images/(?P<definition>[^/\s]+))"
    r"(/versions/(?P<version>latest|\d[\d.]*))?",
    re.IGNORECASE,
)
_MANAGED = re.compile(
    r"/subscriptions/[^/\s]+/resourceGroups/[^/\s]+/providers/Microsoft\.Compute/images/[^/\s]+",
    re.IGNORECASE,
)
_MARKETPLACE = re.compile(r"[\w.-]+(:[\w.-]+){3}")
# The words that the documentation and the messages put in the place of a user's own.
_PLACEHOLDER = re.compile(r"/(ID|GROUP|GALLERY|IMAGE)(?=/|$)")
_BAKED = re.compile(r"sunspot-(?P<stack>.+)-ray-(?P<ray>[0-9][^-]*)-(?P<driver>none|nvidia)")


@dataclass(frozen=True, kw_only=True)
class Baked:
    """What a baked image was made for, and when; `made` is None without a version in its id."""

    stack: str
    ray_version: str
    driver: BakedDriver
    made: datetime | None

    @property
    def definition(self) -> str:
        """The name of its image definition in the gallery."""
        return f"sunspot-{self.stack}-ray-{self.ray_version}-{self.driver}"

    def stale(self, now: datetime) -> str | None:
        """A warning about its age; None while it is fresh, or where its age is not known."""
        if self.made is None or (days := (now - self.made).days) <= MAX_AGE_DAYS:
            return None
        return (
            f"The VM image was baked {days} days ago, and lacks the security updates since: run "
            f"`sunspot bake {self.stack}` (more than {MAX_AGE_DAYS} days are too old)."
        )


@dataclass(frozen=True, kw_only=True)
class VmImage:
    """A VM image as Azure's API takes it: by an id, or by four words of the marketplace.

    `definition_id` is the id without a version, None for the marketplace; `baked` is None for an
    image that `sunspot bake` did not make.
    """

    text: str
    definition_id: str | None = None
    baked: Baked | None = None

    @property
    def marketplace(self) -> tuple[str, str, str, str] | None:
        """Publisher, offer, SKU and version; None for an image of a gallery."""
        if self.definition_id is not None:
            return None
        publisher, offer, sku, version = self.text.split(":")
        return publisher, offer, sku, version


def parse(text: str) -> VmImage:
    """The image that a stack file names.

    Raises:
        UsageError: it is not the id of a gallery's image, nor a name of the marketplace.
    """
    if (found := _GALLERY.fullmatch(text)) is not None:
        if (placeholder := _PLACEHOLDER.search(text)) is not None:
            raise UsageError(
                f"{text!r} still says {placeholder[1]} where a name of yours belongs: give the "
                "image's id, as `sunspot bake` or `az sig image-version show` prints it"
            )
        baked = _baked(found["definition"], found["version"])
        return VmImage(text=text, definition_id=found["definition_id"], baked=baked)
    if _MARKETPLACE.fullmatch(text):
        return VmImage(text=text)
    if _MANAGED.fullmatch(text):
        # Microsoft's page "Trusted Launch for Azure virtual machines", unsupported features.
        raise UsageError(
            f"{text!r} is a managed image, which Azure does not start with trusted launch: copy it "
            "to an Azure Compute Gallery and give that image's id"
        )
    raise UsageError(
        f"{text!r} is not a VM image: write /subscriptions/ID/resourceGroups/GROUP/providers/"
        "Microsoft.Compute/galleries/GALLERY/images/IMAGE/versions/VERSION, as `sunspot bake` "
        "prints it, or PUBLISHER:OFFER:SKU:VERSION"
    )


def version_at(moment: datetime) -> str:
    """The version of an image that is made then; a later one is a higher one.

    Azure's are three integers of 32 bits ("Store and share images in an Azure Compute Gallery").
    """
    at = moment.astimezone(UTC)
    return f"{at.year}.{at.month * 100 + at.day}.{at.hour * 100 + at.minute}"


def check(image: VmImage, *, stack: str, ray_version: str, amd: bool) -> None:
    """Checks that a baked image fits the stack; one of a user's own is not looked into.

    Args:
        image: the image.
        stack: the stack's name, for the command that bakes a fitting one.
        ray_version: the stack's version of Ray.
        amd: whether the stack has AMD GPUs.

    Raises:
        UsageError: it was baked for another version of Ray, or lacks AMD's driver.
    """
    baked = image.baked
    if baked is None:
        return
    if baked.ray_version != ray_version:
        raise UsageError(
            f"{KEY}: it was baked for Ray {baked.ray_version}, and the stack has Ray "
            f"{ray_version}: run `sunspot bake {stack}` and name what it prints"
        )
    if amd:
        raise UsageError(
            f"{KEY}: a baked image has no driver for AMD GPUs: leave vm_image out, or name an "
            "image with ROCm, such as microsoft-dsvm:ubuntu-hpc:2404-rocm:latest"
        )


def _baked(definition: str, version: str | None) -> Baked | None:
    found = _BAKED.fullmatch(definition)
    if found is None:
        return None
    driver: BakedDriver = "nvidia" if found["driver"] == "nvidia" else "none"
    return Baked(stack=found["stack"], ray_version=found["ray"], driver=driver, made=_made(version))


def _made(version: str | None) -> datetime | None:
    try:
        year, day, minute = (int(part) for part in (version or "").split("."))
        return datetime(year, day // 100, day % 100, minute // 100, minute % 100, tzinfo=UTC)
    except ValueError:  # none, "latest", or a version of a user's own
        return None
