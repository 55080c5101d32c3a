"""The services of a cluster's Ray nodes: one for each container."""

from __future__ import annotations

from typing import Any

from sunspot.ray import ports, start
from sunspot.ray.resources import GIB
from sunspot.ray.start import Head, RayNode
from sunspot.spec_values import HEAD
from sunspot.targets.compose import mounts, node_files, secret_files
from sunspot.targets.compose.host import KFD
from sunspot.targets.compose.node_files import PYTHON
from sunspot.targets.compose.plan import ComposePlan, Node
from sunspot.targets.compose.secret_files import RAY_TOKEN, S3_CREDENTIALS
from sunspot.targets.compose.settings import SERVICES

S3_PORT = 9000
S3_URL = f"http://s3:{S3_PORT}"
BUCKET = "ray"

GCS = f"{HEAD}:{ports.get('gcs').number}"

START_HOOK = "sunspot.node.raylet.start_hook"
PRELOAD = "sunspot.node.local.preload"  # for GPUs that are only numbers

# /dev/shm must hold the object store (0.3 of the memory) and NCCL's buffers; it uses memory only as
# it fills.
SHM_SHARE = 0.5

# Of the container: what reaches it is the cluster's network, and the host's loopback address.
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104

# By the shell: starting a program every few seconds would slow Ray down.
_ASK_AGENT = (
    "exec 3<>/dev/tcp/127.0.0.1/{port} && "
    "printf 'GET /api/local_raylet_healthz HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q success <&3"
)


def common(plan: ComposePlan) -> dict[str, Any]:
    """What all Ray nodes have."""
    node_secrets = [RAY_TOKEN, *([S3_CREDENTIALS] if plan.settings.storage else [])]
    port = ports.get("dashboard-agent").number
    return {
        "entrypoint": ["ray", "start"],
        # The owner of Ray's files, which Prometheus and Grafana read.
        "user": plan.settings.user,
        "init": True,
        "secrets": mounts.secrets(*node_secrets),
        "configs": node_files.configs(modules(plan)),
        "ulimits": {"nofile": 65536},
        "security_opt": ["no-new-privileges:true"],
        # Ray drains a node for up to 30 s when it is told to stop.
        "stop_grace_period": "45s",
        "healthcheck": {
            "test": ["CMD", "bash", "-c", _ASK_AGENT.format(port=port)],
            "interval": "5s",
            "timeout": "10s",
            "retries": 6,
            "start_period": "120s",
        },
        "logging": logging(),
    }


def modules(plan: ComposePlan) -> tuple[str, ...]:
    """The modules of ours that all Ray nodes have."""
    logical = node_files.LOGICAL_GPUS if plan.has_logical_gpus else ()
    return (*node_files.RAY_NODE, *logical)


def logging() -> dict[str, Any]:
    """Limits for the log that Docker keeps of a container."""
    return {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def data_volumes(plan: ComposePlan) -> list[dict[str, Any]]:
    """The host's folders that nodes and Jupyter can read."""
    return [
        {
            "type": "bind",
            "source": source,
            "target": target,
            "read_only": True,
            # Otherwise a mistyped path would be made, empty and root's.
            "bind": {"create_host_path": False},
        }
        for source, target in plan.settings.data.items()
    ]


def common_environment(plan: ComposePlan) -> dict[str, str]:
    """The variables of everything that uses Ray or the object store."""
    storage = {
        "AWS_ENDPOINT_URL": S3_URL,
        "AWS_REGION": "us-east-1",
        "AWS_SHARED_CREDENTIALS_FILE": secret_files.inside(S3_CREDENTIALS),
        "SUNSPOT_STORAGE": f"s3://{BUCKET}",
    }
    direct = ",".join((*(node.name for node in plan.nodes), *SERVICES, "localhost", "127.0.0.1"))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": secret_files.inside(RAY_TOKEN),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Compose gives every container the proxies of ~/.docker/config.json.
        "NO_PROXY": direct,
        "no_proxy": direct,
        **(storage if plan.settings.storage else {}),
    }


def service(plan: ComposePlan, node: Node, grafana: str | None) -> dict[str, Any]:
    """The service of one node, besides what all have.

    Args:
        plan: the plan.
        node: the node.
        grafana: Grafana's address for a browser; None without Grafana.
    """
    ray = _ray_node(plan, node, grafana)
    shared = common_environment(plan)
    own = {name: value for name, value in start.environment(ray).items() if name not in shared}
    if not node.gpus:
        # NVIDIA's images ask for all GPUs, which NVIDIA's runtime would then give this container.
        own["NVIDIA_VISIBLE_DEVICES"] = "void"
    made: dict[str, Any] = {
        "image": node.image,
        "command": start.flags(ray),
        "environment": {**own, "PYTHONPATH": PYTHON},
        "mem_limit": f"{node.resources.memory / GIB:g}g",
        "shm_size": f"{node.resources.memory * SHM_SHARE / GIB:g}g",
    }
    if node.cpuset is not None:
        made["cpuset"] = node.cpuset
    if not node.starts:
        made["profiles"] = ["more"]
    return made | _devices(plan, node)


def _devices(plan: ComposePlan, node: Node) -> dict[str, Any]:
    """The lines that give a container its GPUs, and no other's."""
    if not node.gpus:
        return {}
    if plan.host.gpus.maker == "amd":
        files = [KFD, *node.gpus]
        return {
            "devices": [f"{file}:{file}" for file in files],
            "group_add": list(plan.host.gpus.groups),
        }
    reserved = {"driver": "nvidia", "device_ids": list(node.gpus), "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [reserved]}}}}


def _ray_node(plan: ComposePlan, node: Node, grafana: str | None) -> RayNode:
    return RayNode(
        group=node.group,
        market=node.market,
        resources=node.resources,
        object_store=node.resources.object_store,
        head=_head(plan, grafana) if node.is_head else None,
        token_path=secret_files.inside(RAY_TOKEN),
        name=node.name,
        head_address=None if node.is_head else GCS,
        logical_gpus=plan.host.gpus.maker == "none",
        start_hook=START_HOOK,
        preload=PRELOAD if plan.has_logical_gpus else None,
    )


def _head(plan: ComposePlan, grafana: str | None) -> Head:
    if not plan.settings.monitoring:
        return Head(dashboard_host=EVERY_ADDRESS)
    return Head(
        dashboard_host=EVERY_ADDRESS,
        prometheus_url=f"http://prometheus:{ports.get('prometheus').number}",
        grafana_url=f"http://grafana:{ports.get('grafana').number}",
        grafana_iframe_url=grafana,
    )
