"""What runs Ray in a Kubernetes of the stack's own: KubeRay, the device plugin, the cluster."""

import base64
import copy
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.token import TOKEN_BYTES
from sunspot.targets.azure.aks.plan import STORAGE_VARIABLE, AksPlan
from sunspot.targets.azure.aks.pools import GPU_LABEL
from sunspot.targets.azure.aks.tree import ROLES
from sunspot.targets.azure.tree import Resource
from sunspot.targets.kubernetes.gcs_state import CLAIM
from sunspot.targets.kubernetes.pods import RAY_CONTAINER, TOKEN_KEY

OPERATOR_CHART = "kuberay-operator"
OPERATOR_VERSION = "1.7.0"
OPERATOR_REPOSITORY = "https://ray-project.github.io/kuberay-helm/"
OPERATOR_NAMESPACE = "kuberay-system"

DEVICE_PLUGIN = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
DEVICE_PLUGIN_NAMESPACE = "kube-system"
_KUBELETS_PLUGINS = "/var/lib/kubelet/device-plugins"

# Otherwise Pulumi waits until a claim is bound (pulumi.com, "Kubernetes: Annotations").
SKIP_AWAIT = "pulumi.com/skipAwait"

# Of the service account, by which AKS's webhook knows the identity
# (learn.microsoft.com/azure/aks/workload-identity-overview).
CLIENT_ID = "azure.workload.identity/client-id"


@dataclass(frozen=True, kw_only=True)
class RayOnKubernetesArgs:
    """The plan, how to reach the cluster, whose identities the pods use, what must be there first.

    `client_ids` has the identities of the roles "head" and "workers".
    """

    plan: AksPlan
    cluster_id: pulumi.Input[str]
    cluster: pulumi.Resource
    kubeconfig: pulumi.Input[str]
    client_ids: Mapping[str, pulumi.Input[str]]
    storage_url: pulumi.Output[str]
    after: Sequence[pulumi.Resource]


class RayOnKubernetes(pulumi.ComponentResource):
    """KubeRay's operator and the RayCluster, with what that refers to."""

    cluster: kubernetes.apiextensions.CustomResource

    def __init__(
        self,
        declared: Resource,
        args: RayOnKubernetesArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        plan = args.plan
        provider = kubernetes.Provider(
            declared["provider"].name,
            kubeconfig=args.kubeconfig,
            # So that another certificate in the kubeconfig is not taken for another cluster.
            cluster_identifier=args.cluster_id,
            enable_server_side_apply=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        child = pulumi.ResourceOptions(
            parent=self,
            provider=provider,
            # With AKS's cluster goes all that is in it, also from where its API server cannot be
            # reached any more.
            deleted_with=args.cluster,
        )
        later = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=args.after))
        operator = _create_operator(declared["operator"], later)
        if (gpus := declared.get("gpus")) is not None:
            _create_device_plugin(gpus, later)
        within = [*args.after]
        if (space := declared.get("namespace")) is not None:
            name = kubernetes.meta.v1.ObjectMetaArgs(name=plan.names.namespace)
            within.append(kubernetes.core.v1.Namespace(space.name, metadata=name, opts=child))
        inside = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=within))
        needed = [
            operator,
            _create_token(declared["token"], plan, inside),
            *(_create_account(declared, plan, role, args.client_ids, inside) for role in ROLES),
        ]
        needed += [
            _create_claim(declared[CLAIM], made, inside)
            for made in plan.manifest
            if made["kind"] == CLAIM
        ]
        self.cluster, *_ = [
            _create(declared, made, args.storage_url, inside, needed)
            for made in plan.manifest
            if made["kind"] != CLAIM
        ]
        self.register_outputs({"rayCluster": plan.names.cluster})


def _create_operator(
    declared: Resource, opts: pulumi.ResourceOptions
) -> kubernetes.helm.v3.Release:
    return kubernetes.helm.v3.Release(
        declared.name,
        name=OPERATOR_CHART,
        chart=OPERATOR_CHART,
        version=OPERATOR_VERSION,
        repository_opts=kubernetes.helm.v3.RepositoryOptsArgs(repo=OPERATOR_REPOSITORY),
        namespace=OPERATOR_NAMESPACE,
        create_namespace=True,
        atomic=True,
        opts=opts,
    )


