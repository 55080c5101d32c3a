"""The machines: the head, the workers' scale sets, and what they are told at boot."""

import base64

import pytest
from azure_model.answers import client_of
from builds import PUBLIC_KEY, build, group, make_stack
from sandbox import cloud_config

from cloud_init import readable
from sunspot.errors import UsageError
from sunspot.node.azure.live import decoded, parse

MAX_BYTES = 65_535
TWENTY = 20


def scale_sets(run):
    """The scale sets by what comes after the cluster's name."""
    prefix = len(run.of("AzureRayCluster")[0].name) + 1
    return {s.inputs["vmScaleSetName"][prefix:]: s for s in run.of("VirtualMachineScaleSet")}


def profile(scale_set):
    return scale_set.inputs["virtualMachineProfile"]


def user_data(resource):
    """The bytes that a machine gets."""
    return base64.b64decode(body(resource)["osProfile"]["customData"], validate=True)


def body(resource):
    """What a machine is, of the head or of a scale set."""
    return resource.inputs if resource.kind == "VirtualMachine" else profile(resource)


def written(resource):
    """The files that cloud-init writes on a machine, by their path."""
    files = cloud_config(user_data(resource))["write_files"]
    return {file["path"]: file["content"] for file in files}


def environment(resource):
    lines = written(resource)["/etc/sunspot/node.env"].splitlines()
    return {key: value.strip("'") for key, _, value in (line.partition("=") for line in lines)}


def live(run):
    """What the cluster may change while it runs."""
    return parse(decoded(run.one("VirtualMachine").inputs["userData"]))


def autoscaler(run):
    config = live(run).autoscaler
    assert config is not None
    return config


# The head


def test_head_is_on_demand_and_keeps_its_address(shipped):
    head = shipped.one("VirtualMachine").inputs
    assert head["priority"] == "Regular"
    assert "evictionPolicy" not in head
    (config,) = shipped.one("NetworkInterface").inputs["ipConfigurations"]
    assert config["privateIPAllocationMethod"] == "Static"
    assert config["privateIPAddress"] == "10.60.128.4"
    assert "publicIPAddress" not in config


def test_head_is_replaced_where_azure_refuses_the_change(shipped):
    head = shipped.one("VirtualMachine")
    assert {"osProfile.customData", "osProfile.linuxConfiguration"} <= set(head.replace_on_changes)
    # Two heads cannot share the NIC, which stays.
    assert head.delete_before_replace
    (nic,) = head.inputs["networkProfile"]["networkInterfaces"]
    assert nic["id"] == shipped.one("NetworkInterface").id
    assert nic["deleteOption"] == "Detach"


def test_head_has_a_disk_that_survives_a_stop(rich):
    disk = rich.one("VirtualMachine").inputs["storageProfile"]["osDisk"]
    assert "diffDiskSettings" not in disk
    assert disk["managedDisk"]["storageAccountType"] == "Premium_LRS"
    assert disk["diskSizeGB"] == 128
    assert disk["deleteOption"] == "Delete"


def test_public_address_of_the_head_only_where_asked(rich):
    (config,) = rich.one("NetworkInterface").inputs["ipConfigurations"]
    assert config["publicIPAddress"]["id"] == rich.named("sunspot-rich-head-ip").id


# The workers


def test_no_worker_has_a_public_address(shipped, rich):
    for run in (shipped, rich):
        for scale_set in scale_sets(run).values():
            network = profile(scale_set)["networkProfile"]
            assert network["networkApiVersion"] == "2022-11-01"
            for nic in network["networkInterfaceConfigurations"]:
                for config in nic["ipConfigurations"]:
                    assert "publicIPAddressConfiguration" not in config
                    assert config["subnet"]["id"].endswith("/subnets/workers")


def test_sets_are_flexible_and_spread(rich):
    for scale_set in scale_sets(rich).values():
        assert scale_set.inputs["orchestrationMode"] == "Flexible"
        assert scale_set.inputs["platformFaultDomainCount"] == 1
        assert scale_set.inputs["singlePlacementGroup"] is False
        assert "upgradePolicy" not in scale_set.inputs
        assert "overprovision" not in scale_set.inputs


