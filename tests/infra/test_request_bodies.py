"""The request bodies of all that is made, by the models of Microsoft's own SDKs."""

import copy

import pytest
from azure_model import request_bodies, request_inputs
from builds import build, group, make_stack


def bodies(run):
    return {
        r.urn: request_bodies.body(r.kind, r.inputs)
        for r in run.resources
        if r.kind in request_bodies.MODELS
    }


def check(run):
    foreign = {r.kind for r in run.resources if r.custom} - set(request_bodies.MODELS)
    # Docker's, not Azure's; and one that Microsoft's SDK for registries no longer has.
    assert foreign <= {"Image", "TaskRun"}
    for resource in run.of("TaskRun"):
        assert request_inputs.problems(resource.type, resource.inputs) == []
    for resource in run.resources:
        if resource.kind in request_bodies.MODELS:
            sent = request_bodies.body(resource.kind, resource.inputs)
            assert request_bodies.round_trip(resource.kind, sent) == sent, resource.name


def test_shipped_stacks(shipped):
    check(shipped)


def test_everything_together(rich):
    check(rich)


def test_subnets_of_the_users(tmp_path):
    subnet = (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/a"
    )
    ids = {"head": subnet, "workers": subnet}
    check(build(make_stack(group(max_workers=2), network={"subnet_ids": ids})))


def test_registry(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM rayproject/ray\n")
    check(build(make_stack(group(), image={"context": "."}), tmp_path))


def test_what_pulumi_flattens_is_under_properties(rich):
    by_urn = bodies(rich)
    (scale_set,) = [
        by_urn[r.urn] for r in rich.of("VirtualMachineScaleSet") if r.name.endswith("-gpu-vmss")
    ]
    assert scale_set["sku"]["capacity"] == 0
    assert scale_set["properties"]["orchestrationMode"] == "Flexible"
    profile = scale_set["properties"]["virtualMachineProfile"]
    (nic,) = profile["networkProfile"]["networkInterfaceConfigurations"]
    assert nic["properties"]["ipConfigurations"][0]["properties"]["primary"] is True
    rules = by_urn[rich.named("sunspot-rich-head-nsg").urn]["properties"]["securityRules"]
    assert rules[0]["properties"]["priority"] == 100


# The check can fail


def at(inputs, path):
    """The object that holds the last step of a path, and that step."""
    *steps, last = path
    for step in steps:
        inputs = inputs[step]
    return inputs, last


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("VirtualMachine", ("osProfile", "linuxConfiguration", "disablePasswordAuthentication")),
        ("VirtualMachine", ("priority",)),
        ("VirtualMachineScaleSet", ("orchestrationMode",)),
        ("VirtualMachineScaleSet", ("virtualMachineProfile", "billingProfile", "maxPrice")),
        ("VirtualNetwork", ("subnets", 0, "defaultOutboundAccess")),
        ("NetworkSecurityGroup", ("securityRules", 0, "access")),
        ("NetworkInterface", ("ipConfigurations", 0, "privateIPAddress")),
        ("StorageAccount", ("allowSharedKeyAccess",)),
        ("ManagementPolicy", ("policy", "rules", 0, "definition", "actions", "baseBlob")),
        ("Vault", ("properties", "enableRbacAuthorization")),
        ("Secret", ("properties", "value")),
        ("UserAssignedIdentity", ("location",)),
        ("RoleAssignment", ("principalType",)),
        ("BastionHost", ("enableTunneling",)),
    ],
)
def test_a_misspelt_property_is_noticed(rich, kind, path):
    inputs = copy.deepcopy(next(r for r in rich.of(kind) if "gpu" in r.name or kind != SET).inputs)
    request_bodies.body(kind, inputs)
    holder, key = at(inputs, path)
    holder[f"{key}x"] = holder.pop(key)
    with pytest.raises(request_bodies.UnfitError, match=f"{key}x"):
        request_bodies.body(kind, inputs)


SET = "VirtualMachineScaleSet"


@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    [
        ("VirtualMachine", ("priority",), "Spott"),
        ("VirtualMachine", ("securityProfile", "securityType"), "Trusted"),
        (SET, ("orchestrationMode",), "flexible"),
        (SET, ("virtualMachineProfile", "evictionPolicy"), "Remove"),
        (
            SET,
            ("virtualMachineProfile", "storageProfile", "osDisk", "diffDiskSettings", "placement"),
            "TempDisk",
        ),
        (SET, ("virtualMachineProfile", "networkProfile", "networkApiVersion"), "2024-05-01"),
        ("NetworkSecurityGroup", ("securityRules", 0, "protocol"), "TCPX"),
        ("StorageAccount", ("minimumTlsVersion",), "TLS1.2"),
        ("StorageAccount", ("sku", "name"), "Standard"),
        ("Vault", ("properties", "sku", "family"), "B"),
        ("RoleAssignment", ("principalType",), "Service"),
    ],
)
def test_a_wrong_enum_is_noticed(rich, kind, path, wrong):
    inputs = copy.deepcopy(next(r for r in rich.of(kind) if "gpu" in r.name or kind != SET).inputs)
    holder, key = at(inputs, path)
    holder[key] = wrong
    with pytest.raises(request_bodies.UnfitError, match=wrong):
        request_bodies.body(kind, inputs)


@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    [
        ("VirtualNetwork", ("subnets", 0, "defaultOutboundAccess"), "false"),
        ("NetworkSecurityGroup", ("securityRules", 0, "priority"), "100"),
        ("VirtualMachine", ("storageProfile", "osDisk"), "disk"),
        ("VirtualNetwork", ("provisioningState",), "Succeeded"),
    ],
)
def test_a_wrong_type_or_a_value_of_azures_is_noticed(rich, kind, path, wrong):
    inputs = copy.deepcopy(rich.of(kind)[0].inputs)
    holder, key = at(inputs, path)
    holder[key] = wrong
    with pytest.raises(request_bodies.UnfitError):
        request_bodies.body(kind, inputs)