def _create_device_plugin(
    declared: Resource, opts: pulumi.ResourceOptions
) -> kubernetes.apps.v1.DaemonSet:
    """NVIDIA's own manifest for it, on the nodes with GPUs, whatever their taints.

    The one on Microsoft's page does not tolerate the taint of spot nodes.
    """
    core, meta = kubernetes.core.v1, kubernetes.meta.v1
    mark = {"app.kubernetes.io/name": "nvidia-device-plugin"}
    container = core.ContainerArgs(
        name="nvidia-device-plugin",
        image=DEVICE_PLUGIN,
        env=[core.EnvVarArgs(name="FAIL_ON_INIT_ERROR", value="false")],
        security_context=core.SecurityContextArgs(
            allow_privilege_escalation=False, capabilities=core.CapabilitiesArgs(drop=["ALL"])
        ),
        volume_mounts=[core.VolumeMountArgs(name="device-plugin", mount_path=_KUBELETS_PLUGINS)],
    )
    volume = core.VolumeArgs(
        name="device-plugin", host_path=core.HostPathVolumeSourceArgs(path=_KUBELETS_PLUGINS)
    )
    pod = core.PodSpecArgs(
        priority_class_name="system-node-critical",
        node_selector=GPU_LABEL,
        tolerations=[core.TolerationArgs(operator="Exists")],
        containers=[container],
        volumes=[volume],
    )
    return kubernetes.apps.v1.DaemonSet(
        declared.name,
        metadata=meta.ObjectMetaArgs(
            name="nvidia-device-plugin", namespace=DEVICE_PLUGIN_NAMESPACE
        ),
        spec=kubernetes.apps.v1.DaemonSetSpecArgs(
            selector=meta.LabelSelectorArgs(match_labels=mark),
            template=core.PodTemplateSpecArgs(metadata=meta.ObjectMetaArgs(labels=mark), spec=pod),
        ),
        opts=opts,
    )


def _create_token(
    declared: Resource, plan: AksPlan, opts: pulumi.ResourceOptions
) -> kubernetes.core.v1.Secret:
    # As in token.py: each run makes one, and Pulumi keeps the first, encrypted in its state.
    token = base64.b64encode(secrets.token_hex(TOKEN_BYTES).encode()).decode()
    return kubernetes.core.v1.Secret(
        declared.name,
        metadata=kubernetes.meta.v1.ObjectMetaArgs(**plan.names.metadata(plan.names.token_secret)),
        type="Opaque",
        data=pulumi.Output.secret({TOKEN_KEY: token}),
        opts=pulumi.ResourceOptions.merge(
            opts,
            pulumi.ResourceOptions(
                ignore_changes=["data"], additional_secret_outputs=["data", "stringData"]
            ),
        ),
    )


def _create_account(
    declared: Resource,
    plan: AksPlan,
    role: str,
    client_ids: Mapping[str, pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
) -> kubernetes.core.v1.ServiceAccount:
    metadata = plan.names.metadata(plan.service_account(role))
    return kubernetes.core.v1.ServiceAccount(
        declared[f"{role}-account"].name,
        metadata=kubernetes.meta.v1.ObjectMetaArgs(
            **metadata, annotations={CLIENT_ID: client_ids[role]}
        ),
        opts=opts,
    )


def _create_claim(
    declared: Resource, made: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> kubernetes.core.v1.PersistentVolumeClaim:
    """The claim of the GCS's state. It is bound only when the head's pod has a node."""
    return kubernetes.core.v1.PersistentVolumeClaim(
        declared.name,
        metadata=kubernetes.meta.v1.ObjectMetaArgs(
            **made["metadata"], annotations={SKIP_AWAIT: "true"}
        ),
        spec=made["spec"],
        opts=opts,
    )


def _create(
    declared: Resource,
    made: Mapping[str, Any],
    storage_url: pulumi.Output[str],
    opts: pulumi.ResourceOptions,
    after: Sequence[pulumi.Resource],
) -> kubernetes.apiextensions.CustomResource:
    """A resource of the manifest; of the RayCluster, with the place for results in its pods."""
    return kubernetes.apiextensions.CustomResource(
        declared[made["kind"]].name,
        api_version=made["apiVersion"],
        kind=made["kind"],
        metadata=made["metadata"],
        spec=storage_url.apply(lambda url: with_storage(made["spec"], url))
        if "workerGroupSpecs" in made["spec"]
        else made["spec"],
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=after)),
    )


def with_storage(spec: Mapping[str, Any], url: str) -> dict[str, Any]:
    """A RayCluster's spec whose pods know where results go."""
    made = copy.deepcopy(dict(spec))
    for group in (made["headGroupSpec"], *made["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            if container["name"] == RAY_CONTAINER:
                container["env"] = [
                    *container["env"],
                    {"name": STORAGE_VARIABLE, "value": url},
                ]
    return made
