"""Who may come in: the subnets, and the rules at them."""

import ipaddress

import pytest
from azure_model.resource_ids import SUBSCRIPTION
from builds import build, group, make_stack

from sunspot.ray import ports

SUBNET = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network"
    "/virtualNetworks/corp/subnets/"
)


def rules(run, role):
    """The rules of a role's group, by name."""
    (found,) = [r for r in run.of("NetworkSecurityGroup") if r.name.endswith(f"-{role}-nsg")]
    return {rule["name"]: rule for rule in found.inputs["securityRules"]}


def subnets(run):
    return {s["name"]: s for s in run.one("VirtualNetwork").inputs["subnets"]}


def allowed(run, role):
    """What a group lets in, as (port, source) pairs."""
    return {
        (rule["destinationPortRange"], source)
        for rule in rules(run, role).values()
        if rule["access"] == "Allow"
        for source in rule["sourceAddressPrefixes"]
    }


@pytest.mark.parametrize("role", ["head", "workers"])
def test_only_the_cluster_reaches_rays_ports(shipped, role):
    nodes = {subnets(shipped)[name]["addressPrefix"] for name in ("head", "workers")}
    kind = "head" if role == "head" else "worker"
    expected = {
        (port.range, node)
        for port in ports.of(kind)
        if port.reach in ("cluster", "monitoring")
        for node in nodes
    }
    by_ssh = {("22", subnets(shipped)["head"]["addressPrefix"])} if role == "workers" else set()
    assert allowed(shipped, role) == expected | by_ssh


@pytest.mark.parametrize("role", ["head", "workers"])
def test_everything_else_is_denied_before_azures_own_rules(rich, role):
    found = rules(rich, role)
    last = max(found.values(), key=lambda rule: rule["priority"])
    assert last["name"] == "deny-all"
    assert last["priority"] <= 4096
    assert (last["access"], last["direction"], last["protocol"]) == ("Deny", "Inbound", "*")
    assert {last[f"{end}AddressPrefix"] for end in ("source", "destination")} == {"*"}
    assert {last[f"{end}PortRange"] for end in ("source", "destination")} == {"*"}


@pytest.mark.parametrize("role", ["head", "workers"])
def test_rules_are_as_azure_takes_them(rich, role):
    found = list(rules(rich, role).values())
    priorities = [rule["priority"] for rule in found]
    assert len(set(priorities)) == len(priorities)
    assert all(100 <= priority <= 4096 for priority in priorities)
    for rule in found:
        assert len(rule["description"]) <= 140
        assert rule["direction"] == "Inbound"
        # Azure refuses an empty list of sources.
        assert rule.get("sourceAddressPrefixes", ["x"])


@pytest.mark.parametrize("role", ["head", "workers"])
def test_nothing_lets_the_internet_in(rich, role):
    for rule in rules(rich, role).values():
        if rule["access"] == "Allow":
            assert "sourceAddressPrefix" not in rule
            for source in rule["sourceAddressPrefixes"]:
                assert ipaddress.ip_network(source).prefixlen >= 8


@pytest.mark.parametrize("name", ["head", "workers"])
def test_storage_is_reached_past_the_gateway_that_bills_by_the_gigabyte(shipped, name):
    subnet = subnets(shipped)[name]
    assert [endpoint["service"] for endpoint in subnet["serviceEndpoints"]] == ["Microsoft.Storage"]
    # An endpoint is a route: what guards the subnet, and its other traffic, stay as they are.
    assert subnet["networkSecurityGroup"]["id"] in shipped.by_id()
    assert subnet["natGateway"]["id"] == shipped.one("NatGateway").id
    assert subnet["defaultOutboundAccess"] is False
    # A policy would close Storage's accounts with the layers of images, which are Microsoft's.
    assert "serviceEndpointPolicies" not in subnet


def test_no_rule_closes_what_an_endpoint_opens(rich):
    for role in ("head", "workers"):
        assert {rule["direction"] for rule in rules(rich, role).values()} == {"Inbound"}


def test_a_bastions_subnet_has_no_endpoint(rich):
    assert "serviceEndpoints" not in subnets(rich)["AzureBastionSubnet"]


def test_ssh_is_for_the_listed_and_the_bastion(rich):
    bastion = subnets(rich)["AzureBastionSubnet"]["addressPrefix"]
    by_ssh = {source for port, source in allowed(rich, "head") if port == "22"}
    assert by_ssh == {"203.0.113.7/32", bastion}


