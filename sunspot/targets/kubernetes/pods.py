"""The pods of a cluster: a head's and each group's, as templates that KubeRay makes pods from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sunspot.ray import ports, resources, start
from sunspot.ray.resources import GIB, NodeResources
from sunspot.ray.start import Head, NodeMarket, RayNode
from sunspot.spec import MIN_NODE_MEMORY_GB, AutoscalerConfig, RayNodeConfig
from sunspot.spec_values import HEAD
from sunspot.targets.kubernetes import gcs_state
from sunspot.targets.kubernetes.gcs_state import StateVolume
from sunspot.targets.kubernetes.settings import Group, KubeRay, Placement

MIB_OF_GIB = 1024
MIN_CPU = 0.001  # Kubernetes' own precision

# What AKS keeps of a node grows with it: a tenth of a CPU and a hundredth of each, 0.74 of 64
# (learn.microsoft.com/azure/aks/node-resource-reservations); its own pods there ask for 0.35 more.
RESERVED_CPU, RESERVED_CPU_OF_EACH = 0.5, 0.01
# The same page: 20 MB for each pod that a node may have and 50 MB, but a quarter at most, and
# 100 MiB below which it evicts pods. AKS's own pods ask for up to 750 MB (Azure/AKS#3525), and
# 3 % are the kernel's, and firmware's.
KUBELET_GB, KUBELET_GB_OF_EACH_POD, KUBELET_SHARE = 0.05, 0.02, 0.25
RESERVED_GB, RESERVED_GB_OF_EACH = 0.85, 0.03

RAY_CONTAINER = "ray"
TOKEN_KEY = "auth_token"  # noqa: S105 - the Secret's key, which KubeRay expects

# KubeRay writes the flags of `ray start` unquoted into a line for bash, in which this is the pod's
# name (kubernetes.io, "Pod hostname").
POD_NAME = "$HOSTNAME"

# Of the pod: what reaches it is the cluster's network.
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104

# /dev/shm must hold the object store (0.3 of the memory) and NCCL's buffers; it counts as memory of
# the pod, but only as it fills.
SHM_SHARE = 0.5

# KubeRay's names of these volumes, which it then leaves alone (pod.go, addEmptyDir).
SHM_VOLUME, LOGS_VOLUME = "shared-mem", "ray-logs"

# What `ray stop` gets of the grace period, and how long a head may take to answer.
STOP_S = 5
ANSWER_S = 15

# The ports of the head's service, by KubeRay's names for them.
_SERVICE_PORTS = {
    "gcs-server": "gcs",
    "dashboard": "dashboard",
    "client": "client",
    "serve": "serve",
    "metrics": "metrics-export",
}

# KubeRay refuses the first as a flag, and gives the second itself (validation.go, pod.go).
_KUBERAYS_FLAGS = ("labels", "head")
_KUBERAYS_VARIABLES = ("RAY_NODE_TYPE_NAME",)

# Of a container that needs nothing else: the autoscaler's, and that of a RayJob's command. The
# `restricted` policy asks for it of each one (kubernetes.io, "Pod Security Standards").
LEAST_PRIVILEGE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

# What Ray says of a node whose pod was deleted: it drained, and its tasks went elsewhere.
POD_ENDS = "the pod is being deleted"

# The main process is a shell, which does not hand on a SIGTERM. A drained raylet ends when its
# node is idle, and its agent with it; Ray ends nothing at the deadline by itself. Without a head
# the client tries for longer than it is asked to, and heeds no SIGTERM.
_DRAIN = (
    "ray drain-node --reason=DRAIN_NODE_REASON_PREEMPTION "
    "--reason-message='{reason}' --deadline-remaining-seconds={drain_s} & "
    "while kill -0 $! 2>/dev/null && ((SECONDS < {answer_s})) && "
    "(exec 3<>/dev/tcp/${{RAY_ADDRESS/://}}) 2>/dev/null; do sleep 0.2; done; "
    "kill -KILL $! 2>/dev/null; wait $! && "
    "while ((SECONDS < {drain_s})) && (exec 3<>/dev/tcp/127.0.0.1/{agent}) 2>/dev/null; "
    "do sleep 1; done; "
)
_STOP = "ray stop --grace-period={stop_s}"


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a pod's Ray container may use: requested and limited alike."""

    cpu: float
    memory_gb: float

    def less(self, cpu: float, memory_gb: float) -> Share:
        """What is left without so much."""
        return Share(cpu=self.cpu - cpu, memory_gb=self.memory_gb - memory_gb)

    def problem(self) -> str | None:
        """Why Ray cannot run with so little; None if it can."""
        if self.cpu < MIN_CPU:
            return f"{self.cpu:g} CPUs are left for Ray: raise cpu, or choose a larger vm_size"
        if self.memory_gb < MIN_NODE_MEMORY_GB:
            return (
                f"{self.memory_gb:g} GiB of memory are left for Ray, and it needs "
                f"{MIN_NODE_MEMORY_GB:g}: raise memory_gb, or choose a larger vm_size"
            )
        return None


