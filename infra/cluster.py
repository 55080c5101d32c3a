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
from infra.roles import (
    MANAGED_IDENTITY_OPERATOR,
    VIRTUAL_MACHINE_CONTRIBUTOR,
    assign,
    subscription_of,
)
from infra.storage import Results, ResultsArgs
from infra.token import TokenVault, TokenVaultArgs
from infra.user_data import Surroundings, UserDataArgs, user_data
from infra.workers import WorkerPool, WorkerPoolArgs
from sunspot.azure_plan import AzurePlan, Machine, Pool
from sunspot.spec import HEAD


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
        self._let_head_scale(name, plan.pools)
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
        elastic = _elastic(plan.pools) if plan.cluster.requires_autoscale() else ()
        return HeadArgs(
            place=place.of_group(HEAD),
            vm_name=f"{plan.cluster_name}-{HEAD}",
            machine=plan.head,
            card_id=self.card.card_id,
            identity_id=identity.id,
            ssh_public_key=plan.ssh_public_key,
            user_data=user_data(
                UserDataArgs(
                    role="head",
                    node_type=HEAD,
                    market="on-demand",
                    machine=plan.head,
                    identity_client_id=identity.client_id,
                    surroundings=self._surroundings(plan, plan.head),
                    elastic_pools=elastic,
                )
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
                UserDataArgs(
                    role="worker",
                    node_type=pool.node_type,
                    market=pool.market,
                    machine=pool.machine,
                    identity_client_id=identity.client_id,
                    surroundings=self._surroundings(plan, pool.machine),
                    scale_set=pool.scale_set,
                )
            ),
            grants=grants,
        )
        return WorkerPool(f"{name}-{pool.node_type}", args, pulumi.ResourceOptions(parent=self))

    def _surroundings(self, plan: AzurePlan, machine: Machine) -> Surroundings:
        return Surroundings(
            cluster_name=plan.cluster_name,
            image=self._image(machine),
            registry=None if self.registry is None else self.registry.login_server,
            head_address=self.card.private_address,
            vault_url=self.token.vault_uri,
            token_secret=self.token.secret_name,
            storage_url=self.results.url,
            subscription_id=subscription_of(self.resource_group.id),
            resource_group=self.resource_group.name,
        )

    def _image(self, machine: Machine) -> pulumi.Input[str]:
        if machine.image is not None:
            return machine.image
        if self.registry is None:
            raise ValueError("a machine without an image needs one that is built")
        return self.registry.image

    def _let_head_scale(self, name: str, pools: Sequence[Pool]) -> None:
        """Lets the head change the elastic scale sets, and these alone.

        A scale set that grows makes machines with a network card and an identity, and Azure asks
        whether its caller may use those too.
        """
        principal = self.identities.head.principal_id
        elastic = {pool.node_type for pool in _elastic(pools)}
        for pool, made in zip(pools, self.pools, strict=True):
            if pool.node_type in elastic:
                assign(
                    f"{name}-head-scales-{pool.node_type}",
                    principal_id=principal,
                    role=VIRTUAL_MACHINE_CONTRIBUTOR,
                    scope=made.scale_set.id,
                    parent=self,
                )
        if not elastic:
            return
        assign(
            f"{name}-head-joins-workers",
            principal_id=principal,
            role=VIRTUAL_MACHINE_CONTRIBUTOR,
            scope=self.network.workers_subnet_id,
            parent=self,
        )
        assign(
            f"{name}-head-gives-identity",
            principal_id=principal,
            role=MANAGED_IDENTITY_OPERATOR,
            scope=self.identities.workers.id,
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
