"""The machines of a stack: what their disks are made from, and what runs on them."""

from dataclasses import dataclass
from typing import Literal

from sunspot.catalog import VmSize
from sunspot.errors import UsageError
from sunspot.ray import images, resources
from sunspot.ray.resources import NodeResources
from sunspot.spec import RayNodeConfig, size_for
from sunspot.stack import Stack
from sunspot.targets.azure import vm_images
from sunspot.targets.azure.images import ON_EVERY_HEAD, Copy, copies_of
from sunspot.targets.azure.vm_images import VmImage

Driver = Literal["none", "nvidia", "rocm"]

# The disk of Canonical's Ubuntu 24.04 image, and the GiB that trusted launch reserves.
OS_IMAGE_GIB = 30
TRUSTED_LAUNCH_GIB = 1
# A disk that also holds container images: images with CUDA unpack to tens of GB.
DISK_GIB = 64
GPU_DISK_GIB = 128


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One kind of machine: its size and what follows from it.

    `ephemeral_disk` says that the OS disk is on the temporary disk; otherwise it is a Premium disk
    of `disk_gib`. `vm_image` is what the disk is made from, None for what fits the driver.
    """

    size: VmSize
    image: str | None
    driver: Driver
    secure_boot: bool
    ephemeral_disk: bool
    disk_gib: int
    vm_image: VmImage | None = None

    @property
    def system_gib(self) -> int:
        """What the system takes of the temporary disk, if the OS disk is there."""
        return _system_gib(self.vm_image)

    @property
    def resources(self) -> NodeResources:
        """What Ray counts on it: a node on Azure is a whole machine of its size."""
        return resources.of_size(self.size)


def of(stack: Stack, node: RayNodeConfig, *, keeps_disk: bool) -> Machine:
    """The machine of a stack's node; with `keeps_disk` it may be stopped and started again.

    Raises:
        UsageError: no size fits, or the stack's VM image is wrong.
    """
    size = size_for(node)
    driver, vm_image = _driver(size), vm_image_of(stack)
    return Machine(
        size=size,
        image=images.reference(stack, gpus=bool(size.gpu_count)),
        driver=driver,
        # Ubuntu's NVIDIA modules are signed by Canonical; AMD's are built on the machine, unsigned.
        secure_boot=driver != "rocm",
        # A machine with an ephemeral disk cannot be stopped and started again.
        ephemeral_disk=not keeps_disk and size.temp_gib >= _system_gib(vm_image),
        disk_gib=GPU_DISK_GIB if size.gpu_count else DISK_GIB,
        vm_image=vm_image,
    )


def vm_image_of(stack: Stack) -> VmImage | None:
    """The VM image that the stack names; None if it names none.

    Raises:
        UsageError: it is not one, or does not fit the stack.
    """
    if stack.image.vm_image is None:
        return None
    try:
        image = vm_images.parse(stack.image.vm_image)
    except UsageError as error:
        raise UsageError(f"{vm_images.KEY}: {error}") from error
    vm_images.check(
        image,
        stack=stack.name,
        ray_version=stack.cluster.ray_version.removeprefix("v"),
        amd=any(size_for(node).has_amd_gpus for node in _nodes(stack)),
    )
    return image


def copies(stack: Stack) -> tuple[Copy, ...]:
    """The images that the stack's registry gets copies of.

    Raises:
        UsageError: an image cannot have the name that the stack gives it.
    """
    if not stack.image.mirror:
        return ()
    references = [
        images.reference(stack, gpus=bool(size_for(node).gpu_count)) for node in _nodes(stack)
    ]
    try:
        return copies_of([*filter(None, references), *ON_EVERY_HEAD])
    except UsageError as error:
        raise UsageError(f"config > sunspot:image > reference: {error}") from error


def _nodes(stack: Stack) -> list[RayNodeConfig]:
    groups = stack.cluster.scaling_groups
    return [stack.cluster.head_node, *(group.worker_nodes for group in groups)]


def _system_gib(vm_image: VmImage | None) -> int:
    return TRUSTED_LAUNCH_GIB + (OS_IMAGE_GIB if vm_image is None else vm_images.DISK_GIB)


def _driver(size: VmSize) -> Driver:
    if not size.gpu_count:
        return "none"
    return "rocm" if size.has_amd_gpus else "nvidia"
