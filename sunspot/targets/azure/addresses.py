"""The subnets of a cluster's own network."""

import ipaddress
from dataclasses import dataclass

from sunspot.errors import UsageError

# Half of the address space is for the workers; the other half is for the head and the Bastion.
SMALLEST_SPACE = 24
LARGEST_SPACE = 8
HEAD_SUBNET_PREFIX = 28
BASTION_SUBNET_PREFIX = 26  # Azure's minimum
# Azure reserves the first four addresses of a subnet and the last one.
RESERVED_FIRST = 4
RESERVED = 5


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """The subnets of the cluster's own network, and the head's address in it."""

    space: str
    head_subnet: str
    head_address: str
    workers_subnet: str
    bastion_subnet: str


def within(address_space: str, *, workers: int) -> Addresses:
    """The subnets of an address space (an IPv4 block) with room for so many workers.

    Raises:
        UsageError: Azure does not allow a block of this size, or it is too small for the workers.
    """
    where = "config > sunspot:network > address_space"
    space = ipaddress.IPv4Network(address_space)
    if not LARGEST_SPACE <= space.prefixlen <= SMALLEST_SPACE:
        raise UsageError(
            f"{where}: {space} is a /{space.prefixlen}: give one from /{LARGEST_SPACE} "
            f"to /{SMALLEST_SPACE}"
        )
    workers_block, rest = space.subnets(prefixlen_diff=1)
    room = workers_block.num_addresses - RESERVED
    if workers > room:
        fitting = 31 - (workers + RESERVED - 1).bit_length()
        raise UsageError(
            f"{where}: {space} is too small for {workers} workers (the maximum of all groups; a "
            f"group that falls back counts twice): {room} fit, give a /{fitting} or larger"
        )
    head = next(rest.subnets(new_prefix=HEAD_SUBNET_PREFIX))
    *_, bastion = rest.subnets(new_prefix=max(BASTION_SUBNET_PREFIX, rest.prefixlen))
    return Addresses(
        space=str(space),
        head_subnet=str(head),
        head_address=str(head.network_address + RESERVED_FIRST),
        workers_subnet=str(workers_block),
        bastion_subnet=str(bastion),
    )
