"""What a plan costs an hour: its machines, and what belongs to them; planned, and now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sunspot.catalog import cost, services
from sunspot.catalog.prices import Prices, from_catalog
from sunspot.errors import UsageError
from sunspot.spec import size_for
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure import ssh_key
from sunspot.targets.azure.plan import STATE_DISK_GIB, AzurePlan
from sunspot.targets.azure.tree import NATIVE, tree
from sunspot.targets.protocol import HourlyCost, NodeStatus

GIGABYTES_AN_HOUR = 1
"""The guess of a machine's traffic through NAT: images, packages and data from elsewhere."""

READS_AN_HOUR = 10
"""The guess of how often a machine asks the vault."""

# Resources of the tree that are billed by the hour, and their item of services.csv.
_BY_THE_HOUR = {
    "PublicIPAddress": ("public addresses", "address"),
    "NatGateway": ("NAT gateway", "nat"),
    "BastionHost": ("Bastion", "bastion"),
    "Registry": ("registry", "registry"),
}


class _Part(NamedTuple):
    name: str
    usd: float
    guess: str = ""


def costs(plan: AzurePlan, prices: Prices) -> cost.Costs:
    """The costs of the head, of each group at these prices, and of what is not a machine."""
    head = cost.Group(
        name=HEAD,
        size=plan.head.size.name,
        market="on-demand",
        minimum=1,
        maximum=1,
        never_spot=True,
    )
    groups = plan.cluster.scaling_groups
    workers = (
        cost.Group(
            name=group.name,
            size=size_for(group.worker_nodes).name,
            market=group.market,
            minimum=group.min_workers,
            maximum=group.max_workers,
        )
        for group in groups
    )
    at_minimum = _others(plan, {group.name: group.min_workers for group in groups})
    at_maximum = _others(plan, {group.name: group.max_workers for group in groups})
    others = (
        cost.Other(name=low.name, minimum=low.usd, maximum=high.usd, guess=low.guess)
        for low, high in zip(at_minimum, at_maximum, strict=True)
    )
    return cost.of((head, *workers), prices, others)


def now(stack: Stack, folder: Path, nodes: Sequence[NodeStatus]) -> HourlyCost | None:
    """What the nodes of a stack cost by the catalogue; None if its file cannot be planned."""
    try:
        found = azure_plan.plan(ssh_key.with_some_key(stack), folder)
    except UsageError:  # such as an image's folder that is no longer there
        return None
    return hourly_cost(found, from_catalog(), nodes)


def of_each(stack: Stack, folder: Path) -> dict[str, float]:
    """USD an hour of a machine of each node type; none if the stack's file cannot be planned."""
    try:
        found = azure_plan.plan(ssh_key.with_some_key(stack), folder)
    except UsageError:
        return {}
    prices = from_catalog()
    each = {HEAD: prices.of(found.head.size.name).usd(spot=False)} | {
        pool.node_type: prices.of(pool.machine.size.name).usd(spot=pool.market == "spot")
        for pool in found.pools
    }
    return {node_type: usd for node_type, usd in each.items() if usd is not None}


def hourly_cost(plan: AzurePlan, prices: Prices, nodes: Sequence[NodeStatus]) -> HourlyCost:
    """What the nodes that there are cost now, with what belongs to them; lost ones cost nothing."""
    groups = {pool.node_type: pool for pool in plan.pools}
    known = {group.name: size_for(group.worker_nodes).name for group in plan.cluster.scaling_groups}
    counts: Counter[str] = Counter()
    machines, unknown = 0.0, set[str]()
    for node in nodes:
        if node.state == "lost":
            continue
        pool = groups.get(node.group)
        size = plan.head.size.name if node.is_head else known.get(pool.group if pool else "")
        if size is None:
            continue
        if pool is not None:
            counts[pool.group] += 1
        each = prices.of(size).usd(spot=node.market == "spot")
        machines += each or 0.0
        if each is None:
            unknown.add(size)
    return HourlyCost(
        machines=round(machines, 4),
        others=round(sum(part.usd for part in _others(plan, counts)), 4),
        price_unknown=tuple(sorted(unknown)),
        prices=f"{prices.source}, {prices.region}, {prices.date}",
    )


def _others(plan: AzurePlan, workers: Mapping[str, int]) -> list[_Part]:
    """USD an hour of what is not a machine, with these workers of each group."""
    nodes = 1 + sum(workers.values())
    kinds = Counter(one.kind for one in tree(plan).walk() if one.type.startswith(NATIVE))
    disks = sum(_disks(plan, workers))
    parts = [_Part("disks", disks)]
    for kind, (name, item) in _BY_THE_HOUR.items():
        if kinds[kind]:
            parts.append(_Part(name, kinds[kind] * services.usd(item)))
    if kinds["NatGateway"]:
        guess = f"guessed: {GIGABYTES_AN_HOUR} GB an hour and machine"
        traffic = nodes * GIGABYTES_AN_HOUR * services.usd("nat-gb")
        parts.append(_Part("NAT traffic", traffic, guess))
    if kinds["Vault"]:
        reads = nodes * READS_AN_HOUR * services.usd("vault-10k") / 10_000
        parts.append(_Part("vault", reads, f"guessed: {READS_AN_HOUR} reads an hour and machine"))
    return [part._replace(usd=round(part.usd, 5)) for part in parts]


def _disks(plan: AzurePlan, workers: Mapping[str, int]) -> Iterator[float]:
    yield services.disk(plan.head.disk_gib) + services.disk(STATE_DISK_GIB)
    # The twin of a group has the same machine.
    for group, machine in {pool.group: pool.machine for pool in plan.pools}.items():
        if not machine.ephemeral_disk:
            yield workers.get(group, 0) * services.disk(machine.disk_gib)
