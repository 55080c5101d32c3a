"""What a user should know before a planned cluster is created: warnings, notes, quota."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network

from sunspot.catalog import regions as catalog_regions
from sunspot.ray import ports
from sunspot.spec_values import HEAD
from sunspot.targets.azure import images
from sunspot.targets.azure.access import no_way_in
from sunspot.targets.azure.machine import Driver, Machine
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.settings import DEFAULT_KEY_FILE
from sunspot.targets.azure.sizes import unlisted
from sunspot.targets.azure.tree import short

# All sizes count against these two, besides the quota of their family.
ALL_ON_DEMAND = "Total Regional vCPUs"
ALL_SPOT = "Total Regional Spot vCPUs"

DRIVERS: dict[Driver, str] = {
    "nvidia": "NVIDIA driver from Ubuntu's own signed modules; secure boot stays on",
    "rocm": "AMD driver from the VM's own image, unsigned; secure boot is off",
}


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The vCPUs that a subscription needs in the stack's region, with all groups full.

    `name` is spelt as in Azure's usage list, or says whose family it is; `needed_by` are the node
    types that count.
    """

    name: str
    vcpus: int
    needed_by: tuple[str, ...]


def quotas(plan: AzurePlan) -> list[Quota]:
    """The quotas that the plan uses, the families' first."""
    counted: dict[str, list[tuple[str, int]]] = {}
    on_demand = [(HEAD, plan.head, 1)]
    on_demand += [(p.node_type, p.machine, p.maximum) for p in plan.pools if p.market != "spot"]
    for name, machine, count in on_demand:
        entry = name, machine.size.vcpus * count
        family = machine.size.quota_family or f"the family of {short(machine.size.name)}"
        counted.setdefault(family, []).append(entry)
    counted[ALL_ON_DEMAND] = [(n, m.size.vcpus * count) for n, m, count in on_demand]
    # Spot machines have one quota for all families.
    if spot := [p for p in plan.pools if p.market == "spot"]:
        counted[ALL_SPOT] = [(p.node_type, p.machine.size.vcpus * p.maximum) for p in spot]
    return [
        Quota(name=name, vcpus=sum(n for _, n in uses), needed_by=tuple(who for who, _ in uses))
        for name, uses in counted.items()
    ]


def warnings(plan: AzurePlan, *, key_missing: bool) -> list[str]:
    """What is likely to go wrong or to surprise, each with what to do about it."""
    found = []
    if key_missing:
        found.append(
            f"There is no SSH key in {DEFAULT_KEY_FILE}, and `pulumi up` will fail: make one "
            "with `ssh-keygen -t ed25519`, or name yours in sunspot:access."
        )
    if (unreachable := no_way_in(plan.access, plan.subnet_ids)) is not None:
        found.append(unreachable)
    found += _private_sources(plan)
    found += _public_callers(plan)
    found += unlisted(plan.sizes, plan.location)
    found += _region_warnings(plan)
    found += _image_warnings(plan)
    found += _hub_warnings(plan)
    found += [warning for pool in _one_of_each(plan) for warning in _disk_warnings(*pool)]
    return found


def notes(plan: AzurePlan) -> list[str]:
    """What Sunspot decides for the user, and how groups differ."""
    found: dict[str, list[str]] = {}
    machines = [(HEAD, plan.head), *((pool.node_type, pool.machine) for pool in plan.pools)]
    for name, machine in machines:
        if machine.driver != "none":
            found.setdefault(DRIVERS[machine.driver], []).append(name)
    drivers = [f"{', '.join(names)}: {text}." for text, names in found.items()]
    if plan.head.vm_image is not None:
        drivers.append(f"Every VM is made from {plan.head.vm_image.text}.")
    if unchecked := _sizes(plan, sold=None):
        drivers.append(
            f"Whether {plan.location} has {', '.join(unchecked)} could not be checked: the list "
            f"of {catalog_regions.date()} does not say. Ask Azure: "
            f"`az vm list-skus --location {plan.location} --size {unchecked[0]} -o table`."
        )
    if plan.copies:
        names = ", ".join(copy.name for copy in plan.copies)
        drivers.append(
            "A task run copies these images from Docker Hub into the stack's registry, once for "
            f"each change of them: {names}. Azure runs no tasks for free credits: without a "
            "subscription that pays, set sunspot:image to mirror: false."
        )
    if callers := plan.access.serve_cidrs:
        drivers.append(
            f"Ray Serve's port {ports.get('serve').number} is open to {', '.join(callers)}, and "
            "asks for no token: each machine there can use what is deployed."
        )
    if plan.storage.protect:
        drivers.append(
            "The storage is protected: `pulumi destroy` refuses to delete it until "
            "sunspot:storage has protect: false and an update has run."
        )
    return drivers