@pytest.mark.parametrize(
    ("name", "spot"),
    [("fixed", True), ("gpu", True), ("both", True), ("both-on-demand", False), ("steady", False)],
)
def test_market(rich, name, spot):
    found = profile(scale_sets(rich)[name])
    if spot:
        assert found["priority"] == "Spot"
        assert found["evictionPolicy"] == "Delete"
        assert found["billingProfile"] == {"maxPrice": -1}
        assert "scheduledEventsProfile" not in found  # Azure refuses it for spot
    else:
        assert found["priority"] == "Regular"
        assert not found.keys() & {"evictionPolicy", "billingProfile"}
        notice = found["scheduledEventsProfile"]["terminateNotificationProfile"]
        assert notice == {"enable": True, "notBeforeTimeout": "PT5M"}


@pytest.mark.parametrize(
    ("name", "capacity", "owner", "restored"),
    [
        ("fixed", 2, "pulumi", True),
        ("steady", 1, "pulumi", False),
        ("gpu", 0, "autoscaler", False),
        ("both", 0, "autoscaler", False),
        ("both-on-demand", 0, "autoscaler", False),
    ],
)
def test_who_sets_the_number_of_workers(rich, name, capacity, owner, restored):
    scale_set = scale_sets(rich)[name]
    assert scale_set.inputs["sku"]["capacity"] == capacity
    assert scale_set.ignore_changes == ([] if owner == "pulumi" else ["sku.capacity"])
    policy = scale_set.inputs.get("spotRestorePolicy")
    assert policy == ({"enabled": True, "restoreTimeout": "PT1H"} if restored else None)


def test_sets_are_replaced_only_where_azure_may_refuse_a_change(rich):
    for scale_set in scale_sets(rich).values():
        assert {
            "orchestrationMode",
            "virtualMachineProfile.priority",
            "virtualMachineProfile.storageProfile.imageReference.offer",
            "sku.name",
        } <= set(scale_set.replace_on_changes)
        assert "virtualMachineProfile.osProfile.customData" not in scale_set.replace_on_changes
        assert scale_set.delete_before_replace


def test_a_worker_carries_the_boot_that_the_heads_settings_want(rich):
    wanted = parse(decoded(rich.one("VirtualMachine").inputs["userData"])).boots
    found = scale_sets(rich)
    assert wanted.keys() == found.keys()
    for name, scale_set in found.items():
        data = scale_set.inputs["virtualMachineProfile"]["osProfile"]["customData"]
        text = readable(base64.b64decode(data)).decode()
        assert f",sunspot/boot={wanted[name]} " in text
    assert len({*wanted.values()}) == len(wanted)


@pytest.mark.parametrize(
    ("size", "ephemeral"),
    [
        ("Standard_D4s_v5", False),  # no temporary disk
        ("Standard_F8s_v2", True),
        ("Standard_NC4as_T4_v3", True),
        ("Standard_NC24ads_A100_v4", True),
    ],
)
def test_disk_of_a_worker(size, ephemeral):
    made = build(make_stack(group("g", size)))
    disk = profile(scale_sets(made)["g"])["storageProfile"]["osDisk"]
    assert disk["createOption"] == "FromImage"
    assert disk["deleteOption"] == "Delete"
    if ephemeral:
        assert disk["diffDiskSettings"] == {"option": "Local", "placement": "ResourceDisk"}
        assert disk["caching"] == "ReadOnly"
        assert not disk.keys() & {"diskSizeGB", "managedDisk"}
    else:
        assert disk["managedDisk"]["storageAccountType"] == "Premium_LRS"


def test_names_fit_azures_limit():
    made = build(make_stack(group("gpus", market="spot-with-fallback"), name="production01"))
    longest = max(len(one.inputs["vmScaleSetName"]) for one in scale_sets(made).values())
    assert longest + len("_12345678") == 44


# Both


def machines(run):
    return [run.one("VirtualMachine"), *run.of("VirtualMachineScaleSet")]


def test_trusted_launch_and_boot_diagnostics(shipped):
    for machine in machines(shipped):
        assert body(machine)["securityProfile"] == {
            "securityType": "TrustedLaunch",
            "uefiSettings": {"secureBootEnabled": True, "vTpmEnabled": True},
        }
        assert body(machine)["diagnosticsProfile"] == {"bootDiagnostics": {"enabled": True}}


