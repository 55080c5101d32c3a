"""The translation of rules, on paper: what Azure's words mean, in which order, and in nftables."""

from ipaddress import IPv4Network

import pytest
from nsg_nftables import Refusal, script
from nsg_rules import read_group

INSIDE = [IPv4Network("10.60.0.0/16"), IPv4Network("10.99.0.0/24")]


def body(**changes):
    return {
        "name": "one",
        "description": "words",
        "priority": 100.0,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "sourceAddressPrefix": "10.60.0.0/28",
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "22",
        **changes,
    }


def read(**changes):
    """The group of one rule, without Azure's own."""
    (rule,) = [r for r in read_group([body(**changes)], INSIDE) if r.priority < 65000]
    return rule


def lines(*bodies, refusal: Refusal = "drop"):
    """The rules of the chain for what comes in, without their comments."""
    text = script([read_group(bodies, INSIDE)], refusal)
    chain = text.partition("chain group0_in {")[2].partition("}\n  chain")[0]
    return [line.strip().partition(" comment")[0] for line in chain.splitlines() if line.strip()]


def test_rules_stand_in_the_order_of_their_priorities_before_azures_own():
    late, early = body(priority=300, name="late"), body(priority=200, name="early")
    assert [rule.name for rule in read_group([late, early], INSIDE) if rule.inbound] == [
        "early",
        "late",
        "AllowVnetInBound",
        "AllowAzureLoadBalancerInBound",
        "DenyAllInBound",
    ]


def test_a_priority_is_taken_once_in_each_direction():
    with pytest.raises(ValueError, match="priority 100"):
        read_group([body(), body(name="two")], INSIDE)
    assert read_group([body(), body(direction="Outbound")], INSIDE)


def test_blocks_that_overlap_become_one():
    assert read(
        sourceAddressPrefix=None,
        sourceAddressPrefixes=["10.60.0.0/16", "10.60.0.0/28", "10.61.0.0/16"],
    ).sources == (IPv4Network("10.60.0.0/15"),)


def test_the_networks_tag_takes_in_peered_networks_and_the_platform():
    assert read(sourceAddressPrefix="VirtualNetwork").sources == (
        IPv4Network("10.60.0.0/16"),
        IPv4Network("10.99.0.0/24"),
        IPv4Network("168.63.129.16/32"),
    )


def test_the_internet_is_what_is_outside():
    internet = read(sourceAddressPrefix="Internet").sources

    def holds(address):
        return any(IPv4Network(address).subnet_of(block) for block in internet)

    assert holds("198.51.100.9/32")
    assert holds("10.61.0.1/32")
    assert not any(map(holds, ["10.60.255.255/32", "10.99.0.4/32", "168.63.129.16/32"]))
    assert sum(block.num_addresses for block in internet) == 2**32 - 2**16 - 2**8 - 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sourceAddressPrefix": "AzureCloud"}, "AzureCloud"),
        ({"sourceApplicationSecurityGroups": [{"id": "x"}]}, "sourceApplicationSecurityGroups"),
        ({"sourceAddressPrefix": None}, "sourceAddressPrefixes"),
        ({"protocol": "Esp"}, "esp"),
        ({"access": "Audit"}, "Audit"),
    ],
)
def test_what_has_no_translation_is_refused(change, said):
    with pytest.raises((ValueError, KeyError), match=said):
        read(**change)


def test_a_rule_in_nftables():
    (first, *_) = lines(body(destinationPortRange="10002-19999"))
    assert first == "ip saddr { 10.60.0.0/28 } meta l4proto tcp th dport { 10002-19999 } return"


def test_several_ports_of_any_protocol():
    (first, *_) = lines(
        body(
            protocol="*",
            sourceAddressPrefix="*",
            destinationPortRange=None,
            destinationPortRanges=["53", "100-200"],
            access="Deny",
        )
    )
    assert first == "meta l4proto { tcp, udp } th dport { 53, 100-200 } drop"


def test_azures_own_rules_close_the_chain():
    inside = "10.60.0.0/16, 10.99.0.0/24, 168.63.129.16/32"
    assert lines() == [
        f"ip saddr {{ {inside} }} ip daddr {{ {inside} }} return",
        "ip saddr { 168.63.129.16/32 } return",
        "drop",
    ]


def test_a_refusal_can_be_told():
    assert lines(refusal="reject with icmp type admin-prohibited")[-1].startswith("reject")


def test_every_group_is_asked():
    text = script([read_group([], INSIDE), read_group([], INSIDE)])
    assert text.count("jump group0_in") == text.count("jump group1_in") == 1
    assert text.index("jump group1_in") < text.index("    accept\n")
