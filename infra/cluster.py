"""A whole cluster on Azure: the components of this folder, put together."""

import pulumi
from pulumi_azure_native import resources

from cloud_init.values import AzureFacts
from infra.bastion import Bastion, BastionArgs
from infra.by_hand import ReadSettings, running_settings
from infra.growing import ReadCapacity, keep_machines
from infra.head import Head, HeadArgs, HeadNic, HeadNicArgs
from infra.identities import Identities, IdentitiesArgs
from infra.leaving import Leaving, let_workers_leave
from infra.network import Network, NetworkArgs
from infra.place import Place
from infra.registry import Registry, RegistryArgs
from infra.roles import READER, assign, subscription_of, until_known
from infra.scaling import Scaling, let_head_scale
from infra.stopping import Stopping, let_head_stop
from infra.storage import Results, ResultsArgs
from infra.token import TokenVault, TokenVaultArgs
from infra.user_data import live_data, user_data
from infra.workers import WorkerPool, WorkerPoolArgs
from sunspot.spec_values import HEAD
from sunspot.targets.azure import by_hand
from sunspot.targets.azure.access import openings
from sunspot.targets.azure.plan import AzurePlan, Pool
from sunspot.targets.azure.tree import (
    READS_IMAGE,
    Resource,
    leaves_key,
    pool_key,
    scales_key,
    tree,
)