def test_amd_drivers_come_with_the_system_and_are_not_signed(amd_without_infiniband):
    size, image = "Standard_ND96isr_MI300X_v5", "registry.test/rocm:1"
    made = build(make_stack(group("amd", size), head=size, image={"reference": image}))
    for machine in machines(made):
        uefi = body(machine)["securityProfile"]["uefiSettings"]
        assert uefi == {"secureBootEnabled": False, "vTpmEnabled": True}
        assert body(machine)["storageProfile"]["imageReference"]["sku"] == "2404-rocm"
        env = environment(machine)
        assert env["SUNSPOT_DRIVER"] == "rocm"
        assert env["SUNSPOT_ACCELERATOR"] == "AMD-Instinct-MI300X-OAM"
        assert env["SUNSPOT_IMAGE"] == image


def test_all_other_machines_run_ubuntu_of_canonical(rich):
    publishers = {body(m)["storageProfile"]["imageReference"]["publisher"] for m in machines(rich)}
    assert publishers == {"Canonical"}


GALLERY_IMAGE = (
    "/subscriptions/s/resourceGroups/images/providers/Microsoft.Compute/galleries/g/images/mine"
    "/versions/1.2.3"
)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (GALLERY_IMAGE, {"id": GALLERY_IMAGE}),
        (
            "a:b:c:latest",
            {"publisher": "a", "offer": "b", "sku": "c", "version": "latest"},
        ),
    ],
)
def test_all_machines_are_made_from_the_stacks_own_image(text, reference):
    made = build(
        make_stack(group("a"), group("gpu", "Standard_NC4as_T4_v3"), image={"vm_image": text})
    )
    found = [body(m)["storageProfile"]["imageReference"] for m in machines(made)]
    assert found == [reference] * 3


def test_login_is_only_by_key(rich):
    for machine in machines(rich):
        linux = body(machine)["osProfile"]["linuxConfiguration"]
        assert linux["disablePasswordAuthentication"] is True
        (key,) = linux["ssh"]["publicKeys"]
        assert key["keyData"] == PUBLIC_KEY
        assert "adminPassword" not in body(machine)["osProfile"]


# User data


def test_user_data_is_cloud_config_within_azures_limit(shipped):
    for machine in machines(shipped):
        data = user_data(machine)
        assert len(data) <= MAX_BYTES
        assert readable(data).startswith(b"#cloud-config\n")
        assert cloud_config(data)["write_files"]


def test_no_secret_is_in_user_data(rich):
    token = rich.one("Secret").inputs["properties"]["value"]
    assert len(token) == 64
    for machine in machines(rich):
        assert not machine.secret_inputs
        assert token.encode() not in readable(user_data(machine))
        for text in written(machine).values():
            assert token not in text


def test_head_is_told_its_own(rich):
    env = environment(rich.one("VirtualMachine"))
    identity = rich.named("sunspot-rich-head")
    assert env["SUNSPOT_ROLE"] == "head"
    assert env["SUNSPOT_IDENTITY_CLIENT_ID"] == client_of(identity.id)
    assert env["SUNSPOT_HEAD_ADDRESS"] == "10.60.128.4"
    assert env["SUNSPOT_VAULT_URL"] == "https://sunspot1a2b3c4d.vault.azure.net"
    assert env["SUNSPOT_TOKEN_SECRET"] == "ray-token"
    assert env["SUNSPOT_DRIVER"] == "nvidia"
    assert "/rayproject/ray:" in env["SUNSPOT_IMAGE"]
    assert env["SUNSPOT_IMAGE"].endswith("-gpu")


def test_workers_are_told_their_own(rich):
    sets = scale_sets(rich)
    twin = environment(sets["both-on-demand"])
    told = (twin["RAY_NODE_TYPE_NAME"], twin["RAY_NODE_MARKET_TYPE"])
    assert told == ("both-on-demand", "on-demand")
    assert twin["SUNSPOT_SCALE_SET"] == "sunspot-rich-both-on-demand"
    assert environment(sets["both"])["RAY_NODE_MARKET_TYPE"] == "spot"
    identity = rich.named("sunspot-rich-workers")
    assert twin["SUNSPOT_IDENTITY_CLIENT_ID"] == client_of(identity.id)
    assert not twin["SUNSPOT_IMAGE"].endswith("-gpu")
    gpu = environment(sets["gpu"])
    assert (gpu["SUNSPOT_GPUS"], gpu["SUNSPOT_ACCELERATOR"]) == ("1", "T4")


