"""Azure's network security groups as values, read from the inputs that the program registers.

What a field may hold, the default rules and the service tags:
https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

Body = Mapping[str, Any]
Ports = tuple[int, int]

EVERYWHERE = IPv4Network("0.0.0.0/0")
ALL_PORTS: Ports = (0, 65535)
# Azure's own address of health probes, DHCP and DNS; part of two service tags.
PLATFORM = IPv4Network("168.63.129.16/32")

PROTOCOLS = {"*": None, "tcp": "tcp", "udp": "udp", "icmp": "icmp"}
KNOWN = frozenset(
    {"name", "description", "priority", "direction", "access", "protocol"}
    | {
        f"{end}{what}{plural}"
        for end in ("source", "destination")
        for what in ("AddressPrefix", "PortRange")
        for plural in ("", "es" if what == "AddressPrefix" else "s")
    }
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. `protocol` None is any; `sources` and `destinations` do not overlap."""

    name: str
    priority: int
    inbound: bool
    allow: bool
    protocol: str | None
    sources: tuple[IPv4Network, ...]
    source_ports: tuple[Ports, ...]
    destinations: tuple[IPv4Network, ...]
    destination_ports: tuple[Ports, ...]


def read_group(rules: Sequence[Body], virtual_network: Sequence[IPv4Network]) -> tuple[Rule, ...]:
    """A group's rules with Azure's own after them, in the order in which Azure asks them.

    `virtual_network` is what the tag VirtualNetwork stands for at this group: the network's own
    address space and that of every network peered with it. ValueError for what Azure refuses (one
    priority twice) and for what is not known here.
    """
    own = [_read(body, virtual_network) for body in rules]
    slots = [(rule.inbound, rule.priority) for rule in own]
    if twice := {slot[1] for slot in slots if slots.count(slot) > 1}:
        raise ValueError(f"two rules have priority {min(twice)}")
    defaults = [_read(body, virtual_network) for body in DEFAULT_RULES]
    return tuple(sorted([*own, *defaults], key=lambda rule: rule.priority))


def _read(body: Body, virtual_network: Sequence[IPv4Network]) -> Rule:
    if unknown := {key for key, value in body.items() if value} - KNOWN:
        raise ValueError(f"rule {body['name']}: no translation of {', '.join(sorted(unknown))}")

    def addresses(end: str) -> tuple[IPv4Network, ...]:
        texts = _either(body, f"{end}AddressPrefix", f"{end}AddressPrefixes")
        blocks = [block for text in texts for block in _blocks(text, virtual_network)]
        return tuple(collapse_addresses(blocks))

    def ports(end: str) -> tuple[Ports, ...]:
        texts = _either(body, f"{end}PortRange", f"{end}PortRanges")
        return tuple(_range(text) for text in texts)

    return Rule(
        name=body["name"],
        priority=int(body["priority"]),
        inbound={"Inbound": True, "Outbound": False}[body["direction"]],
        allow={"Allow": True, "Deny": False}[body["access"]],
        protocol=PROTOCOLS[body["protocol"].lower()],
        sources=addresses("source"),
        source_ports=ports("source"),
        destinations=addresses("destination"),
        destination_ports=ports("destination"),
    )


def _either(body: Body, one: str, many: str) -> list[str]:
    texts = [*([body[one]] if body.get(one) else []), *body.get(many, [])]
    if not texts:
        raise ValueError(f"rule {body['name']}: neither {one} nor {many}")
    return texts


def _blocks(text: str, virtual_network: Sequence[IPv4Network]) -> list[IPv4Network]:
    inside = [*virtual_network, PLATFORM]
    tags = {
        "*": [EVERYWHERE],
        "VirtualNetwork": inside,
        "AzureLoadBalancer": [PLATFORM],
        "Internet": _without(inside),
    }
    # An address, or a block of them; ValueError for a tag that is not known here.
    return tags[text] if text in tags else [IPv4Network(text)]


def _without(blocks: Sequence[IPv4Network]) -> list[IPv4Network]:
    """Every address outside the blocks."""
    rest = [EVERYWHERE]
    for block in collapse_addresses(blocks):
        (around,) = [one for one in rest if block.subnet_of(one)]
        rest = [one for one in rest if one != around] + list(around.address_exclude(block))
    return rest


def _range(text: str) -> Ports:
    if text == "*":
        return ALL_PORTS
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _default(name: str, priority: int, direction: str, access: str, source: str, to: str) -> Body:
    return {
        "name": name,
        "priority": priority,
        "direction": direction,
        "access": access,
        "protocol": "*",
        "sourceAddressPrefix": source,
        "sourcePortRange": "*",
        "destinationAddressPrefix": to,
        "destinationPortRange": "*",
    }


DEFAULT_RULES: tuple[Body, ...] = (
    _default("AllowVnetInBound", 65000, "Inbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    _default("AllowAzureLoadBalancerInBound", 65001, "Inbound", "Allow", "AzureLoadBalancer", "*"),
    _default("DenyAllInBound", 65500, "Inbound", "Deny", "*", "*"),
    _default("AllowVnetOutBound", 65000, "Outbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    _default("AllowInternetOutBound", 65001, "Outbound", "Allow", "*", "Internet"),
    _default("DenyAllOutBound", 65500, "Outbound", "Deny", "*", "*"),
)