class AzureRayCluster(pulumi.ComponentResource):
    """A resource group with everything that a cluster needs, and nothing else.

    `bastion` and `registry` are None where the plan has none. `read` reads the settings of the
    cluster that runs; without it, nothing that was scaled by hand is known. `capacity` reads how
    many machines a scale set has; without it, one that grows during an update may shrink again.
    """

    resource_group: resources.ResourceGroup
    network: Network
    identities: Identities
    token: TokenVault
    results: Results
    registry: Registry | None
    nic: HeadNic
    head: Head
    pools: tuple[WorkerPool, ...]
    bastion: Bastion | None

    def __init__(
        self,
        plan: AzurePlan,
        read: ReadSettings | None = None,
        capacity: ReadCapacity | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        declared = tree(plan)
        super().__init__(declared.type, declared.name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.resource_group = _create_resource_group(declared["group"], plan, parent=self)
        place = Place(
            resource_group=self.resource_group.name, location=plan.location, tags=plan.tags
        )
        self.running = running_settings(plan, self.resource_group.id, read)
        self.network = Network(declared["network"], _network_args(place, plan), child)
        self.identities = Identities(declared["identities"], IdentitiesArgs(place=place), child)
        self.token = TokenVault(
            declared["token"], TokenVaultArgs(place=place, identities=self.identities), child
        )
        self.results = Results(
            declared["results"], _results_args(place, plan, self.identities), child
        )
        self.registry = (
            None
            if not plan.has_registry
            else Registry(
                declared["registry"],
                RegistryArgs(
                    place=place,
                    identities=self.identities,
                    build=plan.build,
                    copies=plan.copies,
                ),
                child,
            )
        )
        self.nic = HeadNic(declared["nic"], self._nic_args(place), child)
        keep = keep_machines(capacity)
        self.pools = tuple(
            WorkerPool(declared[pool_key(pool)], self._pool_args(pool, place, plan, keep), child)
            for pool in plan.pools
        )
        self.head = Head(declared["head"], self._head_args(place, plan), child)
        hooks = until_known() if plan.access.custom_roles else None
        let_head_scale(declared, plan, self._scaling(plan, hooks), parent=self)
        let_head_stop(
            declared,
            plan,
            Stopping(
                principal_id=self.identities.head.principal_id,
                group_id=self.resource_group.id,
                group_name=self.resource_group.name,
                vm_id=self.head.vm.id,
                hooks=hooks,
            ),
            parent=self,
        )
        if plan.orphan_after_s is not None:
            let_workers_leave(declared, self._leaving(plan, hooks), parent=self)
        self._let_head_use_image(declared, plan)
        self.bastion = (
            None
            if self.network.bastion_subnet_id is None
            else Bastion(
                declared["bastion"],
                BastionArgs(place=place, subnet_id=self.network.bastion_subnet_id),
                child,
            )
        )
        self.register_outputs(
            {
                "resourceGroup": self.resource_group.name,
                "headPrivateAddress": self.nic.private_address,
            }
        )

    def _nic_args(self, place: Place) -> HeadNicArgs:
        return HeadNicArgs(
            place=place.of_group(HEAD),
            subnet_id=self.network.head_subnet_id,
            address=self.network.head_address,
            rules_id=self.network.nic_rules.get("head"),
        )

    def _head_args(self, place: Place, plan: AzurePlan) -> HeadArgs:
        identity = self.identities.head
        facts = self._facts(identity.client_id)
        grants: list[pulumi.Resource] = [self.token.head_role, self.results.head_role]
        if self.registry is not None:
            grants += [self.registry.head_role, *self.registry.copied]
        return HeadArgs(
            place=place.of_group(HEAD),
            vm_name=plan.head_name,
            machine=plan.head,
            nic_id=self.nic.nic_id,
            identity_id=identity.id,
            ssh_public_key=plan.ssh_public_key,
            user_data=user_data(plan, None, facts),
            live_data=live_data(plan, facts, self.running),
            grants=grants,
        )

    def _pool_args(
        self, pool: Pool, place: Place, plan: AzurePlan, keep: pulumi.ResourceHookBinding | None
    ) -> WorkerPoolArgs:
        identity = self.identities.workers
        grants: list[pulumi.Resource] = [self.token.workers_role, self.results.workers_role]
        if self.registry is not None:
            grants += [self.registry.workers_role, *self.registry.copied]
        return WorkerPoolArgs(
            place=place.of_group(pool.group),
            pool=pool,
            starts_with=self._starts_with(pool, plan),
            subnet_id=self.network.workers_subnet_id,
            network=plan.workers_network,
            rules_id=self.network.nic_rules.get("worker"),
            identity_id=identity.id,
            ssh_public_key=plan.ssh_public_key,
            user_data=user_data(plan, pool, self._facts(identity.client_id)),
            grants=grants,
            hooks=keep if pool.elastic else None,
        )

    def _starts_with(self, pool: Pool, plan: AzurePlan) -> pulumi.Input[int]:
        if pool.elastic:
            return pool.starts_with
        (group,) = [one for one in plan.cluster.scaling_groups if one.name == pool.group]
        return self.running.apply(lambda running: by_hand.count(group, running))

    def _scaling(self, plan: AzurePlan, hooks: pulumi.ResourceHookBinding | None) -> Scaling:
        return Scaling(
            principal_id=self.identities.head.principal_id,
            group_id=self.resource_group.id,
            group_name=self.resource_group.name,
            subnet_id=self.network.workers_subnet_id,
            workers_identity_id=self.identities.workers.id,
            rules_id=self.network.nic_rules.get("worker"),
            scale_sets={
                scales_key(pool): made.scale_set.id
                for pool, made in zip(plan.pools, self.pools, strict=True)
                if plan.head_resizes(pool)
            },
            # A vault takes a minute, and no capacity.
            after=[self.token.head_role],
            hooks=hooks,
        )

    def _leaving(self, plan: AzurePlan, hooks: pulumi.ResourceHookBinding | None) -> Leaving:
        return Leaving(
            principal_id=self.identities.workers.principal_id,
            group_id=self.resource_group.id,
            group_name=self.resource_group.name,
            scale_sets={
                leaves_key(pool): made.scale_set.id
                for pool, made in zip(plan.pools, self.pools, strict=True)
            },
            after=[self.token.workers_role],
            hooks=hooks,
        )

    def _facts(self, identity_client_id: pulumi.Input[str]) -> AzureFacts[pulumi.Input[str]]:
        """What a node with this identity needs to know about Azure."""
        registry = self.registry
        return AzureFacts(
            built_image=None if registry is None else registry.image,
            registry=None if registry is None else registry.login_server,
            head_address=self.nic.private_address,
            vault_url=self.token.vault_uri,
            token_secret=self.token.secret_name,
            storage_url=self.results.url,
            subscription_id=subscription_of(self.resource_group.id),
            resource_group=self.resource_group.name,
            identity_client_id=identity_client_id,
        )

    def _let_head_use_image(self, declared: Resource, plan: AzurePlan) -> None:
        """Lets the head read a gallery's image, as a caller must who makes machines from it."""
        reads = declared.get(READS_IMAGE)
        if reads is None or plan.vm_image_id is None:
            return
        assign(
            reads,
            principal_id=self.identities.head.principal_id,
            role=READER,
            scope=plan.vm_image_id,
            parent=self,
        )


def _create_resource_group(
    declared: Resource, plan: AzurePlan, *, parent: pulumi.Resource
) -> resources.ResourceGroup:
    return resources.ResourceGroup(
        declared.name,
        location=plan.location,
        tags=plan.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _network_args(place: Place, plan: AzurePlan) -> NetworkArgs:
    return NetworkArgs(
        place=place,
        addresses=plan.addresses,
        subnet_ids=plan.subnet_ids,
        openings=openings(plan),
        bastion=plan.access.bastion,
    )


def _results_args(place: Place, plan: AzurePlan, identities: Identities) -> ResultsArgs:
    return ResultsArgs(
        place=place,
        identities=identities,
        retention_days=plan.storage.retention_days,
    )