def _private_sources(plan: AzurePlan) -> Iterator[str]:
    """Of a public head whose only sources are private blocks, or those of documentation."""
    blocks = plan.access.ssh_cidrs
    if plan.access.public_ip and all(ip_network(block).is_private for block in blocks):
        yield (
            "The head has a public address, but sunspot:access > ssh_cidrs has only addresses that "
            f"are not of the internet ({', '.join(blocks)}), so that no connection gets in: "
            "`curl -4 https://ifconfig.me` shows yours."
        )


def _public_callers(plan: AzurePlan) -> Iterator[str]:
    """Of addresses of the internet that are to use Serve on a head without a public address."""
    blocks = [block for block in plan.access.serve_cidrs if ip_network(block).is_global]
    if blocks and not plan.access.public_ip:
        yield (
            f"sunspot:access > serve_cidrs has addresses of the internet ({', '.join(blocks)}), "
            "but the head has no public address for them: set public_ip, or list the subnet of a "
            "gateway."
        )


def _image_warnings(plan: AzurePlan) -> Iterator[str]:
    image = plan.head.vm_image
    if image is None or image.baked is None:
        return
    if (stale := image.baked.stale(datetime.now(UTC))) is not None:
        yield stale
    machines = [plan.head, *(pool.machine for pool in plan.pools)]
    if image.baked.driver == "none" and any(machine.driver == "nvidia" for machine in machines):
        yield (
            "The VM image was baked without the NVIDIA driver, so that GPU nodes install it when "
            f"they boot: `sunspot bake {plan.stack}` makes one that has it."
        )


def _region_warnings(plan: AzurePlan) -> Iterator[str]:
    if (near := catalog_regions.near(plan.location)) is not None:
        yield (
            f"{plan.location} is not in the list of regions of {catalog_regions.date()}: did you "
            f"mean {near}? If it is a newer region, `az account list-locations -o table` has it."
        )
    # Only a stack with check_region: false gets this far with such a size.
    for size in _sizes(plan, sold=False):
        yield (
            f"{plan.location} had no {size} when the list of regions was made "
            f"({catalog_regions.date()}), and sunspot:check_region: false allows it."
        )


def _hub_warnings(plan: AzurePlan) -> Iterator[str]:
    """Of a stack with mirror: false whose nodes need too many pulls of Docker Hub."""
    if plan.copies:
        return
    head = [plan.head.image, *images.ON_EVERY_HEAD]
    workers = [pool.machine.image for pool in plan.pools for _ in range(pool.maximum)]
    pulls = sum(1 for image in (*head, *workers) if image and images.copy_of(image) is not None)
    if pulls > images.HUB_PULLS:
        yield (
            f"With all groups full, nodes pull {pulls} images from Docker Hub, which allows their "
            f"one address {images.HUB_PULLS} in six hours: leave out mirror: false in "
            "sunspot:image, or use an image of another registry."
        )


def _sizes(plan: AzurePlan, *, sold: bool | None) -> list[str]:
    """The plan's listed sizes for which `is_sold` in the plan's region is `sold`."""
    names = (size.name for size in plan.sizes if size.listed)
    return [name for name in names if catalog_regions.is_sold(name, plan.location) is sold]


def _one_of_each(plan: AzurePlan) -> Iterator[tuple[str, Machine]]:
    """Each group with its machine, once; the twin of a group has the same."""
    yield from {pool.group: pool.machine for pool in plan.pools}.items()


def _disk_warnings(group: str, machine: Machine) -> Iterator[str]:
    size, system = machine.size, machine.system_gib
    if 0 < size.temp_gib < system:
        yield (
            f"{group}: the temporary disk of {short(size.name)} has {size.temp_gib:g} GiB, the "
            f"system needs {system}: each worker gets a Premium disk, which is billed."
        )
    elif machine.ephemeral_disk and size.temp_gib < machine.disk_gib:
        yield (
            f"{group}: the temporary disk of {short(size.name)} has {size.temp_gib:g} GiB, of "
            f"which {size.temp_gib - system:g} are left for container images, checkpoints and "
            "spilled objects: keep the image small, or choose a larger size."
        )
