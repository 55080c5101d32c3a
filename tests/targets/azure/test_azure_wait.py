"""What is said of a head that cannot be reached."""

import pytest
from preview_stacks import KEY, parse

from sunspot.errors import SunspotError
from sunspot.targets.azure import wait
from sunspot.targets.ssh import UnreachableError


def unreachable():
    raise UnreachableError("no answer")


@pytest.mark.parametrize(
    ("access", "way"),
    [
        ({}, "cannot be reached"),
        ({"bastion": True}, "az login"),
        ({"ssh_cidrs": ["203.0.113.7/32"], "public_ip": True}, "203.0.113.7/32"),
        ({"ssh_cidrs": ["10.0.0.0/8"]}, "VPN"),
    ],
)
def test_the_way_in_is_told_that_the_stack_has(access, way):
    stack = parse(access={"ssh_public_key": KEY, **access})
    with pytest.raises(SunspotError, match=f"no answer.*{way}"):
        wait.until_joined(stack, unreachable, lambda _: None, timeout_s=0)
