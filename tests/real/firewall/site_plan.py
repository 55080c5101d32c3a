"""The network that the Pulumi program would make, and the hosts that stand in it and outside."""

import sys
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsg_nftables import Refusal, script
from nsg_rules import Body, read_group

if TYPE_CHECKING:
    from machines.lan import Host

ROOT = Path(__file__).resolve().parents[3]

ADMIN = IPv4Interface("203.0.113.7/24")
OUTSIDER = IPv4Interface("198.51.100.9/24")
# In no subnet of the cluster's, but within the tag VirtualNetwork once its network is peered.
PEER = IPv4Interface("10.99.0.4/24")
# Azure keeps the first four addresses of a subnet.
FIRST_FREE = 4


@dataclass(frozen=True, kw_only=True)
class Site:
    """Subnets by name, the groups that guard each, and the address of every host."""

    space: IPv4Network
    subnets: dict[str, IPv4Network]
    groups: dict[str, tuple[tuple[Body, ...], ...]]
    hosts: dict[str, IPv4Interface]

    @property
    def nodes(self) -> dict[str, str]:
        """The hosts that are the cluster's: name -> subnet."""
        return {
            host: name
            for host, address in self.hosts.items()
            for name, subnet in self.subnets.items()
            if address.ip in subnet
        }

    def without(self, subnet: str, rule: str) -> "Site":
        """The same, one rule less."""
        kept = tuple(
            tuple(body for body in group if body["name"] != rule) for group in self.groups[subnet]
        )
        if kept == self.groups[subnet]:
            raise KeyError(f"the subnet {subnet} has no rule {rule}")
        return replace(self, groups={**self.groups, subnet: kept})

    def guard(self, host: "Host", refusal: Refusal = "drop") -> None:
        """Puts the groups of its subnet before a node; a host that is no node has none."""
        subnet = self.nodes.get(host.name)
        if subnet is None:
            return
        network = [self.space, PEER.network]
        groups = [read_group(group, network) for group in self.groups[subnet]]
        host.run("nft", "-f", "-", text=script(groups, refusal))


def planned(workers: int) -> Site:
    """The site of a stack with SSH for ADMIN and Serve for PEER, as the program registers it."""
    run = _registered(str(ADMIN.ip), str(PEER.ip))
    network = run.one("VirtualNetwork").inputs
    (space,) = network["addressSpace"]["addressPrefixes"]
    card = run.one("NetworkInterface").inputs
    profile = run.one("VirtualMachineScaleSet").inputs["virtualMachineProfile"]
    (worker_card,) = profile["networkProfile"]["networkInterfaceConfigurations"]
    by_id = run.by_id()

    def rules(*holders: dict[str, Any]) -> tuple[tuple[Body, ...], ...]:
        ids = [h["networkSecurityGroup"]["id"] for h in holders if "networkSecurityGroup" in h]
        return tuple(tuple(by_id[one].inputs["securityRules"]) for one in ids)

    bodies = {subnet["name"]: subnet for subnet in network["subnets"]}
    subnets = {name: IPv4Network(body["addressPrefix"]) for name, body in bodies.items()}
    (ip,) = card["ipConfigurations"]
    hosts = {"head": _in(subnets["head"], ip["privateIPAddress"])}
    for number in range(workers):
        address = str(subnets["workers"][FIRST_FREE + number])
        hosts[f"worker{number + 1}"] = _in(subnets["workers"], address)
    return Site(
        space=IPv4Network(space),
        subnets=subnets,
        groups={
            "head": rules(bodies["head"], card),
            "workers": rules(bodies["workers"], worker_card),
        },
        hosts={**hosts, "admin": ADMIN, "outsider": OUTSIDER, "peer": PEER},
    )


def _in(subnet: IPv4Network, address: str) -> IPv4Interface:
    return IPv4Interface(f"{address}/{subnet.prefixlen}")


def _registered(admin: str, caller: str) -> Any:
    # Where the program is run without an engine.
    folder = str(ROOT / "tests" / "infra")
    if folder not in sys.path:
        sys.path.append(folder)
    from builds import build, group, make_stack  # pyright: ignore[reportMissingImports]

    return build(
        make_stack(
            group(min_workers=2, max_workers=2),
            access={
                "public_ip": True,
                "ssh_cidrs": [f"{admin}/32"],
                "serve_cidrs": [f"{caller}/32"],
            },
        )
    )