def test_autoscaler_knows_only_the_elastic_pools(rich):
    config = autoscaler(rich)
    types = config["available_node_types"]
    assert set(types) == {"head", "gpu", "both", "both-on-demand"}
    assert types["gpu"]["max_workers"] == 4
    assert types["gpu"]["resources"]["accelerator_type:T4"] == 1
    assert (types["both"]["min_workers"], types["both-on-demand"]["min_workers"]) == (1, 0)
    assert types["both"]["priority"] > types["both-on-demand"]["priority"]
    assert config["provider"]["scale_sets"]["gpu"] == "sunspot-rich-gpu"
    assert config["provider"]["resource_group"] == "sunspot-rich1a2b3c4d"
    assert config["provider"]["head"] == rich.one("VirtualMachine").inputs["vmName"]
    assert config["provider"]["twins"] == {"both": "both-on-demand"}
    assert environment(rich.one("VirtualMachine"))["SUNSPOT_AUTOSCALED"] == "1"
    for scale_set in rich.of("VirtualMachineScaleSet"):
        assert "userData" not in profile(scale_set)


def test_the_settings_have_the_prices_of_all_node_types(rich):
    assert set(live(rich).prices) == {"head", *scale_sets(rich)}


def test_the_settings_change_in_place(rich):
    replaced = rich.one("VirtualMachine").replace_on_changes
    assert not [path for path in replaced if path.startswith("userData")]


def test_without_elastic_groups_there_is_no_autoscaler():
    made = build(make_stack(group("a"), group("b", market="on-demand")))
    assert live(made).autoscaler is None
    assert environment(made.one("VirtualMachine"))["SUNSPOT_AUTOSCALED"] == ""


def test_settings_that_azure_would_not_take_are_refused_before_the_first_resource(monkeypatch):
    monkeypatch.setattr("cloud_init.live.MAX_USER_DATA_BYTES", 2_500)
    with pytest.raises(UsageError, match=r"4 node types have \d+ bytes.* at most 2500.*: 2 node"):
        build(make_stack(*(group(name, max_workers=4) for name in "abcd")))


def test_a_fixed_group_that_falls_back_is_the_autoscalers():
    made = build(make_stack(group("a", market="spot-with-fallback", min_workers=2, max_workers=2)))
    config = autoscaler(made)
    limits = {
        name: (kind["min_workers"], kind["max_workers"])
        for name, kind in config["available_node_types"].items()
    }
    assert limits == {"head": (0, 0), "a": (2, 2), "a-on-demand": (0, 2)}
    for scale_set in made.of("VirtualMachineScaleSet"):
        # Pulumi makes none of its machines: where spot is refused, that would fail the creation.
        assert scale_set.inputs["sku"]["capacity"] == 0
        assert scale_set.ignore_changes == ["sku.capacity"]
        assert "spotRestorePolicy" not in scale_set.inputs


def test_another_number_of_fixed_workers_changes_only_their_scale_set():
    def made(count):
        run = build(
            make_stack(
                group("fixed", min_workers=count, max_workers=count), group("b", max_workers=2)
            )
        )
        return {r.urn: r.inputs for r in run.resources if r.kind != "Secret"}

    two, three = made(2), made(3)
    changed = [urn for urn in two if two[urn] != three[urn]]
    assert [urn.rsplit("::", 1)[1] for urn in changed] == ["sunspot-test-fixed-vmss"]


def test_twenty_groups_fit_the_user_data():
    groups = [
        group(f"gpu-{i:02}-{'x' * 5}", "Standard_NC4as_T4_v3", min_workers=0, max_workers=4)
        for i in range(TWENTY)
    ]
    groups = [{**g, "market": "spot-with-fallback"} for g in groups]
    made = build(make_stack(*groups))
    assert len(made.of("VirtualMachineScaleSet")) == 2 * TWENTY
    assert max(len(user_data(machine)) for machine in machines(made)) < MAX_BYTES
