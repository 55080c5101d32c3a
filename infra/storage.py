"""Where checkpoints and results go."""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, storage

from infra.identities import Identities
from infra.place import Place
from infra.roles import BLOB_DATA_CONTRIBUTOR, assign
from sunspot.targets.azure.tree import Resource

CONTAINER_NAME = "results"
# How long a deleted blob or container can be restored.
UNDELETE_DAYS = 7


@dataclass(frozen=True, kw_only=True)
class ResultsArgs:
    """Where the account goes, who may write to it, how long a blob is kept."""

    place: Place
    identities: Identities
    retention_days: int


class Results(pulumi.ComponentResource):
    """A storage account without keys, and one container that the nodes may use.

    `url` is what Ray takes as a storage path. Arrow, adlfs and Spark open it.
    """

    url: pulumi.Output[str]
    head_role: authorization.RoleAssignment
    workers_role: authorization.RoleAssignment

    def __init__(
        self, declared: Resource, args: ResultsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        account = _create_account(declared["account"], args.place, parent=self)
        services = _create_undelete(declared["blobs"], args.place, account, parent=self)
        container = _create_container(
            declared["container"], args.place, account, services, parent=self
        )
        _create_lifecycle(
            declared["lifecycle"], args.place, account, args.retention_days, parent=self
        )
        self.url = pulumi.Output.concat(
            "abfss://", CONTAINER_NAME, "@", account.name, ".dfs.core.windows.net/"
        )
        self.head_role = assign(
            declared["head-writes"],
            principal_id=args.identities.head.principal_id,
            role=BLOB_DATA_CONTRIBUTOR,
            scope=container.id,
            parent=self,
        )
        self.workers_role = assign(
            declared["workers-write"],
            principal_id=args.identities.workers.principal_id,
            role=BLOB_DATA_CONTRIBUTOR,
            scope=container.id,
            parent=self,
        )
        self.register_outputs({"url": self.url})


def _create_account(
    declared: Resource, place: Place, *, parent: pulumi.Resource
) -> storage.StorageAccount:
    return storage.StorageAccount(
        declared.name,
        resource_group_name=place.resource_group,
        location=place.location,
        kind=storage.Kind.STORAGE_V2,
        sku=storage.SkuArgs(name=storage.SkuName.STANDARD_LRS),
        # Spark and Iceberg use the dfs endpoint, which refuses an account whose blobs can be
        # undeleted unless its namespace is hierarchical (409 EndpointUnsupportedAccountFeatures).
        is_hns_enabled=True,
        allow_shared_key_access=False,
        default_to_o_auth_authentication=True,
        allow_blob_public_access=False,
        enable_https_traffic_only=True,
        minimum_tls_version=storage.MinimumTlsVersion.TLS1_2,
        tags=place.tags,
        opts=pulumi.ResourceOptions(
            parent=parent,
            protect=declared.protected,
            # Azure cannot change it, so the provider would replace an older stack's account, and
            # delete its results. A new account gets the value above.
            ignore_changes=["isHnsEnabled"],
        ),
    )


def _create_undelete(
    declared: Resource, place: Place, account: storage.StorageAccount, *, parent: pulumi.Resource
) -> storage.BlobServiceProperties:
    policy = storage.DeleteRetentionPolicyArgs(enabled=True, days=UNDELETE_DAYS)
    return storage.BlobServiceProperties(
        declared.name,
        resource_group_name=place.resource_group,
        account_name=account.name,
        blob_services_name="default",  # the only name that Azure allows
        delete_retention_policy=policy,
        container_delete_retention_policy=policy,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _create_container(
    declared: Resource,
    place: Place,
    account: storage.StorageAccount,
    services: storage.BlobServiceProperties,
    *,
    parent: pulumi.Resource,
) -> storage.BlobContainer:
    return storage.BlobContainer(
        declared.name,
        resource_group_name=place.resource_group,
        account_name=account.name,
        container_name=CONTAINER_NAME,
        public_access=storage.PublicAccess.NONE,
        opts=pulumi.ResourceOptions(
            parent=parent, protect=declared.protected, depends_on=[services]
        ),
    )


def _create_lifecycle(
    declared: Resource,
    place: Place,
    account: storage.StorageAccount,
    days: int,
    *,
    parent: pulumi.Resource,
) -> storage.ManagementPolicy:
    delete = storage.DateAfterModificationArgs(days_after_modification_greater_than=days)
    rule = storage.ManagementPolicyRuleArgs(
        name="delete-old",
        type=storage.RuleType.LIFECYCLE,
        enabled=True,
        definition=storage.ManagementPolicyDefinitionArgs(
            filters=storage.ManagementPolicyFilterArgs(
                blob_types=["blockBlob"], prefix_match=[f"{CONTAINER_NAME}/"]
            ),
            actions=storage.ManagementPolicyActionArgs(
                base_blob=storage.ManagementPolicyBaseBlobArgs(delete=delete)
            ),
        ),
    )
    return storage.ManagementPolicy(
        declared.name,
        resource_group_name=place.resource_group,
        account_name=account.name,
        management_policy_name="default",  # the only name that Azure allows
        policy=storage.ManagementPolicySchemaArgs(rules=[rule]),
        opts=pulumi.ResourceOptions(parent=parent, protect=declared.protected),
    )