def test_without_a_listed_block_there_is_no_ssh_rule():
    assert "allow-ssh" not in rules(build(make_stack()), "head")


def test_serve_is_for_nobody_unless_networks_are_listed(shipped, rich):
    assert "allow-serve" not in rules(shipped, "head")
    assert "allow-serve" not in rules(rich, "workers")
    serve = rules(rich, "head")["allow-serve"]
    assert serve["sourceAddressPrefixes"] == ["10.1.2.0/24"]
    assert serve["destinationPortRange"] == "8000"


def test_opening_serve_renumbers_no_other_rule():
    def priorities(**access):
        made = rules(build(make_stack(access=access)), "head")
        return {name: rule["priority"] for name, rule in made.items() if name != "allow-serve"}

    assert priorities(serve_cidrs=["10.1.2.0/24"]) == priorities()


def test_subnets_have_one_way_out(shipped):
    gateway = shipped.one("NatGateway").id
    for name in ("head", "workers"):
        subnet = subnets(shipped)[name]
        assert subnet["defaultOutboundAccess"] is False
        assert subnet["natGateway"] == {"id": gateway}
        assert subnet["networkSecurityGroup"]["id"]


def test_subnets_lie_in_the_address_space_and_apart(rich):
    blocks = [ipaddress.IPv4Network(s["addressPrefix"]) for s in subnets(rich).values()]
    (space,) = rich.one("VirtualNetwork").inputs["addressSpace"]["addressPrefixes"]
    assert all(block.subnet_of(ipaddress.IPv4Network(space)) for block in blocks)
    assert not any(a.overlaps(b) for a in blocks for b in blocks if a is not b)


def test_the_only_public_addresses_are_those_asked_for(shipped, rich):
    assert [a.name.rsplit("-", 2)[1] for a in shipped.of("PublicIPAddress")] == ["nat"]
    assert {a.name for a in rich.of("PublicIPAddress")} == {
        "sunspot-rich-nat-ip",
        "sunspot-rich-head-ip",
        "sunspot-rich-bastion-ip",
    }
    for address in rich.of("PublicIPAddress"):
        assert address.inputs["sku"] == {"name": "Standard"}
        assert address.inputs["publicIPAllocationMethod"] == "Static"


def test_bastion_can_carry_tunnels(rich):
    host = rich.one("BastionHost")
    assert host.inputs["enableTunneling"] is True
    assert host.inputs["sku"] == {"name": "Standard"}
    (config,) = host.inputs["ipConfigurations"]
    assert config["subnet"]["id"].endswith("/subnets/AzureBastionSubnet")


# A network of the user's own


@pytest.fixture(scope="module")
def adopted():
    ids = {"head": f"{SUBNET}a", "workers": f"{SUBNET}b"}
    return build(
        make_stack(group(max_workers=3), network={"subnet_ids": ids}),
        subnet={"addressPrefixes": ["10.1.2.0/24", "10.1.3.0/24"]},
    )


def test_own_subnets_are_used_and_no_network_is_made(adopted):
    for kind in ("VirtualNetwork", "NatGateway", "PublicIPAddress"):
        assert adopted.of(kind) == []
    (config,) = adopted.one("NetworkInterface").inputs["ipConfigurations"]
    assert config["subnet"]["id"] == f"{SUBNET}a"
    assert config["privateIPAllocationMethod"] == "Dynamic"
    assert adopted.outputs["head_private_ip"] == "10.1.2.9"


def test_in_own_subnets_the_rules_are_at_the_nics(adopted):
    by_name = {r.name: r.id for r in adopted.of("NetworkSecurityGroup")}
    nic = adopted.one("NetworkInterface").inputs
    assert nic["networkSecurityGroup"]["id"] == by_name["sunspot-test-head-nsg"]
    profile = adopted.one("VirtualMachineScaleSet").inputs["virtualMachineProfile"]
    (worker,) = profile["networkProfile"]["networkInterfaceConfigurations"]
    assert worker["networkSecurityGroup"]["id"] == by_name["sunspot-test-workers-nsg"]
    assert ("6379", "10.1.3.0/24") in allowed(adopted, "head")
    assert {s for port, s in allowed(adopted, "workers") if port == "22"} == {
        "10.1.2.0/24",
        "10.1.3.0/24",
    }
