"""VM sizes: whether this subscription may have them in the stack's region, and as planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sunspot.catalog import regions
from sunspot.spec_values import HEAD
from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.doctor.findings import failure, not_checked, ok, warning
from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.protocol import Finding

if TYPE_CHECKING:
    from azure.mgmt.compute.models import ResourceSku

SIZES = "sizes"


def by_azure(azure: Clients, plan: AzurePlan) -> Iterator[Finding]:
    """What Azure says of each size of the plan, by its resource SKUs with their restrictions."""
    here = f"location eq '{plan.location}'"
    skus = {
        str(sku.name).lower(): sku
        for sku in azure.compute.resource_skus.list(filter=here)
        if sku.resource_type == "virtualMachines"
    }
    for name, uses in _uses(plan).items():
        check, sku = f"size {name}", skus.get(name.lower())
        if sku is None:
            yield failure(
                check,
                f"{plan.location} has none (for {_who(uses)})",
                f"choose another region or size: az vm list-skus --size {name} --all -o table",
            )
        else:
            yield _of_sku(check, sku, uses, plan)


def by_catalog(plan: AzurePlan) -> Iterator[Finding]:
    """What the catalogue knows of each size and the region, where Azure cannot be asked."""
    for name, uses in _uses(plan).items():
        check, sold = f"size {name}", regions.is_sold(name, plan.location)
        if sold is False:
            yield failure(
                check,
                f"{plan.location} had none on {regions.date()} (for {_who(uses)})",
                f"choose a region that has it ({', '.join(regions.sold_in(name))}), or another "
                "size",
            )
        else:
            listed = f"{plan.location} had it on {regions.date()}" if sold else _unlisted(plan)
            yield not_checked(check, f"whether this subscription may have it; {listed}")


def _unlisted(plan: AzurePlan) -> str:
    if (near := regions.near(plan.location)) is not None:
        return f"{plan.location} is not in the list of {regions.date()}: did you mean {near}?"
    return f"the list of {regions.date()} does not say whether {plan.location} has it"


Use = tuple[str, Machine, bool]
"""A node type, its machine, and whether it is bought as spot."""


def _uses(plan: AzurePlan) -> dict[str, list[Use]]:
    found: dict[str, list[Use]] = {plan.head.size.name: [(HEAD, plan.head, False)]}
    for pool in plan.pools:
        use = pool.node_type, pool.machine, pool.market == "spot"
        found.setdefault(pool.machine.size.name, []).append(use)
    return found


def _who(uses: Sequence[Use]) -> str:
    return ", ".join(name for name, _, _ in uses)


def _of_sku(check: str, sku: ResourceSku, uses: Sequence[Use], plan: AzurePlan) -> Finding:
    other = f"az vm list-skus --location {plan.location} --resource-type virtualMachines -o table"
    zones: list[str] = []
    for restriction in sku.restrictions or ():
        kind = str(getattr(restriction.type, "value", restriction.type))
        reason = str(getattr(restriction.reason_code, "value", restriction.reason_code))
        if kind == "Location":
            return failure(
                check,
                f"this subscription may not have it in {plan.location} ({reason}; for "
                f"{_who(uses)})",
                f"ask for it (Azure portal > Quotas > Compute), or choose from: {other}",
            )
        if restriction.restriction_info is not None:
            zones += restriction.restriction_info.zones or ()
    if lacks := list(_lacks(sku, uses)):
        return failure(check, f"{'; '.join(lacks)} (for {_who(uses)})", f"choose from: {other}")
    if zones:
        return warning(
            check,
            f"restricted in zones {', '.join(sorted(zones))} of {plan.location}. Sunspot names no "
            "zone, so Azure chooses one of the others",
        )
    return ok(check, f"{plan.location} has it, for {_who(uses)}")


def _lacks(sku: ResourceSku, uses: Sequence[Use]) -> Iterator[str]:
    """What the size cannot do that the plan relies on. A capability that is not listed passes."""
    has = {str(one.name): str(one.value) for one in sku.capabilities or ()}
    if has.get("LowPriorityCapable") == "False" and any(spot for _, _, spot in uses):
        yield "cannot be spot"
    ephemeral = any(machine.ephemeral_disk for _, machine, _ in uses)
    if has.get("EphemeralOSDiskSupported") == "False" and ephemeral:
        yield "has no ephemeral OS disk"
    if has.get("TrustedLaunchDisabled") == "True":
        yield "has no trusted launch"
    if "V2" not in has.get("HyperVGenerations", "V2").split(","):
        yield "has no generation 2 machines"
