"""What must be refused before the first resource, and by which words."""

import pytest
from azure_model.pulumi_mocks import run_program
from builds import ROOT, SHIPPED, build, group, make_stack, told

from sunspot import stack as stacks
from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.azure.settings import AzureSettings, Network


def refusal(stack, folder=ROOT):
    """What the program says of a stack; it must make nothing."""
    from infra import program

    said = []

    def attempt():
        with pytest.raises(UsageError) as caught:
            program.build(stack, folder)
        said.append(str(caught.value))
        return {}

    assert run_program(attempt).resources == []
    return said[0]


def test_missing_ssh_key(tmp_path):
    stack = make_stack(access={"ssh_public_key": None, "ssh_public_key_file": "keys/me.pub"})
    message = refusal(stack, tmp_path)
    assert f"no SSH key in {tmp_path / 'keys' / 'me.pub'}" in message
    assert "ssh-keygen -t ed25519" in message


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_stacks_take_the_users_own_key(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    message = refusal(stacks.load(name, ROOT))
    assert str(tmp_path / ".ssh" / "id_ed25519.pub") in message


def test_private_key_is_refused_and_not_repeated(tmp_path):
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nverysecret\n")
    stack = make_stack(access={"ssh_public_key": None, "ssh_public_key_file": "id"})
    message = refusal(stack, tmp_path)
    assert "private key" in message
    assert "verysecret" not in message


def test_key_file_that_is_not_text(tmp_path):
    (tmp_path / "id").write_bytes(b"\xff\xfe\x00")
    stack = make_stack(access={"ssh_public_key": None, "ssh_public_key_file": "id"})
    assert "is not text" in refusal(stack, tmp_path)


def test_missing_region():
    message = refusal(told(make_stack(), location=None))
    assert "azure-native:location: missing" in message
    assert "pulumi config set azure-native:location uksouth" in message


def test_a_size_that_the_region_does_not_have():
    stack = told(
        make_stack(
            group("t4", "Standard_NC4as_T4_v3"),
            group("also", "Standard_NC4as_T4_v3"),
            group("a100", "Standard_NC24ads_A100_v4"),
        ),
        location="ukwest",
    )
    first, t4, a100 = refusal(stack).splitlines()
    assert first == "stack test on azure:"
    assert "azure-native:location: ukwest has no Standard_NC4as_T4_v3 (for t4, also)" in t4
    assert "(australiacentral, " in t4
    assert " uksouth, " in t4
    assert "sunspot:check_region: false" in t4
    assert "ukwest has no Standard_NC24ads_A100_v4 (for a100)" in a100
    assert made_of(told(stack, check_region=False))


@pytest.mark.parametrize(
    ("size", "region"),
    [
        ("Standard_D4s_v5", "ukwest"),  # which has it
        ("Standard_NC4as_T4_v3", "italynorth"),  # a region that the list does not know
        ("Standard_NC40ads_H100_v5", "ukwest"),  # a size that it does not know
    ],
)
def test_sizes_and_regions_that_the_list_lacks_are_not_refused(size, region):
    assert made_of(told(make_stack(group("g", size)), location=region))


def made_of(stack):
    return build(stack).of("VirtualMachineScaleSet")


def test_missing_build_context(tmp_path):
    message = refusal(make_stack(image={"context": "image"}), tmp_path)
    assert f"sunspot:image > context: there is no folder {tmp_path / 'image'}" in message


def test_a_name_that_docker_hub_cannot_have():
    message = refusal(make_stack(image={"reference": "Me/ray:1"}))
    assert "config > sunspot:image > reference: 'Me/ray:1'" in message
    elsewhere = make_stack(image={"reference": "registry.test/Me/ray:1"})
    assert build(elsewhere).one("VirtualMachine")


def test_missing_dockerfile(tmp_path):
    (tmp_path / "image").mkdir()
    message = refusal(make_stack(image={"context": "image", "dockerfile": "D"}), tmp_path)
    assert f"there is no file {tmp_path / 'image' / 'D'}" in message


def test_address_space_too_small_for_the_workers():
    stack = make_stack(
        group("a", max_workers=100),
        group("b", market="spot-with-fallback", max_workers=20),
        network={"address_space": "10.0.0.0/24"},
    )
    message = refusal(stack)
    assert "sunspot:network > address_space: 10.0.0.0/24 is too small for 140 workers" in message
    assert "123 fit, give a /23 or larger" in message
    bigger = told(stack, network=Network(address_space="10.0.0.0/23"))
    assert build(bigger).one("VirtualNetwork")


def test_address_space_without_room_for_the_subnets():
    message = refusal(make_stack(network={"address_space": "10.0.0.0/25"}))
    assert "10.0.0.0/25 is a /25: give one from /8 to /24" in message


def test_infiniband_on_any_node():
    size = "Standard_ND96isr_H100_v5"
    _, head, worker = refusal(make_stack(group("a"), group("b", size), head=size)).splitlines()
    assert f"config > sunspot:cluster > head_node: {size} has InfiniBand" in head
    assert f"sunspot:cluster > scaling_groups[1] > worker_nodes: {size} has InfiniBand" in worker


def test_gpus_that_need_another_driver():
    size = "Standard_NV36ads_A10_v5"
    (_, problem) = refusal(make_stack(group("a", size))).splitlines()
    assert f"scaling_groups[0] > worker_nodes: {size}" in problem
    assert "GRID" in problem
    assert "Standard_NC4as_T4_v3" in problem


@pytest.mark.parametrize(
    ("name", "word"), [("Standard_D8ps_v6", "Arm"), ("Standard_ND96isr_X100_v9", "InfiniBand")]
)
def test_an_unlisted_size_whose_name_says_that_it_cannot_be_used(name, word):
    shape = {"vm_size": name, "cpu": 8, "memory_gb": 32}
    (_, problem) = refusal(make_stack(group("a") | {"worker_nodes": shape})).splitlines()
    assert f"scaling_groups[0] > worker_nodes: {name} has {word}" in problem


AMD = "Standard_ND96isr_MI300X_v5"


def test_the_amd_size_has_infiniband_before_all():
    (_, problem) = refusal(make_stack(head=AMD)).splitlines()
    assert f"head_node: {AMD} has InfiniBand" in problem


def test_amd_gpus_need_an_image_of_ones_own(amd_without_infiniband):
    stack = make_stack(group("a", AMD), head=AMD)
    _, head, worker = refusal(stack).splitlines()
    for key, problem in (("head_node", head), ("scaling_groups[0] > worker_nodes", worker)):
        assert f"config > sunspot:cluster > {key}: {AMD} has AMD GPUs" in problem
        assert "sunspot:image > reference" in problem
    own = make_stack(group("a", AMD), head=AMD, image={"reference": "registry.test/rocm:1"})
    assert build(own).one("VirtualMachine")


@pytest.mark.parametrize("name", ["Dev", "a.b", "a_b", "a-"])
def test_stack_names_that_cannot_name_machines(name):
    assert f"stack name {name!r} cannot name machines" in refusal(make_stack(name=name))


@pytest.mark.parametrize(
    ("market", "letters"), [("spot", 24), ("on-demand", 24), ("spot-with-fallback", 14)]
)
def test_names_that_are_too_long_together(market, letters):
    # `sunspot-` + name + `-` + group; the twin of a group that falls back adds `-on-demand`.
    fits = make_stack(group("a" * letters, market=market), name="bb")
    assert made_of(fits)
    message = refusal(make_stack(group("a" * letters, market=market), name="b" * 3))
    assert "has 36 characters, at most 35 fit" in message
    assert f"sunspot-bbb-{'a' * letters}" in message


def test_a_long_name_without_groups_is_only_the_heads():
    assert build(make_stack(name="b" * 51)).one("VirtualMachine")
    assert "has 65 characters, Azure allows 64" in refusal(make_stack(name="b" * 52))


def test_bastion_in_a_network_of_the_users():
    subnet = (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/a"
    )
    ids = {"head": subnet, "workers": subnet}
    stack = make_stack(network={"subnet_ids": ids}, access={"bastion": True})
    assert "sunspot:access > bastion" in refusal(stack)


def test_all_problems_come_at_once():
    stack = told(
        make_stack(access={"ssh_public_key": None, "ssh_public_key_file": "none"}), location=None
    )
    first, *problems = refusal(stack).splitlines()
    assert first == "stack test on azure:"
    assert len(problems) == 2


# Already in the stack file


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("location", "UK South", "such as uksouth"),
        ("location", "uk-south", "such as uksouth"),
        ("public_ip", True, "public_ip without ssh_cidrs"),
        ("public_ip", "yes", "is neither true nor false"),
        ("ssh_public_key", "hello", "ssh-ed25519 or ssh-rsa"),
        ("ssh_public_key", "ssh-ed25519 AAAA", "second word"),
        ("ssh_public_key", "ecdsa-sha2-nistp256 AAAA", "ssh-ed25519 or ssh-rsa"),
        ("serve_cidr", [], "unknown key (did you mean serve_cidrs?)"),
        ("ssh_cidr", [], "unknown key (did you mean ssh_cidrs?)"),
    ],
)
def test_region_and_access(key, value, expected):
    block = {"sunspot:cluster": {"head_node": {"vm_size": "Standard_D4s_v5"}}}
    if key == "location":
        block["azure-native:location"] = value
    else:
        block["sunspot:access"] = {key: value}
    with pytest.raises(UsageError) as caught:
        Stack.parse(block, name="dev")
    assert expected in str(caught.value)
    assert key.partition("_")[0] in str(caught.value)


