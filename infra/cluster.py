"""A whole cluster on Azure: the components of this folder, put together."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import resources

from infra.bastion import Bastion, BastionArgs
from infra.head import Head, HeadArgs, HeadCard, HeadCardArgs
from infra.identities import Identities, IdentitiesArgs
from infra.network import Network, NetworkArgs
from infra.place import PACKAGE, Place
from infra.registry import Registry, RegistryArgs
from infra.roles import LOOKS, SCALES, assign_own, define, group_of, subscription_of
from infra.storage import Results, ResultsArgs
from infra.token import TokenVault, TokenVaultArgs
from infra.user_data import Surroundings, user_data
from infra.workers import WorkerPool, WorkerPoolArgs
from sunspot.spec import HEAD
from sunspot.targets.azure.plan import AzurePlan, Pool


@dataclass(frozen=True, kw_only=True)
class AzureRayClusterArgs:
    """What is built."""

    plan: AzurePlan


class AzureRayCluster(pulumi.ComponentResource):
    """A resource group with everything that a cluster needs, and nothing else.

    The parts may be read once it is made; `bastion` and `registry` are None where the plan has
    none.
    """

    resource_group: resources.ResourceGroup
    network: Network
    identities: Identities
    token: TokenVault
    results: Results
    registry: Registry | None
    card: HeadCard
    head: Head
    pools: tuple[WorkerPool, ...]
    bastion: Bastion | None

    def __init__(
        self,
        name: str,
        args: AzureRayClusterArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(f"{PACKAGE}:azure:AzureRayCluster", name, None, opts)
        plan = args.plan
        child = pulumi.ResourceOptions(parent=self)
        self.resource_group = _create_resource_group(name, plan, parent=self)
        place = Place(
            resource_group=self.resource_group.name, location=plan.location, tags=plan.tags
        )
        self.network = Network(name, _network_args(place, plan), child)
        self.identities = Identities(name, IdentitiesArgs(place=place), child)
        self.token = TokenVault(
            f"{name}-token", TokenVaultArgs(place=place, identities=self.identities), child
        )
        self.results = Results(
            f"{name}-results", _results_args(place, plan, self.identities), child
        )
        self.registry = (
            None
            if plan.build is None
            else Registry(
                f"{name}-registry",
                RegistryArgs(place=place, identities=self.identities, build=plan.build),
                child,
            )
        )
        self.card = HeadCard(f"{name}-head", self._card_args(place, plan), child)
        self.pools = tuple(self._create_pool(name, pool, place, plan) for pool in plan.pools)
        self.head = Head(f"{name}-head", self._head_args(place, plan), child)
        self._let_head_scale(name, plan)
        self.bastion = (
            None
            if self.network.bastion_subnet_id is None
            else Bastion(
                f"{name}-bastion",
                BastionArgs(place=place, subnet_id=self.network.bastion_subnet_id),
                child,
            )
        )
        self.register_outputs(
            {
                "resourceGroup": self.resource_group.name,
                "headPrivateAddress": self.card.private_address,
            }
        )

    def _card_args(self, place: Place, plan: AzurePlan) -> HeadCardArgs:
        return HeadCardArgs(
            place=place.of_group(HEAD),
            subnet_id=self.network.head_subnet_id,
            address=self.network.head_address,
            rules_id=self.network.card_rules.get("head"),
            public_ip=plan.access.public_ip,
        )

    def _head_args(self, place: Place, plan: AzurePlan) -> HeadArgs:
        identity = self.identities.head
        grants = [self.token.head_role, self.results.head_role]
        if self.registry is not None:
            grants.append(self.registry.head_role)
        return HeadArgs(
            place=place.of_group(HEAD),
            vm_name=plan.head_name,
            machine=plan.head,
            card_id=self.card.card_id,
            identity_id=identity.id,
            ssh_public_key=plan.ssh_public_key,
            user_data=user_data(
                plan,
                None,
                identity_client_id=identity.client_id,
                surroundings=self._surroundings(),
            ),
            grants=grants,
        )

    def _create_pool(self, name: str, pool: Pool, place: Place, plan: AzurePlan) -> WorkerPool:
        identity = self.identities.workers
        grants = [self.token.workers_role, self.results.workers_role]
        if self.registry is not None:
            grants.append(self.registry.workers_role)
        args = WorkerPoolArgs(
            place=place.of_group(pool.group),
            pool=pool,
            subnet_id=self.network.workers_subnet_id,
            rules_id=self.network.card_rules.get("worker"),
            identity_id=identity.id,
            ssh_public_key=plan.ssh_public_key,
            user_data=user_data(
                plan,
                pool,
                identity_client_id=identity.client_id,
                surroundings=self._surroundings(),
            ),
            grants=grants,
        )
        return WorkerPool(f"{name}-{pool.node_type}", args, pulumi.ResourceOptions(parent=self))

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            built_image=None if self.registry is None else self.registry.image,
            registry=None if self.registry is None else self.registry.login_server,
            head_address=self.card.private_address,
            vault_url=self.token.vault_uri,
            token_secret=self.token.secret_name,
            storage_url=self.results.url,
            subscription_id=subscription_of(self.resource_group.id),
            resource_group=self.resource_group.name,
        )

    def _let_head_scale(self, name: str, plan: AzurePlan) -> None:
        """Lets the head change the elastic scale sets, and these alone.

        A scale set that grows makes machines with a network card and an identity, and Azure asks
        whether its caller may use those too.
        """
        elastic = {
            pool.node_type: made.scale_set.id
            for pool, made in zip(plan.pools, self.pools, strict=True)
            if pool.elastic
        }
        if not elastic:
            return
        scopes = {f"scales-{kind}": set_id for kind, set_id in elastic.items()}
        scopes["joins-workers"] = self.network.workers_subnet_id
        scopes["gives-identity"] = self.identities.workers.id
        if "worker" in self.network.card_rules:
            scopes["uses-rules"] = self.network.card_rules["worker"]
        groups: list[pulumi.Input[str]] = [self.resource_group.id]
        if plan.subnet_ids is not None:
            groups.append(group_of(plan.subnet_ids.workers))
        scales, looks = (
            define(
                f"{name}-role-{role.key}",
                role,
                scopes=groups,
                owner=self.resource_group.name,
                parent=self,
            )
            for role in (SCALES, LOOKS)
        )
        principal = self.identities.head.principal_id
        for what, scope in scopes.items():
            assign_own(
                f"{name}-head-{what}",
                principal_id=principal,
                role=scales,
                scope=scope,
                parent=self,
            )
        assign_own(
            f"{name}-head-looks",
            principal_id=principal,
            role=looks,
            scope=self.resource_group.id,
            parent=self,
        )


def _create_resource_group(
    name: str, plan: AzurePlan, *, parent: pulumi.Resource
) -> resources.ResourceGroup:
    return resources.ResourceGroup(
        name,
        location=plan.location,
        tags=plan.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _network_args(place: Place, plan: AzurePlan) -> NetworkArgs:
    return NetworkArgs(
        place=place,
        addresses=plan.addresses,
        subnet_ids=plan.subnet_ids,
        ssh_cidrs=plan.access.ssh_cidrs,
        bastion=plan.access.bastion,
    )


def _results_args(place: Place, plan: AzurePlan, identities: Identities) -> ResultsArgs:
    return ResultsArgs(
        place=place,
        identities=identities,
        retention_days=plan.storage.retention_days,
        protect=plan.storage.protect,
    )


def _elastic(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    return tuple(pool for pool in pools if pool.elastic)
