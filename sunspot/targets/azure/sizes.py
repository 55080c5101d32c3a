"""Which VM sizes the nodes of a cluster may have on Azure, where, and how many of them."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from sunspot.catalog import VmSize, regions
from sunspot.errors import UsageError
from sunspot.spec import size_for
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.azure.settings import AzureSettings

WITHOUT_INFINIBAND = "Standard_NC80adis_H100_v5"
WITH_DATA_CENTRE_GPU = "Standard_NC4as_T4_v3"

# Azure, "Orchestration modes for Virtual Machine Scale Sets": maximum instance count, Flexible.
MAX_MACHINES = 1000


# Azure, "Orchestration modes for Virtual Machine Scale Sets": InfiniBand.
_ONE_SCALE_SET = (
    "which links only machines of one Uniform scale set, and Sunspot does not create those yet"
)


def check_sizes(stack: Stack, *, infiniband: str = _ONE_SCALE_SET) -> None:
    """Checks that Azure's virtual machines can be of these sizes.

    Args:
        stack: the stack.
        infiniband: why none can have InfiniBand, for the message.

    Raises:
        UsageError: the message names every node whose size cannot be used, by its key.
    """
    own_image = stack.image.reference is not None or stack.image.context is not None
    problems = [
        f"config > sunspot:cluster > {key}: {size.name} {problem}"
        for key, size in _nodes(stack)
        if (problem := _problem(size, own_image=own_image, infiniband=infiniband)) is not None
    ]
    if problems:
        raise UsageError("\n  ".join(problems))


def check_regions(stack: Stack, others: Mapping[str, str] = MappingProxyType({})) -> None:
    """Checks that the stack's region has the sizes of its nodes, and `others` by what needs them.

    A stack without a region, or with `check_region: false`, passes.

    Raises:
        UsageError: the message names every size that the region is known not to have.
    """
    azure = AzureSettings.of(stack)
    if azure.location is None or not azure.check_region:
        return
    needed_by: dict[str, list[str]] = {size_for(stack.cluster.head_node).name: [HEAD]}
    nodes = {
        group.name: size_for(group.worker_nodes).name for group in stack.cluster.scaling_groups
    }
    for name, size in (*nodes.items(), *others.items()):
        needed_by.setdefault(size, []).append(name)
    problems = [
        _not_sold(size, who, azure.location)
        for size, who in needed_by.items()
        if regions.is_sold(size, azure.location) is False
    ]
    if problems:
        raise UsageError("\n  ".join(problems))


def check_counts(stack: Stack) -> None:
    """Checks that a scale set can have the workers of each group.

    Raises:
        UsageError: the message names every group that may have too many.
    """
    problems = [
        f"config > sunspot:cluster > scaling_groups[{index}] > max_workers: {group.max_workers} is "
        f"more than the {MAX_MACHINES} that a scale set can have: give less, or add a group"
        for index, group in enumerate(stack.cluster.scaling_groups)
        if group.max_workers > MAX_MACHINES
    ]
    if problems:
        raise UsageError("\n  ".join(problems))


def unlisted(sizes: Iterable[VmSize], region: str) -> list[str]:
    """A warning for each of the sizes that the catalogue does not have."""
    return [
        f"Sunspot's catalogue does not have {size.name}: it is taken as the stack file describes "
        f"it ({str(size).partition(': ')[2]}), {_guesses(size)}. Ask Azure: "
        f"`az vm list-skus --location {region} --size {size.name} -o table`."
        for size in sizes
        if not size.listed
    ]


def _guesses(size: VmSize) -> str:
    maker = "AMD" if size.has_amd_gpus else "NVIDIA"
    gpus = f" and, by its name, with GPUs of {maker}" if size.gpu_count else ""
    return f"without a temporary disk{gpus}"


def _nodes(stack: Stack) -> Iterator[tuple[str, VmSize]]:
    yield "head_node", size_for(stack.cluster.head_node)
    for index, group in enumerate(stack.cluster.scaling_groups):
        yield f"scaling_groups[{index}] > worker_nodes", size_for(group.worker_nodes)


def _problem(size: VmSize, *, own_image: bool, infiniband: str) -> str | None:
    if size.is_arm:
        return (
            "has Arm processors, and the machines' image is for x64: choose a size without the "
            "letter p after its vCPUs"
        )
    if size.infiniband:
        return (
            f"has InfiniBand, {infiniband}: choose a size without it, such as {WITHOUT_INFINIBAND}"
        )
    if size.needs_grid_driver:
        return (
            "has (a share of) a GPU that needs NVIDIA's GRID driver, and Sunspot installs the data "
            f"centre's: choose a size with another GPU, such as {WITH_DATA_CENTRE_GPU}"
        )
    if size.has_amd_gpus and not own_image:
        return (
            "has AMD GPUs, and Ray's own images support only NVIDIA's: build an image for ROCm "
            "(`make image KIND=rocm`, see docker/README.md), push it, and name it in "
            "sunspot:image > reference"
        )
    return None


def _not_sold(size: str, needed_by: list[str], region: str) -> str:
    return (
        f"config > azure-native:location: {region} has no {size} (for {', '.join(needed_by)}), by "
        f"Azure's prices of {regions.date()}. Choose one of the regions that have it "
        f"({', '.join(regions.sold_in(size))}), or another size. If Azure has it there by "
        f"now (`az vm list-skus --location {region} --size {size} -o table`), set "
        "sunspot:check_region: false"
    )
