"""The program makes what is declared, and the user data that a preview shows."""

import base64
from collections import Counter

import pytest
from builds import SHIPPED, build, group, make_stack, shipped_stack
from sandbox import cloud_config

from cloud_init import AzureFacts, render
from cloud_init.nodes import node_values
from sunspot.targets.azure.plan import plan
from sunspot.targets.azure.tree import tree

SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/"
GALLERY_IMAGE = (
    "/subscriptions/s/resourceGroups/i/providers/Microsoft.Compute/galleries/g/images/mine"
)
EVERYTHING = (
    group("fixed", min_workers=2, max_workers=2),
    group("steady", market="on-demand", min_workers=1, max_workers=1),
    group("gpu", "Standard_NC4as_T4_v3", min_workers=0, max_workers=4),
    group("both", market="spot-with-fallback", min_workers=1, max_workers=3),
    group("standby", market="spot-with-fallback", min_workers=1, max_workers=1),
)
WAYS_IN = {"public_ip": True, "ssh_cidrs": ["203.0.113.7/32"], "bastion": True}


def built_stack(folder):
    (folder / "image").mkdir()
    (folder / "image" / "Dockerfile").write_text("FROM scratch\n")
    return make_stack(group("gpu", max_workers=3), image={"context": "image"})


STACKS = {
    **{name: lambda _, name=name: shipped_stack(name) for name in SHIPPED},
    "everything": lambda _: make_stack(
        *EVERYTHING, head="Standard_NC4as_T4_v3", access=WAYS_IN, storage={"protect": False}
    ),
    "only fixed": lambda _: make_stack(group(), access={"ssh_cidrs": ["198.51.100.0/24"]}),
    "a twin of a fixed group alone": lambda _: make_stack(group(market="spot-with-fallback")),
    "no workers": lambda _: make_stack(),
    "own subnets": lambda _: make_stack(
        group("gpu", max_workers=2),
        network={"subnet_ids": {"head": SUBNET + "a", "workers": SUBNET + "b"}},
        access={"ssh_cidrs": ["10.0.0.0/8"]},
    ),
    "built-in roles": lambda _: make_stack(*EVERYTHING, access={"custom_roles": False}),
    "built-in roles in own subnets": lambda _: make_stack(
        group("gpu", max_workers=2),
        network={"subnet_ids": {"head": SUBNET + "a", "workers": SUBNET + "b"}},
        access={"custom_roles": False},
    ),
    "a built image": built_stack,
    "a VM image of a gallery": lambda _: make_stack(
        group("gpu", max_workers=2), image={"vm_image": GALLERY_IMAGE}
    ),
}


@pytest.fixture(params=STACKS)
def both(request, tmp_path):
    """A stack's plan, and what the program makes of the stack."""
    stack = STACKS[request.param](tmp_path)
    return plan(stack, tmp_path), build(stack, tmp_path)


def test_the_program_makes_what_is_declared(both):
    planned, made = both
    names = {r.urn: f"{r.type} {r.name}" for r in made.resources}
    registered = Counter((names.get(r.parent, ""), names[r.urn], r.protect) for r in made.resources)
    assert Counter(told(tree(planned))) == registered


def told(resource, parent=""):
    own = f"{resource.type} {resource.name}"
    yield parent, own, resource.protected
    for child in resource.children:
        yield from told(child, own)


def test_user_data_is_that_of_the_program(both):
    planned, made = both
    (head,) = made.of("VirtualMachine")
    sets = {r.inputs["vmScaleSetName"]: r for r in made.of("VirtualMachineScaleSet")}
    sent = {None: head.inputs["osProfile"]["customData"]} | {
        pool: sets[pool.scale_set].inputs["virtualMachineProfile"]["osProfile"]["customData"]
        for pool in planned.pools
    }
    for pool, text in sent.items():
        data = base64.b64decode(text)
        values = node_values(planned, pool, known(data))
        assert render(values) == data


def known(data):
    """What Azure said, out of the node's own environment."""
    files = {file["path"]: file["content"] for file in cloud_config(data)["write_files"]}
    text = files["/etc/sunspot/node.env"]
    env = {k: v.strip("'") for k, _, v in (line.partition("=") for line in text.splitlines())}
    return AzureFacts(
        built_image=env["SUNSPOT_IMAGE"],
        registry=env["SUNSPOT_REGISTRY"] or None,
        head_address=env["SUNSPOT_HEAD_ADDRESS"],
        vault_url=env["SUNSPOT_VAULT_URL"],
        token_secret=env["SUNSPOT_TOKEN_SECRET"],
        storage_url=env["SUNSPOT_STORAGE"],
        subscription_id=env["SUNSPOT_SUBSCRIPTION_ID"],
        resource_group=env["SUNSPOT_RESOURCE_GROUP"],
        identity_client_id=env["SUNSPOT_IDENTITY_CLIENT_ID"],
    )
