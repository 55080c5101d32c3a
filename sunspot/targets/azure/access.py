"""Who may connect to which port of a planned cluster; everything else is refused.

`infra/` creates the rules of its network security groups from this, and a preview shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sunspot.ray import ports
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.settings import Access, SubnetIds

# Stand-ins for the address blocks of the user's own subnets, which only Azure knows.
YOUR_HEAD_SUBNET = "your head subnet"
YOUR_WORKERS_SUBNET = "your workers subnet"


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One port of one role, and the address blocks that may connect to it, if any."""

    role: ports.Role
    port: str
    range: str
    purpose: str
    sources: tuple[str, ...]


def openings(plan: AzurePlan) -> list[Opening]:
    """Every port of both roles that other machines may connect to, in order."""
    return [
        Opening(
            role=role,
            port=port.name,
            range=port.range,
            purpose=port.purpose,
            sources=_sources(plan, role, port.reach),
        )
        for role in ("head", "worker")
        for port in ports.of(role)
        if port.reach != "node"
    ]


def nodes(plan: AzurePlan) -> tuple[str, str]:
    """The address blocks of the cluster's own nodes: the head's, the workers'."""
    if plan.addresses is None:
        return YOUR_HEAD_SUBNET, YOUR_WORKERS_SUBNET
    return plan.addresses.head_subnet, plan.addresses.workers_subnet


def no_way_in(access: Access, subnet_ids: SubnetIds | None) -> str | None:
    """The warning that the head cannot be reached from outside its subnets; None if it can.

    Also in the user's own subnets: the rules of the head's NIC refuse what they do not name.
    """
    if access.ssh_cidrs or access.bastion:
        return None
    problem = "The head cannot be reached from outside its network. Give sunspot:access "
    if subnet_ids is not None:
        return f"{problem}ssh_cidrs: the addresses of your VPN, or the subnet of your Bastion."
    return f"{problem}ssh_cidrs (and public_ip: true, unless you use a VPN), or bastion: true."


def _sources(plan: AzurePlan, role: ports.Role, reach: ports.Reach) -> tuple[str, ...]:
    if reach == "operator":
        return _operators(plan, role)
    return plan.access.serve_cidrs if reach == "caller" else nodes(plan)


def _operators(plan: AzurePlan, role: ports.Role) -> tuple[str, ...]:
    """The address blocks that may connect by SSH; the head may connect to workers too."""
    allowed = list(plan.access.ssh_cidrs)
    if plan.addresses is not None and plan.access.bastion:
        allowed.append(plan.addresses.bastion_subnet)
    if role == "worker":
        allowed.append(nodes(plan)[0])
    return tuple(allowed)