def share(node: RayNodeConfig, settings: KubeRay, sidecar: AutoscalerConfig | None = None) -> Share:
    """What Ray's container gets of a node.

    Args:
        node: the node; of a vm_size, the machine's own services get their part first.
        settings: the stack's settings.
        sidecar: the autoscaler, if it runs in the same pod.
    """
    # A head whose tasks have no CPU still runs on one.
    whole = Share(cpu=node.cpu or 1, memory_gb=node.memory_gb)
    if node.vm_size is not None:
        whole = whole.less(
            _reserved_cpu(whole.cpu, settings), _reserved_gb(node.memory_gb, settings)
        )
    return whole if sidecar is None else whole.less(sidecar.cpu, sidecar.memory_gb)


def _reserved_cpu(cpus: float, settings: KubeRay) -> float:
    given = settings.reserved_cpu
    return RESERVED_CPU + RESERVED_CPU_OF_EACH * cpus if given is None else given


def _reserved_gb(memory_gb: float, settings: KubeRay) -> float:
    if settings.reserved_memory is not None:
        return memory_gb * settings.reserved_memory
    of_pods = KUBELET_GB + KUBELET_GB_OF_EACH_POD * settings.max_pods
    kubelet = min(of_pods, KUBELET_SHARE * memory_gb)
    return kubelet + RESERVED_GB + RESERVED_GB_OF_EACH * memory_gb


def amounts(cpu: float, memory_gb: float) -> dict[str, Any]:
    """Requests and limits, which are equal, so that no other pod takes what Ray counts on."""
    asked = {"cpu": f"{round(1000 * cpu)}m", "memory": f"{int(MIB_OF_GIB * memory_gb)}Mi"}
    return {"requests": asked, "limits": dict(asked)}


