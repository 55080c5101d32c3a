"""Where checkpoints and results go."""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, storage

from infra.identities import Identities
from infra.place import PACKAGE, Place
from infra.roles import BLOB_DATA_CONTRIBUTOR, assign

CONTAINER_NAME = "results"
# An account's name is unique in the world, has at most 24 letters and digits, and gets 8 random
# ones.
ACCOUNT_NAME = "sunspot"
# A deleted blob or container can be brought back this long.
UNDELETE_DAYS = 7


@dataclass(frozen=True, kw_only=True)
class ResultsArgs:
    """Where the account is made, who may write, how long a blob stays."""

    place: Place
    identities: Identities
    retention_days: int
    protect: bool


class Results(pulumi.ComponentResource):
    """A storage account without keys, and one container that the nodes may use.

    `url` is what Ray takes as a storage path.
    """

    url: pulumi.Output[str]
    head_role: authorization.RoleAssignment
    workers_role: authorization.RoleAssignment

    def __init__(
        self, name: str, args: ResultsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(f"{PACKAGE}:azure:Results", name, None, opts)
        account = _create_account(args.place, protect=args.protect, parent=self)
        services = _create_undelete(name, args.place, account, parent=self)
        container = _create_container(
            name, args.place, account, services, protect=args.protect, parent=self
        )
        _create_lifecycle(
            name,
            args.place,
            account,
            args.retention_days,
            protect=args.protect,
            parent=self,
        )
        self.url = pulumi.Output.concat(
            "abfss://", CONTAINER_NAME, "@", account.name, ".dfs.core.windows.net/"
        )
        self.head_role = assign(
            f"{name}-head-writes",
            principal_id=args.identities.head.principal_id,
            role=BLOB_DATA_CONTRIBUTOR,
            scope=container.id,
            parent=self,
        )
        self.workers_role = assign(
            f"{name}-workers-write",
            principal_id=args.identities.workers.principal_id,
            role=BLOB_DATA_CONTRIBUTOR,
            scope=container.id,
            parent=self,
        )
        self.register_outputs({"url": self.url})


def _create_account(
    place: Place, *, protect: bool, parent: pulumi.Resource
) -> storage.StorageAccount:
    return storage.StorageAccount(
        ACCOUNT_NAME,
        resource_group_name=place.resource_group,
        location=place.location,
        kind=storage.Kind.STORAGE_V2,
        sku=storage.SkuArgs(name=storage.SkuName.STANDARD_LRS),
        allow_shared_key_access=False,
        default_to_o_auth_authentication=True,
        allow_blob_public_access=False,
        enable_https_traffic_only=True,
        minimum_tls_version=storage.MinimumTlsVersion.TLS1_2,
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent, protect=protect),
    )


def _create_undelete(
    name: str, place: Place, account: storage.StorageAccount, *, parent: pulumi.Resource
) -> storage.BlobServiceProperties:
    policy = storage.DeleteRetentionPolicyArgs(enabled=True, days=UNDELETE_DAYS)
    return storage.BlobServiceProperties(
        f"{name}-blobs",
        resource_group_name=place.resource_group,
        account_name=account.name,
        blob_services_name="default",  # Azure knows no other
        delete_retention_policy=policy,
        container_delete_retention_policy=policy,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _create_container(
    name: str,
    place: Place,
    account: storage.StorageAccount,
    services: storage.BlobServiceProperties,
    *,
    protect: bool,
    parent: pulumi.Resource,
) -> storage.BlobContainer:
    return storage.BlobContainer(
        f"{name}-container",
        resource_group_name=place.resource_group,
        account_name=account.name,
        container_name=CONTAINER_NAME,
        public_access=storage.PublicAccess.NONE,
        opts=pulumi.ResourceOptions(parent=parent, protect=protect, depends_on=[services]),
    )


def _create_lifecycle(
    name: str,
    place: Place,
    account: storage.StorageAccount,
    days: int,
    *,
    protect: bool,
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
        f"{name}-lifecycle",
        resource_group_name=place.resource_group,
        account_name=account.name,
        management_policy_name="default",  # Azure knows no other
        policy=storage.ManagementPolicySchemaArgs(rules=[rule]),
        # What is kept must not be kept for ever: without its rule it would be.
        opts=pulumi.ResourceOptions(parent=parent, protect=protect),
    )
