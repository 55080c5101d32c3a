"""Who may connect to which port of a planned cluster; the rest is refused.

What the network security groups of `infra/` say, without Pulumi: a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from sunspot.ray import ports
from sunspot.targets.azure.plan import AzurePlan

# Where the network is the user's, its addresses are asked of Azure.
YOUR_HEAD_SUBNET = "your head subnet"
YOUR_WORKERS_SUBNET = "your workers subnet"


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One port of one role, and the address blocks that may connect to it; nobody, if none."""

    role: ports.Role
    port: str
    range: str
    purpose: str
    sources: tuple[str, ...]


def openings(plan: AzurePlan) -> list[Opening]:
    """Every port of both roles that a connection from another machine may reach, in order."""
    return [
        Opening(
            role=role,
            port=port.name,
            range=port.range,
            purpose=port.purpose,
            sources=operators(plan, role) if port.reach == "operator" else nodes(plan),
        )
        for role in ("head", "worker")
        for port in ports.of(role)
        if port.reach != "nobody"
    ]


def nodes(plan: AzurePlan) -> tuple[str, ...]:
    """The address blocks of the cluster's own nodes."""
    if plan.addresses is None:
        return YOUR_HEAD_SUBNET, YOUR_WORKERS_SUBNET
    return plan.addresses.head_subnet, plan.addresses.workers_subnet


def operators(plan: AzurePlan, role: ports.Role) -> tuple[str, ...]:
    """The address blocks that may come in by SSH. To a worker, the head may too."""
    allowed = list(plan.access.ssh_cidrs)
    if plan.addresses is not None and plan.access.bastion:
        allowed.append(plan.addresses.bastion_subnet)
    if role == "worker":
        allowed.append(nodes(plan)[0])
    return tuple(allowed)


def has_way_in(plan: AzurePlan) -> bool:
    """Whether anybody from outside may reach the head; a network of the user's has own ways."""
    return bool(operators(plan, "head")) or plan.addresses is None