@dataclass(frozen=True, kw_only=True)
class Pod:
    """The pods of the head or of one Ray node type.

    Attributes:
        group: the name of the group in the stack; "head".
        node_type: the name of the node type, which is another for a group's on-demand twin.
        market: how its nodes are bought.
        node: the node as the stack describes it.
        share: what its Ray container gets.
        image: its image.
        autoscaled: whether the autoscaler runs in it, which only the head's does.
        state: the volume with the GCS's state, which only the head's has.
        head_away_s: how long it keeps its work while the head is away; None for Ray's own.
    """

    group: str
    node_type: str
    market: NodeMarket
    node: RayNodeConfig
    share: Share
    image: str
    autoscaled: bool = False
    state: StateVolume | None = None
    head_away_s: int | None = None

    @property
    def is_head(self) -> bool:
        """Whether this is the head's pod."""
        return self.group == HEAD

    @property
    def ray(self) -> RayNode:
        """The pod as Ray sees it."""
        mib = int(MIB_OF_GIB * self.share.memory_gb)
        has: NodeResources = replace(resources.of(self.node), memory=mib * GIB // MIB_OF_GIB)
        return RayNode(
            group=self.node_type,
            market=self.market,
            name=HEAD if self.is_head else POD_NAME,
            resources=has,
            object_store=has.object_store,
            head=Head(dashboard_host=EVERY_ADDRESS) if self.is_head else None,
            head_away_s=self.head_away_s,
        )


def labels(pod: Pod) -> dict[str, str]:
    """Ray's labels of the pod's node, which KubeRay has a field of its own for."""
    return start.labels(pod.node_type, pod.market)


def parameters(pod: Pod) -> dict[str, str]:
    """The `rayStartParams`. KubeRay does not quote them: its shell reads them."""
    given = {
        name: value
        for name, value in start.parameters(pod.ray).items()
        if name not in _KUBERAYS_FLAGS
    }
    return given if pod.state is None else given | gcs_state.parameters(pod.state)


def placement(pod: Pod, settings: KubeRay) -> Placement:
    """Where the pod runs: what nodes of its kind have, its market's and its group's."""
    kind = settings.gpu_nodes if pod.node.gpu_count else settings.cpu_nodes
    market = settings.spot_nodes if pod.market == "spot" else Placement()
    return kind.plus(market).plus(settings.groups.get(pod.group, Group()))


def template(pod: Pod, settings: KubeRay, token_secret: str) -> dict[str, Any]:
    """The pod's template, without the user's patch."""
    place = placement(pod, settings)
    marks = {"labels": place.labels, "annotations": place.annotations}
    memory = {"medium": "Memory", "sizeLimit": _shm(pod, settings)}
    state = [] if pod.state is None else [gcs_state.pod_volume(pod.state)]
    # Of a volume that KubeRay mounts, too.
    keeps_state = pod.is_head and settings.gcs_fault_tolerance is not None
    patches = settings.patch, settings.groups.get(pod.group, Group()).patch
    spec: dict[str, Any] = {
        "serviceAccountName": settings.service_account,
        # What runs in the cluster cannot ask Kubernetes for anything, unless the user says so.
        "automountServiceAccountToken": pod.autoscaled or settings.service_account is not None,
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
        "terminationGracePeriodSeconds": settings.grace_period_s,
        "nodeSelector": place.node_selector,
        "tolerations": [one.model_dump(exclude_none=True) for one in place.tolerations],
        "containers": [_container(pod, settings, token_secret)],
        "volumes": [
            {"name": SHM_VOLUME, "emptyDir": memory},
            {"name": LOGS_VOLUME, "emptyDir": {}},
            *state,
        ],
        "securityContext": gcs_state.security(*patches) if keeps_state else {},
    }
    metadata = {"metadata": given} if (given := _given(marks)) else {}
    return {**metadata, "spec": _given(spec)}


def _container(pod: Pod, settings: KubeRay, token_secret: str) -> dict[str, Any]:
    asked = amounts(pod.share.cpu, pod.share.memory_gb)
    if pod.node.gpu_count:
        for part in asked.values():
            part[settings.gpu_key] = str(pod.node.gpu_count)
    made = {
        "name": RAY_CONTAINER,
        "image": pod.image,
        "resources": asked,
        "env": _environment(pod, token_secret),
        "ports": _ports(pod),
        "lifecycle": {"preStop": {"exec": {"command": _before_the_end(pod, settings)}}},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [
            {"name": SHM_VOLUME, "mountPath": "/dev/shm"},  # noqa: S108 - the kernel's place for it
            {"name": LOGS_VOLUME, "mountPath": "/tmp/ray"},  # noqa: S108 - Ray's own
            *([] if pod.state is None else [gcs_state.mount()]),
        ],
    }
    return _given(made)


def _environment(pod: Pod, token_secret: str) -> list[dict[str, Any]]:
    """The variables. KubeRay adds the token's by itself, but an old one drops `authOptions`."""
    token = {"secretKeyRef": {"name": token_secret, "key": TOKEN_KEY}}
    return [
        *(
            {"name": name, "value": value}
            for name, value in start.environment(pod.ray).items()
            if name not in _KUBERAYS_VARIABLES
        ),
        {"name": "RAY_AUTH_TOKEN", "valueFrom": token},
    ]


def _ports(pod: Pod) -> list[dict[str, Any]]:
    """What the head's service leads to; of a worker, only what Prometheus reads."""
    names = _SERVICE_PORTS if pod.is_head else {"metrics": _SERVICE_PORTS["metrics"]}
    return [{"name": name, "containerPort": ports.get(port).number} for name, port in names.items()]


def _before_the_end(pod: Pod, settings: KubeRay) -> list[str]:
    stop = _STOP.format(stop_s=STOP_S)
    agent = ports.get("dashboard-agent").number
    drain_s = settings.grace_period_s - STOP_S
    answer_s = min(ANSWER_S, drain_s)
    drain = _DRAIN.format(reason=POD_ENDS, drain_s=drain_s, answer_s=answer_s, agent=agent)
    # The head has nowhere to go to.
    return ["/bin/bash", "-c", stop if pod.is_head else drain + stop]


def _shm(pod: Pod, settings: KubeRay) -> str:
    return settings.shared_memory or f"{int(pod.share.memory_gb * MIB_OF_GIB * SHM_SHARE)}Mi"


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields without those that are None or empty."""
    empty = (None, {}, [], ())
    return {name: value for name, value in fields.items() if value not in empty}
