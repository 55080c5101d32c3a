"""Identities, what they may do, and what is guarded: the token, the results, the registry."""

import re
import uuid
from urllib.parse import urlsplit

import pytest
from azure_model import blob_endpoints
from azure_model.answers import principal_of
from azure_model.pulumi_mocks import texts
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from builds import ROOT, build, group, make_stack

from infra import roles

PAGE = (ROOT / "docs/security.md").read_text()
ROLE_NAMES = {
    roles.ACR_PULL: "pull",
    roles.BLOB_DATA_CONTRIBUTOR: "blobs",
    roles.KEY_VAULT_SECRETS_USER: "secret",
    roles.READER: "image",
}


def rights(run, identity):
    """(role, last two parts of the scope) of an identity."""
    (found,) = [i for i in run.of("UserAssignedIdentity") if i.name.endswith(f"-{identity}")]
    own = {r.id.rsplit("/", 1)[1]: r.name.rsplit("-", 1)[1] for r in run.of("RoleDefinition")}
    names = {**ROLE_NAMES, **own}
    return {
        (
            names[r.inputs["roleDefinitionId"].rsplit("/", 1)[1]],
            "/".join(r.inputs["scope"].split("/")[-2:]),
        )
        for r in run.of("RoleAssignment")
        if r.inputs["principalId"] == principal_of(found.id)
    }


def test_workers_read_one_secret_write_one_container_and_leave_their_sets(shipped, rich):
    for run in (shipped, rich):
        sets = {one.inputs["vmScaleSetName"] for one in run.of("VirtualMachineScaleSet")}
        assert rights(run, "workers") == {
            ("secret", "secrets/ray-token"),
            ("blobs", "containers/results"),
            ("pull", "registries/sunspot1a2b3c4d"),
            *(("leaver", f"virtualMachineScaleSets/{name}") for name in sets),
            ("leaving", "/".join(run.one("ResourceGroup").id.split("/")[-2:])),
        }


def test_workers_that_stay_without_their_head_may_delete_nothing():
    made = build(make_stack(group(), orphan_after=0))
    assert {role for role, _ in rights(made, "workers")} == {"secret", "blobs", "pull"}
    assert made.of("RoleDefinition") == []


def test_only_the_head_changes_scale_sets_and_only_elastic_ones(rich):
    assert rights(rich, "head") == {
        ("secret", "secrets/ray-token"),
        ("blobs", "containers/results"),
        ("pull", "registries/sunspot1a2b3c4d"),
        ("scaler", "virtualMachineScaleSets/sunspot-rich-gpu"),
        ("scaler", "virtualMachineScaleSets/sunspot-rich-both"),
        ("scaler", "virtualMachineScaleSets/sunspot-rich-both-on-demand"),
        ("scaler", "subnets/workers"),
        ("scaler", "userAssignedIdentities/sunspot-rich-workers1a2b3c4d"),
        ("machines", "resourceGroups/sunspot-rich1a2b3c4d"),
    }


def test_the_roles_hold_what_is_asked_for_and_nothing_more(rich):
    allowed = {
        r.name.rsplit("-", 1)[1]: [set(p["actions"]) for p in r.inputs["permissions"]]
        for r in rich.of("RoleDefinition")
    }
    sets = "Microsoft.Compute/virtualMachineScaleSets"
    assert allowed == {
        "scaler": [
            {
                f"{sets}/read",
                f"{sets}/write",
                f"{sets}/delete/action",
                "Microsoft.Network/virtualNetworks/subnets/join/action",
                "Microsoft.Network/networkSecurityGroups/join/action",
                "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
            }
        ],
        "machines": [
            {
                *(
                    f"Microsoft.Compute/virtualMachines/{what}"
                    for what in (
                        "read",
                        "write",
                        "delete",
                        "retrieveBootDiagnosticsData/action",
                    )
                ),
                *(f"Microsoft.Compute/disks/{what}" for what in ("read", "write", "delete")),
                *(
                    f"Microsoft.Network/networkInterfaces/{what}"
                    for what in ("read", "write", "delete", "join/action")
                ),
            }
        ],
        "leaver": [{f"{sets}/delete/action"}],
        "leaving": [
            {
                "Microsoft.Compute/virtualMachines/delete",
                "Microsoft.Compute/disks/delete",
                "Microsoft.Network/networkInterfaces/delete",
            }
        ],
    }
    for made in rich.of("RoleDefinition"):
        assert "*" not in str(made.inputs["permissions"])
        assert made.inputs["assignableScopes"] == [rich.one("ResourceGroup").id]
        # Unique in the directory, where other clusters have such roles too.
        assert made.inputs["roleName"].endswith(" sunspot-rich1a2b3c4d")
        assert str(uuid.UUID(made.inputs["roleDefinitionId"]))