@pytest.mark.parametrize("key", ["ssh_cidrs", "serve_cidrs"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["0.0.0.0/0"], "is the whole internet"),
        (["::/0"], "is the whole internet"),
        (["*"], "is the whole internet"),
        (["Internet"], "is the whole internet"),
        (["0.0.0.0/1", "128.0.0.0/1"], "at most a /16 is allowed"),
        (["203.0.0.0/15"], "131072 addresses"),
        (["203.0.113.7/24"], "'203.0.113.7/24'"),
        (["2001:db8::/64"], "is IPv6"),
        (["home"], "'home'"),
        ("203.0.113.7/32", "is not a list"),
    ],
)
def test_networks_that_may_not_come_in(key, value, expected):
    with pytest.raises(UsageError) as caught:
        make_stack(access={key: value})
    assert f"sunspot:access > {key}" in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("block", ["10.1.0.0/16", "192.168.0.0/16", "203.0.113.7", "8.8.0.0/16"])
def test_blocks_of_one_organisation_may_come_in(block):
    stack = make_stack(access={"ssh_cidrs": [block]})
    assert AzureSettings.of(stack).access.ssh_cidrs[0].startswith(block)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("network", {"address_space": "8.8.0.0/16"}, "is not private"),
        ("network", {"address_space": "10.0.0.1/16"}, "'10.0.0.1/16'"),
        ("network", {"subnet_ids": {"head": "x", "workers": "y"}}, "'x'"),
        ("network", {"subnet_ids": {}}, "subnet_ids > head: missing: give ARM id"),
        ("network", {"subnet_ids": "x"}, "is not a mapping"),
        ("image", {"reference": "a b"}, "is not an image reference"),
        ("image", {"reference": "a", "context": "."}, "reference and context are both given"),
        ("image", {"dockerfile": "D"}, "dockerfile"),
        ("image", {"mirror": "no"}, "sunspot:image > mirror"),
        ("image", "rayproject/ray", "is not a mapping"),
        ("storage", {"retention_days": 0}, "give 1 or more"),
        ("storage", {"retention_days": 99999}, "give 36500 or less"),
        ("storage", {"protect": 1}, "is neither true nor false"),
        ("orphan_after", 14, "give 15 to 10080"),
        ("orphan_after", 10081, "give 15 to 10080"),
        ("orphan_after", -30, "give 15 to 10080"),
        ("orphan_after", "soon", "sunspot:orphan_after"),
        ("orphan_after", True, "sunspot:orphan_after"),
        ("owner", "", "give 1 to 256"),
        ("tags", {"stack": "x"}, "'stack' is set by Sunspot"),
        ("tags", {"a/b": "x"}, "'a/b'"),
        ("tags", {"a": 1}, "is not text"),
        ("tags", {"a": "x" * 300}, "at most 256"),
        ("tags", {str(i): "x" for i in range(50)}, "are too many: at most 40"),
        ("tags", [], "is not a mapping"),
    ],
)
def test_other_settings(key, value, expected):
    with pytest.raises(UsageError) as caught:
        make_stack(**{key: value})
    message = str(caught.value)
    assert f"config > sunspot:{key}" in message
    assert expected in message
    assert len(message.splitlines()) <= 3


def test_subnets_of_two_networks():
    start = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks"
    ids = {"head": f"{start}/v/subnets/a", "workers": f"{start}/w/subnets/a"}
    with pytest.raises(UsageError, match="in different networks"):
        make_stack(network={"subnet_ids": ids})


def test_two_groups_of_one_name():
    with pytest.raises(UsageError, match="would both make node type 'a'"):
        make_stack(group("a"), group("a"))


def test_more_workers_than_a_scale_set_can_have():
    message = refusal(make_stack(group(max_workers=1000), group("b", max_workers=1001)))
    assert "scaling_groups[1] > max_workers: 1001" in message
    assert "1000" in message
    assert "scaling_groups[0]" not in message


def test_an_image_with_another_ray_than_the_stacks():
    message = refusal(make_stack(image={"reference": "rayproject/ray:2.9.0-py311"}))
    assert "sunspot:image > reference" in message
    assert "2.9.0" in message
    assert "2.60.0" in message
