"""A whole cluster on AKS: Azure's resources for it, and what runs Ray in it."""

import base64
from collections.abc import Sequence

import pulumi
from pulumi_azure_native import authorization, containerservice, managedidentity, resources

from infra.identities import Identities, IdentitiesArgs
from infra.place import Place, answered
from infra.ray_on_kubernetes import RayOnKubernetes, RayOnKubernetesArgs
from infra.roles import NETWORK_CONTRIBUTOR, assign
from infra.storage import Results, ResultsArgs
from sunspot.targets.azure.aks.plan import SYSTEM_NODES, AksPlan
from sunspot.targets.azure.aks.pools import DISK_GIB, SYSTEM_POOL, AksPool
from sunspot.targets.azure.aks.tree import ROLES, pool_key, tree
from sunspot.targets.azure.tree import Resource

# What Azure's directory expects of a workload identity's token
# (learn.microsoft.com/azure/aks/workload-identity-deploy-cluster).
AUDIENCE = "api://AzureADTokenExchange"

# What makes a node pool that exists another one; the provider knows the size by itself.
_FIXED_OF_A_POOL = ["scaleSetPriority", "osDiskType", "osDiskSizeGB", "maxPods", "vnetSubnetID"]


class AksRayCluster(pulumi.ComponentResource):
    """A resource group with an AKS cluster, its node pools, its storage, and Ray in it."""

    resource_group: resources.ResourceGroup
    results: Results
    cluster: containerservice.ManagedCluster
    pools: tuple[containerservice.AgentPool, ...]
    workload: RayOnKubernetes

    def __init__(self, plan: AksPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        declared = tree(plan)
        super().__init__(declared.type, declared.name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.resource_group = resources.ResourceGroup(
            declared["group"].name, location=plan.location, tags=plan.tags, opts=child
        )
        place = Place(
            resource_group=self.resource_group.name, location=plan.location, tags=plan.tags
        )
        identities = Identities(declared["identities"], IdentitiesArgs(place=place), child)
        self.results = Results(
            declared["results"],
            ResultsArgs(
                place=place, identities=identities, retention_days=plan.storage.retention_days
            ),
            child,
        )
        identity, rights = _control_plane(declared, plan, place, parent=self)
        self.cluster = _create_cluster(
            declared["aks"], plan, place, identity, parent=self, after=rights
        )
        self.pools = tuple(
            _create_pool(declared[pool_key(pool)], pool, plan, place, self.cluster, parent=self)
            for pool in plan.pools
        )
        by_role = {"head": identities.head, "workers": identities.workers}
        federated = [
            _let_pods_use(declared, plan, place, role, by_role[role], self.cluster, parent=self)
            for role in ROLES
        ]
        self.workload = RayOnKubernetes(
            declared["workload"],
            RayOnKubernetesArgs(
                plan=plan,
                cluster_id=self.cluster.id,
                cluster=self.cluster,
                kubeconfig=_kubeconfig(place, self.cluster),
                client_ids={role: one.client_id for role, one in by_role.items()},
                storage_url=self.results.url,
                after=[
                    *self.pools,
                    *federated,
                    self.results.head_role,
                    self.results.workers_role,
                ],
            ),
            child,
        )
        self.register_outputs(
            {"resourceGroup": self.resource_group.name, "cluster": self.cluster.name}
        )


def _control_plane(
    declared: Resource, plan: AksPlan, place: Place, *, parent: pulumi.Resource
) -> tuple[managedidentity.UserAssignedIdentity | None, list[pulumi.Resource]]:
    """The identity of a cluster that puts nodes in the user's subnet, and its right to."""
    if plan.subnet_id is None:
        return None, []
    identity = managedidentity.UserAssignedIdentity(
        declared["control-plane"].name,
        resource_group_name=place.resource_group,
        location=place.location,
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )
    # Microsoft's "Use a bring-your-own virtual network with AKS" asks for this one on the subnet.
    right: authorization.RoleAssignment = assign(
        declared["joins"],
        principal_id=identity.principal_id,
        role=NETWORK_CONTRIBUTOR,
        scope=plan.subnet_id,
        parent=parent,
    )
    return identity, [right]


def _create_cluster(
    declared: Resource,
    plan: AksPlan,
    place: Place,
    identity: managedidentity.UserAssignedIdentity | None,
    *,
    parent: pulumi.Resource,
    after: Sequence[pulumi.Resource],
) -> containerservice.ManagedCluster:
    aks = plan.aks
    return containerservice.ManagedCluster(
        declared.name,
        resource_group_name=place.resource_group,
        resource_name_=plan.cluster_name,
        location=place.location,
        dns_prefix=plan.cluster_name,
        kubernetes_version=aks.kubernetes_version,
        # In Azure's own name for it, a long region would make it longer than the 80 allowed.
        node_resource_group=pulumi.Output.concat(place.resource_group, "-nodes"),
        sku=containerservice.ManagedClusterSKUArgs(
            name=containerservice.ManagedClusterSKUName.BASE, tier=aks.tier
        ),
        support_plan=_support(plan),
        identity=_identity(identity),
        enable_rbac=True,
        oidc_issuer_profile=containerservice.ManagedClusterOIDCIssuerProfileArgs(enabled=True),
        security_profile=containerservice.ManagedClusterSecurityProfileArgs(
            workload_identity=containerservice.ManagedClusterSecurityProfileWorkloadIdentityArgs(
                enabled=True
            )
        ),
        api_server_access_profile=_access(plan),
        auto_upgrade_profile=_upgrades(plan),
        network_profile=containerservice.ContainerServiceNetworkProfileArgs(
            network_plugin=containerservice.NetworkPlugin.AZURE,
            network_plugin_mode=containerservice.NetworkPluginMode.OVERLAY,
            # Without an engine, AKS takes NetworkPolicies and enforces none of them.
            network_dataplane=containerservice.NetworkDataplane.CILIUM,
            network_policy=containerservice.NetworkPolicy.CILIUM,
            load_balancer_sku=containerservice.LoadBalancerSku.STANDARD,
            # Its address may reach the API server without being listed.
            outbound_type=containerservice.OutboundType.LOAD_BALANCER,
            pod_cidr=aks.pod_cidr,
            service_cidr=aks.service_cidr,
            dns_service_ip=aks.dns_service_ip,
        ),
        # The Ray autoscaler has waited for its idle time already when a node has no pod any more.
        auto_scaler_profile=containerservice.ManagedClusterPropertiesAutoScalerProfileArgs(
            scale_down_unneeded_time="2m", scale_down_delay_after_add="2m"
        ),
        agent_pool_profiles=[
            containerservice.ManagedClusterAgentPoolProfileArgs(
                name=SYSTEM_POOL,
                mode=containerservice.AgentPoolMode.SYSTEM,
                type=containerservice.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
                os_type=containerservice.OSType.LINUX,
                count=SYSTEM_NODES,
                vm_size=plan.system_size.name,
                os_disk_size_gb=DISK_GIB,
                vnet_subnet_id=plan.subnet_id,
            )
        ],
        tags=place.tags,
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=after,
            # Azure tells of all pools here, also of those that are resources of their own
            # (pulumi/pulumi-azure-native#1298), and of the version that it has upgraded to.
            ignore_changes=["agentPoolProfiles", "kubernetesVersion"]
            if aks.kubernetes_version is None
            else ["agentPoolProfiles"],
        ),
    )


def _identity(
    identity: managedidentity.UserAssignedIdentity | None,
) -> containerservice.ManagedClusterIdentityArgs:
    kinds = containerservice.ResourceIdentityType
    if identity is None:
        return containerservice.ManagedClusterIdentityArgs(type=kinds.SYSTEM_ASSIGNED)
    return containerservice.ManagedClusterIdentityArgs(
        type=kinds.USER_ASSIGNED, user_assigned_identities=[identity.id]
    )


def _support(plan: AksPlan) -> containerservice.KubernetesSupportPlan:
    """Premium is for long-term support, but does not ask for it (Microsoft, "LTS in AKS")."""
    plans = containerservice.KubernetesSupportPlan
    is_premium = plan.aks.tier == "Premium"
    return plans.AKS_LONG_TERM_SUPPORT if is_premium else plans.KUBERNETES_OFFICIAL


def _upgrades(plan: AksPlan) -> containerservice.ManagedClusterAutoUpgradeProfileArgs:
    """What AKS upgrades by itself: nothing that drains nodes, where the head may not be evicted.

    Its upgrade would fail at the head's budget, and leave the cluster in a failed state (Microsoft,
    "Troubleshoot UpgradeFailed errors due to eviction failures caused by PDBs"). Such nodes' system
    is patched in place.
    """
    cluster, nodes = containerservice.UpgradeChannel, containerservice.NodeOSUpgradeChannel
    if plan.keeps_head:
        return containerservice.ManagedClusterAutoUpgradeProfileArgs(
            upgrade_channel=cluster.NONE, node_os_upgrade_channel=nodes.UNMANAGED
        )
    return containerservice.ManagedClusterAutoUpgradeProfileArgs(
        upgrade_channel=cluster.PATCH, node_os_upgrade_channel=nodes.NODE_IMAGE
    )


def _access(plan: AksPlan) -> containerservice.ManagedClusterAPIServerAccessProfileArgs:
    if plan.aks.private:
        return containerservice.ManagedClusterAPIServerAccessProfileArgs(
            enable_private_cluster=True, enable_private_cluster_public_fqdn=False
        )
    return containerservice.ManagedClusterAPIServerAccessProfileArgs(
        authorized_ip_ranges=list(plan.aks.authorized_ip_ranges)
    )


def _create_pool(
    declared: Resource,
    pool: AksPool,
    plan: AksPlan,
    place: Place,
    cluster: containerservice.ManagedCluster,
    *,
    parent: pulumi.Resource,
) -> containerservice.AgentPool:
    spot = pool.market == "spot"
    disks = containerservice.OSDiskType
    return containerservice.AgentPool(
        declared.name,
        resource_group_name=place.resource_group,
        resource_name_=cluster.name,
        agent_pool_name=pool.name,
        mode=containerservice.AgentPoolMode.USER,
        type=containerservice.AgentPoolType.VIRTUAL_MACHINE_SCALE_SETS,
        os_type=containerservice.OSType.LINUX,
        vm_size=pool.size.name,
        enable_auto_scaling=True,
        # None of a group's: its pods make them, so no refusal of spot machines fails Pulumi.
        count=pool.minimum,
        min_count=pool.minimum,
        max_count=pool.maximum,
        max_pods=plan.max_pods,
        os_disk_size_gb=DISK_GIB,
        os_disk_type=disks.EPHEMERAL if pool.ephemeral_disk else disks.MANAGED,
        scale_set_priority=containerservice.ScaleSetPriority.SPOT if spot else None,
        scale_set_eviction_policy=containerservice.ScaleSetEvictionPolicy.DELETE if spot else None,
        spot_max_price=-1 if spot else None,
        gpu_profile=containerservice.GPUProfileArgs(driver=containerservice.GPUDriver.INSTALL)
        if pool.has_gpus
        else None,
        node_labels=pool.labels,
        node_taints=pool.taints,
        vnet_subnet_id=plan.subnet_id,
        tags={**place.tags, "group": pool.group},
        opts=pulumi.ResourceOptions(
            parent=parent,
            # AKS's autoscaler sets it.
            ignore_changes=["count"],
            replace_on_changes=_FIXED_OF_A_POOL,
            # Its name is taken.
            delete_before_replace=True,
            # With the cluster go its pools.
            deleted_with=cluster,
        ),
    )


def _let_pods_use(
    declared: Resource,
    plan: AksPlan,
    place: Place,
    role: str,
    identity: managedidentity.UserAssignedIdentity,
    cluster: containerservice.ManagedCluster,
    *,
    parent: pulumi.Resource,
) -> managedidentity.FederatedIdentityCredential:
    """Lets the pods of a role's service account use its identity."""
    account = f"{plan.names.namespace}:{plan.service_account(role)}"
    return managedidentity.FederatedIdentityCredential(
        declared[f"{role}-federated"].name,
        resource_group_name=place.resource_group,
        resource_name_=identity.name,
        federated_identity_credential_resource_name=plan.cluster_name,
        issuer=cluster.oidc_issuer_profile.apply(_issuer),
        subject=f"system:serviceaccount:{account}",
        audiences=[AUDIENCE],
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _issuer(
    profile: containerservice.outputs.ManagedClusterOIDCIssuerProfileResponse | None,
) -> str:
    return answered(None if profile is None else profile.issuer_url, "the cluster's OIDC issuer")


def _kubeconfig(place: Place, cluster: containerservice.ManagedCluster) -> pulumi.Output[str]:
    credentials = containerservice.list_managed_cluster_user_credentials_output(
        resource_group_name=place.resource_group, resource_name=cluster.name
    )
    return pulumi.Output.secret(credentials.apply(_first))


def _first(found: containerservice.ListManagedClusterUserCredentialsResult) -> str:
    configs = found.kubeconfigs or []
    encoded = answered(configs[0].value if configs else None, "the cluster's kubeconfig")
    return base64.b64decode(encoded).decode()