def test_subnets_of_the_users_may_be_joined_and_their_rules_used():
    group_id = "/subscriptions/s/resourceGroups/theirs"
    subnet = f"{group_id}/providers/Microsoft.Network/virtualNetworks/v/subnets/w"
    ids = {"head": subnet, "workers": subnet}
    made = build(make_stack(group(max_workers=2), network={"subnet_ids": ids}))
    scopes = {scope for role, scope in rights(made, "head") if role == "scaler"}
    assert {"subnets/w", "networkSecurityGroups/sunspot-test-workers-nsg1a2b3c4d"} <= scopes
    own = made.one("ResourceGroup").id
    for definition in made.of("RoleDefinition"):
        is_heads = definition.name.endswith(("-scaler", "-machines"))
        assert definition.inputs["assignableScopes"] == ([own, group_id] if is_heads else [own])


def test_a_fixed_group_that_falls_back_is_the_heads_too():
    made = build(make_stack(group(market="spot-with-fallback")))
    scaled = {scope for role, scope in rights(made, "head") if role == "scaler"}
    assert {
        "virtualMachineScaleSets/sunspot-test-workers",
        "virtualMachineScaleSets/sunspot-test-workers-on-demand",
    } <= scaled


def test_a_head_without_elastic_groups_changes_nothing():
    made = build(make_stack(group(), orphan_after=0))
    assert rights(made, "head") == rights(made, "workers")
    assert made.of("RoleDefinition") == []


def test_only_the_rights_to_machines_cover_the_whole_resource_group(rich):
    ids = rich.by_id()
    for assignment in rich.of("RoleAssignment"):
        if assignment.name.endswith(("-head-manages-machines", "-workers-delete-machines")):
            continue
        scope = assignment.inputs["scope"]
        assert scope in ids or scope.rsplit("/subnets/", 1)[0] in ids
        assert ids.get(scope) is None or ids[scope].kind != "ResourceGroup"


def test_assignments_are_named_by_what_they_say(rich):
    names = [r.inputs["roleAssignmentName"] for r in rich.of("RoleAssignment")]
    assert len(set(names)) == len(names)
    for assignment in rich.of("RoleAssignment"):
        assert str(uuid.UUID(assignment.inputs["roleAssignmentName"]))
        assert assignment.inputs["principalType"] == "ServicePrincipal"
        assert assignment.inputs["roleDefinitionId"].startswith(f"/subscriptions/{SUBSCRIPTION}/")


def test_each_machine_has_its_own_identity_and_waits_for_its_rights(rich):
    by_urn = {r.urn: r for r in rich.resources}
    head, workers = rich.named("sunspot-rich-head"), rich.named("sunspot-rich-workers")
    for machine, identity in (
        (rich.one("VirtualMachine"), head),
        *((s, workers) for s in rich.of("VirtualMachineScaleSet")),
    ):
        assert machine.inputs["identity"] == {
            "type": "UserAssigned",
            "userAssignedIdentities": [identity.id],
        }
        waits = [by_urn[urn] for urn in machine.depends_on if urn in by_urn]
        granted = {r.inputs["principalId"] for r in waits if r.kind == "RoleAssignment"}
        assert granted == {principal_of(identity.id)}


# The token


def test_token_is_random_and_a_secret(rich):
    secret = rich.one("Secret")
    assert secret.secret_inputs == {"properties"}
    token = secret.inputs["properties"]["value"]
    assert int(token, 16)
    assert token != build(make_stack()).one("Secret").inputs["properties"]["value"]


def test_token_is_kept_after_its_creation_and_goes_with_its_vault(rich):
    secret = rich.one("Secret")
    assert secret.ignore_changes == ["properties.value"]
    assert secret.deleted_with == rich.one("Vault").urn


def test_token_is_nowhere_else(rich):
    token = rich.one("Secret").inputs["properties"]["value"]
    rest = [r.inputs for r in rich.resources if r.kind != "Secret"]
    assert not [text for text in texts([rest, rich.outputs]) if token in text]


def test_vault_grants_by_roles(rich):
    properties = rich.one("Vault").inputs["properties"]
    assert properties["enableRbacAuthorization"] is True
    assert properties["tenantId"] == TENANT
    assert "accessPolicies" not in properties
    assert "enablePurgeProtection" not in properties


# The results


def test_storage_has_no_keys_and_no_public(shipped):
    account = shipped.one("StorageAccount").inputs
    assert account["allowSharedKeyAccess"] is False
    assert account["allowBlobPublicAccess"] is False
    assert account["enableHttpsTrafficOnly"] is True
    assert account["minimumTlsVersion"] == "TLS1_2"
    assert shipped.one("BlobContainer").inputs["publicAccess"] == "None"


