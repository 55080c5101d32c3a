"""Address blocks that may connect: IPv4, and never the whole internet."""

import ipaddress

from sunspot.errors import UsageError

# A /16 is the largest block that one organisation commonly holds; a wider one is "the internet".
MIN_PREFIX = 16
# The internet does not route these, so a whole one may be listed (a VPN's addresses).
PRIVATE_NETWORKS = tuple(
    ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)
_EVERYWHERE = frozenset({"*", "internet", "any", "0.0.0.0/0", "::/0"})


def cidr(text: str) -> str:
    """The block, if it may be let in.

    Raises:
        UsageError: it may not, or is not one.
    """
    if text.strip().lower() in _EVERYWHERE:
        raise UsageError(f"{text!r} is the whole internet: list the addresses that are to connect")
    try:
        block = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not an address block such as 203.0.113.7/32: {error}"
        ) from None
    if isinstance(block, ipaddress.IPv6Network):
        raise UsageError(
            f"{text!r} is IPv6, but what it may reach has an IPv4 address: give an IPv4 block"
        )
    if block.prefixlen < MIN_PREFIX and not is_private(block):
        raise UsageError(
            f"{text!r} has {block.num_addresses} addresses, at most a /{MIN_PREFIX} is "
            "allowed: list the addresses that are to connect"
        )
    return str(block)


def is_private(block: ipaddress.IPv4Network) -> bool:
    """Whether all of its addresses are of private networks, which the internet does not route."""
    return any(block.subnet_of(network) for network in PRIVATE_NETWORKS)
