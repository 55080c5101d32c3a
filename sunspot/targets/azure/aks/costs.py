"""What a stack on AKS costs an hour: its nodes, AKS's own, and what belongs to them."""

from __future__ import annotations

from collections.abc import Iterator

from sunspot.catalog import cost, services
from sunspot.catalog.prices import Prices
from sunspot.spec_values import HEAD
from sunspot.targets.azure.aks.plan import SYSTEM_NODES, AksPlan
from sunspot.targets.azure.aks.pools import DISK_GIB, SYSTEM_POOL, AksPool

# What the table of services calls the control plane of a tier that costs something.
_PAID_TIERS = {"Standard": "aks-standard", "Premium": "aks-premium"}


def costs(plan: AksPlan, prices: Prices) -> cost.Costs:
    """The costs of the nodes at these prices, and of what is not a machine."""
    own = (
        cost.Group(
            name=HEAD,
            size=_head(plan),
            market="on-demand",
            minimum=1,
            maximum=1,
            never_spot=True,
        ),
        cost.Group(
            name=SYSTEM_POOL,
            size=plan.system_size.name,
            market="on-demand",
            minimum=SYSTEM_NODES,
            maximum=SYSTEM_NODES,
            never_spot=True,
        ),
    )
    workers = (
        cost.Group(
            name=pool.node_type,
            size=pool.size.name,
            market=pool.market,
            minimum=_fixed(plan, pool),
            maximum=pool.maximum,
        )
        for pool in plan.pools
        if pool.group != HEAD
    )
    return cost.of((*own, *workers), prices, _others(plan))


def _fixed(plan: AksPlan, pool: AksPool) -> int:
    """How many nodes a group's pool always has; the on-demand twin of a spot pool has none."""
    fixed = {group.name: group.min_workers for group in plan.cluster.scaling_groups}
    return fixed.get(pool.node_type, 0)


def _head(plan: AksPlan) -> str:
    return next(pool.size.name for pool in plan.pools if pool.group == HEAD)


def _others(plan: AksPlan) -> Iterator[cost.Other]:
    disk = services.disk(DISK_GIB)
    disks = [disk * SYSTEM_NODES] * 2
    for pool in plan.pools:
        both = (1, 1) if pool.group == HEAD else (_fixed(plan, pool), pool.maximum)
        if not pool.ephemeral_disk:
            disks = [sum_ + disk * count for sum_, count in zip(disks, both, strict=True)]
    disks = [sum_ + _volume(plan.volume_gib) for sum_ in disks]
    yield cost.Other(name="disks", minimum=round(disks[0], 5), maximum=round(disks[1], 5))
    fixed = {"load balancer": services.usd("load-balancer"), "address": services.usd("address")}
    if plan.aks.tier in _PAID_TIERS:
        fixed["control plane"] = services.usd(_PAID_TIERS[plan.aks.tier])
    for name, usd in fixed.items():
        yield cost.Other(name=name, minimum=usd, maximum=usd)


def _volume(gib: int) -> float:
    """USD an hour of a volume: at most this, since larger Premium disks cost less for each GiB."""
    if gib <= DISK_GIB:
        return services.disk(gib) if gib else 0
    billed = 2 ** (gib - 1).bit_length()  # Azure bills the next larger disk, of twice the size
    return billed // DISK_GIB * services.disk(DISK_GIB)