@pytest.mark.parametrize("protect", [True, False])
def test_protection_is_the_settings(protect):
    made = build(make_stack(storage={"protect": protect, "retention_days": 7}))
    protected = {r.kind for r in made.resources if r.protect}
    results = {"StorageAccount", "BlobContainer", "ManagementPolicy"}
    # The head always is, with the disk of the cluster's state.
    assert protected == {"VirtualMachine", "Disk", *(results if protect else ())}
    (rule,) = made.one("ManagementPolicy").inputs["policy"]["rules"]
    delete = rule["definition"]["actions"]["baseBlob"]["delete"]
    assert delete == {"daysAfterModificationGreaterThan": 7}
    assert rule["definition"]["filters"]["prefixMatch"] == ["results/"]


def test_deleted_results_can_be_brought_back(shipped):
    services = shipped.one("BlobServiceProperties").inputs
    for policy in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy"):
        assert services[policy] == {"enabled": True, "days": 7}


# VM images

IMAGE = "/subscriptions/s/resourceGroups/i/providers/Microsoft.Compute/galleries/g/images/mine"


@pytest.mark.parametrize(
    ("text", "elastic", "scopes"),
    [(f"{IMAGE}/versions/1.0.0", True, [IMAGE]), (IMAGE, False, []), ("a:b:c:d", True, [])],
)
def test_a_head_that_makes_machines_may_read_their_image(text, elastic, scopes):
    workers = group(min_workers=0, max_workers=2) if elastic else group()
    made = build(make_stack(workers, image={"vm_image": text}))
    found = [a for a in made.of("RoleAssignment") if a.name.endswith("head-reads-image")]
    assert [assignment.inputs["scope"] for assignment in found] == scopes


def answered(run, **changes):
    """What each of the results' endpoints answers: endpoint -> HTTP status."""
    account = run.one("StorageAccount").inputs | changes
    services = run.one("BlobServiceProperties").inputs
    return {end: blob_endpoints.status(end, account, services) for end in ("blob", "dfs")}


def test_spark_and_adlfs_open_the_address_of_the_results(shipped):
    host = urlsplit(shipped.outputs["storage_url"]).hostname
    assert host.partition(".")[2] == "dfs.core.windows.net"
    assert answered(shipped) == {"blob": 200, "dfs": 200}
    # The check can fail.
    assert answered(shipped, isHnsEnabled=False) == {"blob": 200, "dfs": 409}


def test_an_older_stacks_account_is_not_replaced_for_another_namespace(shipped):
    assert shipped.one("StorageAccount").ignore_changes == ["isHnsEnabled"]


# The registry


@pytest.fixture
def built(tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "Dockerfile").write_text("FROM rayproject/ray\n")
    return build(make_stack(group(max_workers=2), image={"context": "image"}), tmp_path)


def test_an_image_is_built_and_used_by_its_digest(built, tmp_path):
    from test_nodes import environment, machines

    image = built.one("Image")
    assert image.inputs["context"] == {"location": str(tmp_path / "image")}
    assert image.inputs["push"] is True
    assert "registries" in image.secret_inputs
    for machine in machines(built):
        env = environment(machine)
        assert env["SUNSPOT_IMAGE"] == "sunspot1a2b3c4d.azurecr.io/sunspot/ray@sha256:" + "0" * 64
        assert env["SUNSPOT_REGISTRY"] == "sunspot1a2b3c4d.azurecr.io"


def test_both_identities_may_pull_from_the_registry(built):
    for identity in ("head", "workers"):
        assert any(role == "pull" for role, _ in rights(built, identity))


# The page


# Azure's names of the built-in roles, as the page has them.
ON_THE_PAGE = {
    "Key Vault Secrets User": "secret",
    "Storage Blob Data Contributor": "blobs",
    "AcrPull": "pull",
    "Reader": "image",
}


def named_on_the_page():
    """(identity, role) of the table in docs/security.md."""
    rows = re.findall(r"^\| (both|head|workers) \| ([^|]+?)(?: \(custom\))? \|", PAGE, re.MULTILINE)
    both = ("head", "workers")
    return {
        (identity, ON_THE_PAGE.get(role, role))
        for who, role in rows
        for identity in (both if who == "both" else [who])
    }


def test_the_page_names_every_right_of_a_job(rich, built):
    elastic = group(min_workers=0, max_workers=2)
    baked = build(make_stack(elastic, image={"vm_image": f"{IMAGE}/versions/1.0.0"}))
    stops = build(make_stack(elastic, idle={"action": "stop-head"}))
    given = {
        (identity, role)
        for run in (rich, built, baked, stops)
        for identity in ("head", "workers")
        for role, _ in rights(run, identity)
    }
    assert named_on_the_page() == given
