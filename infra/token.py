"""Ray's token, in the stack's own vault."""

import secrets
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, keyvault

from cloud_init.values import TOKEN_SECRET
from infra.identities import Identities
from infra.place import Place, answered
from infra.roles import KEY_VAULT_SECRETS_USER, assign
from sunspot.targets.azure.tree import Resource

TOKEN_BYTES = 32
# Azure's minimum. Purge protection stays off: it cannot be undone, and would block the name.
SOFT_DELETE_DAYS = 7


@dataclass(frozen=True, kw_only=True)
class TokenVaultArgs:
    """Where the vault goes, and who may read the token."""

    place: Place
    identities: Identities


class TokenVault(pulumi.ComponentResource):
    """A vault with one secret, which only the nodes may read.

    `secret_uri` names the secret without a version. The token is in no output.
    """

    vault_uri: pulumi.Output[str]
    secret_name: str
    secret_uri: pulumi.Output[str]
    head_role: authorization.RoleAssignment
    workers_role: authorization.RoleAssignment

    def __init__(
        self, declared: Resource, args: TokenVaultArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        vault = _create_vault(declared["vault"], args.place, args.identities, parent=self)
        secret = _create_token(declared["secret"], vault, args.place, parent=self)
        self.vault_uri = vault.properties.apply(_uri)
        self.secret_name = TOKEN_SECRET
        self.secret_uri = pulumi.Output.concat(self.vault_uri, "secrets/", TOKEN_SECRET)
        self.head_role = assign(
            declared["head-reads"],
            principal_id=args.identities.head.principal_id,
            role=KEY_VAULT_SECRETS_USER,
            scope=secret.id,
            parent=self,
        )
        self.workers_role = assign(
            declared["workers-read"],
            principal_id=args.identities.workers.principal_id,
            role=KEY_VAULT_SECRETS_USER,
            scope=secret.id,
            parent=self,
        )
        self.register_outputs({"secretUri": self.secret_uri})


def _create_vault(
    declared: Resource, place: Place, identities: Identities, *, parent: pulumi.Resource
) -> keyvault.Vault:
    return keyvault.Vault(
        declared.name,
        resource_group_name=place.resource_group,
        location=place.location,
        properties=keyvault.VaultPropertiesArgs(
            sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.STANDARD),
            tenant_id=identities.head.tenant_id,
            enable_rbac_authorization=True,
            soft_delete_retention_in_days=SOFT_DELETE_DAYS,
        ),
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _create_token(
    declared: Resource, vault: keyvault.Vault, place: Place, *, parent: pulumi.Resource
) -> keyvault.Secret:
    # Each run of the program generates a token, and Pulumi keeps the first: the value is ignored
    # after the creation, so it never changes, and is in the state as an encrypted secret. The
    # alternatives: pulumi-random is one more provider for one number; a dynamic provider stores
    # its pickled code beside the token; a head that generates the token at its first boot needs
    # permission to write secrets, and the workers wait for it.
    return keyvault.Secret(
        declared.name,
        resource_group_name=place.resource_group,
        vault_name=vault.name,
        secret_name=TOKEN_SECRET,
        properties=keyvault.SecretPropertiesArgs(
            value=pulumi.Output.secret(secrets.token_hex(TOKEN_BYTES))
        ),
        tags=place.tags,
        opts=pulumi.ResourceOptions(
            parent=parent,
            ignore_changes=["properties.value"],
            # Azure deletes secrets only through the vault's data plane, where an owner of the
            # subscription has no permissions by default. This one is deleted with its vault.
            deleted_with=vault,
        ),
    )


def _uri(properties: keyvault.outputs.VaultPropertiesResponse) -> str:
    uri = answered(properties.vault_uri, "the vault's URL")
    return uri if uri.endswith("/") else f"{uri}/"
