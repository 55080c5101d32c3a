"""Network security groups as nftables rules of the one host that they guard."""

from collections.abc import Iterator, Sequence
from typing import Literal

from nsg_rules import ALL_PORTS, EVERYWHERE, Ports, Rule

# What becomes of a refused packet. Azure drops it; a test that asks many ports wants to be told.
Refusal = Literal["drop", "reject with icmp type admin-prohibited"]


def script(groups: Sequence[Sequence[Rule]], refusal: Refusal = "drop") -> str:
    """The input of `nft -f` that puts these groups, and nothing else, before a host.

    A packet must pass every group: on Azure that of the subnet and that of the network card.
    Groups are stateful, so answers to what was let through pass.
    """
    lines = ["table inet nsg", "delete table inet nsg", "table inet nsg {"]
    for number, rules in enumerate(groups):
        for inbound in (True, False):
            lines.append(f"  chain {_name(number, inbound)} {{")
            lines += [f"    {_line(r, refusal)}" for r in rules if r.inbound is inbound]
            lines.append("  }")
    for hook, loopback, inbound in (("input", "iifname", True), ("output", "oifname", False)):
        lines += [
            f"  chain {hook} {{",
            f"    type filter hook {hook} priority filter; policy drop;",
            f'    {loopback} "lo" accept',
            "    ct state established,related accept",
            # The networks here, as the program's, have no IPv6.
            "    meta nfproto ipv6 drop",
            *(f"    jump {_name(number, inbound)}" for number in range(len(groups))),
            "    accept",
            "  }",
        ]
    return "\n".join([*lines, "}", ""])


def _name(number: int, inbound: bool) -> str:
    return f"group{number}_{'in' if inbound else 'out'}"


def _line(rule: Rule, refusal: Refusal) -> str:
    """The first rule that matches decides: `return` goes on to the next group."""
    verdict = "return" if rule.allow else refusal
    return " ".join([*_matches(rule), verdict, f'comment "{rule.priority} {rule.name}"'])


def _matches(rule: Rule) -> Iterator[str]:
    if EVERYWHERE not in rule.sources:
        yield f"ip saddr {{ {', '.join(map(str, rule.sources))} }}"
    if EVERYWHERE not in rule.destinations:
        yield f"ip daddr {{ {', '.join(map(str, rule.destinations))} }}"
    by_port = [
        f"th {end} {{ {', '.join(map(_ports, ports))} }}"
        for end, ports in (("sport", rule.source_ports), ("dport", rule.destination_ports))
        if ALL_PORTS not in ports
    ]
    if rule.protocol is not None:
        yield f"meta l4proto {rule.protocol}"
    elif by_port:
        yield "meta l4proto { tcp, udp }"
    yield from by_port


def _ports(ports: Ports) -> str:
    first, last = ports
    return str(first) if first == last else f"{first}-{last}"
