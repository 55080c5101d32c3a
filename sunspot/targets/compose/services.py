"""The services beside Ray: the object store, Prometheus, Grafana, Jupyter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sunspot import monitoring
from sunspot.ray import ports
from sunspot.spec_values import HEAD
from sunspot.targets.compose import mounts, node_files, ray_nodes, secret_files
from sunspot.targets.compose.plan import ComposePlan
from sunspot.targets.compose.ray_nodes import (
    BUCKET,
    EVERY_ADDRESS,
    GCS,
    S3_PORT,
    common_environment,
    data_volumes,
    logging,
)
from sunspot.targets.compose.secret_files import (
    JUPYTER_TOKEN,
    RAY_TOKEN,
    S3_ACCESS_KEY,
    S3_CREDENTIALS,
    S3_SECRET_KEY,
)

# VersityGW 1.8.0: an S3 server over plain files, Apache 2.0, one program without a database and
# released every few weeks. MinIO publishes no community images any more (since October 2025).
# SeaweedFS is as well kept, but a distributed file system, four servers in one; Garage needs a
# layout of its cluster before it stores anything. By digest, as other projects pin it (2026-10).
S3 = (
    "docker.io/versity/versitygw:v1.8.0"
    "@sha256:30292fc2eeacc67a36993b01f7a7a5e3361a19cced0e80c1d71cfa2a4b0a2499"
)

JUPYTER_PORT = 8888
METRICS = "metrics"

# Volumes, each with its folder in the container that writes to it.
RAY_FILES = ("ray", "/tmp/ray")  # noqa: S108 - Ray's own
S3_FILES = ("s3", "/srv/s3")
PROMETHEUS_FILES = ("prometheus", "/srv/prometheus")
NOTEBOOKS = ("notebooks", "/home/ray/notebooks")

_COMPLETED = "service_completed_successfully"
_HEALTHY = "service_healthy"
_RESTART = "unless-stopped"

# These servers ask only each other and themselves, and busybox's wget knows no `no_proxy`: they are
# not to have the proxies of ~/.docker/config.json, which Compose gives every container.
_NO_PROXY = {"HTTP_PROXY": "", "http_proxy": ""}

# A folder in VersityGW's root is a bucket. It reads its key only from the environment, so the
# shell puts it there: what Compose sets, `docker inspect` would show.
SERVE_S3 = f"""set -eu
mkdir -p {S3_FILES[1]}/{BUCKET}
ROOT_SECRET_ACCESS_KEY=$(cat {secret_files.inside(S3_SECRET_KEY)})
export ROOT_SECRET_ACCESS_KEY
exec versitygw --port :{S3_PORT} --health /health --quiet posix {S3_FILES[1]}
"""


def volumes(plan: ComposePlan) -> dict[str, str]:
    """The volumes of a plan: name -> folder."""
    parts = plan.settings
    wanted = [
        RAY_FILES,
        *([S3_FILES] if parts.storage else []),
        *([PROMETHEUS_FILES] if parts.monitoring else []),
        *([NOTEBOOKS] if plan.jupyter else []),
    ]
    return dict(wanted)


def published(plan: ComposePlan) -> dict[str, dict[str, int]]:
    """The ports that lead out of containers: service -> the port's name -> its number inside."""
    parts = plan.settings
    return {
        HEAD: {name: ports.get(name).number for name in ("dashboard", "client")},
        **({"s3": {"s3": S3_PORT}} if parts.storage else {}),
        **(
            {name: {name: ports.get(name).number} for name in ("prometheus", "grafana")}
            if parts.monitoring
            else {}
        ),
        **({"jupyter": {"jupyter": JUPYTER_PORT}} if plan.jupyter else {}),
    }


def names(plan: ComposePlan) -> list[str]:
    """The services that run beside the Ray nodes."""
    return [*(["s3"] if plan.settings.storage else []), *beside_ray(plan)]


def builds(plan: ComposePlan) -> list[str]:
    """The services whose image is built, in the order in which they must be."""
    of_jupyter = plan.jupyter and "jupyter" not in plan.settings.images
    return [*([HEAD] if plan.build else []), *(["jupyter"] if of_jupyter else [])]


def prepare(plan: ComposePlan) -> dict[str, Any]:
    """Gives the volumes to the user of the containers; Docker makes them root's."""
    named = volumes(plan)
    return {
        "image": plan.head.image,
        "user": "0:0",
        "entrypoint": ["chown", plan.settings.user, *(f"/volumes/{name}" for name in named)],
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": ["CHOWN"],
        "volumes": [f"{name}:/volumes/{name}:nocopy" for name in named],
        "logging": logging(),
    }


def after_prepare(**others: str) -> dict[str, Any]:
    """What must be there before a service starts: its volumes, and others with their condition."""
    return {"prepare": {"condition": _COMPLETED}} | {
        name: {"condition": condition} for name, condition in others.items()
    }


def after_head() -> dict[str, Any]:
    """A healthy head must be there before a service starts."""
    return {HEAD: {"condition": _HEALTHY}}


def head_needs(plan: ComposePlan) -> dict[str, Any]:
    """What must be there before the head starts, and the volume of its files."""
    storage = {"s3": _HEALTHY} if plan.settings.storage else {}
    name, folder = RAY_FILES
    return {"depends_on": after_prepare(**storage), "volumes": [f"{name}:{folder}:nocopy"]}


def beside_ray(plan: ComposePlan) -> dict[str, tuple[str, dict[str, Any]]]:
    """The services after the Ray nodes: name -> (what it is, the service)."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    if plan.settings.monitoring:
        found[METRICS] = "Counts nodes, their cost and evictions for Prometheus.", _metrics(plan)
        found["prometheus"] = "Collects the metrics of all nodes.", _prometheus(plan)
        found["grafana"] = "Shows Ray's dashboards and Sunspot's.", _grafana(plan)
    if plan.jupyter:
        found["jupyter"] = "Notebooks and terminals that use the cluster.", _jupyter(plan)
    return found


def s3(plan: ComposePlan) -> dict[str, Any]:
    """The object store, with one bucket."""
    name, folder = S3_FILES
    return {
        "image": plan.settings.images.get("s3", S3),
        "entrypoint": ["/bin/sh", "-c", SERVE_S3],
        "environment": {"ROOT_ACCESS_KEY_ID": S3_ACCESS_KEY, **_NO_PROXY},
        "secrets": mounts.secrets(S3_SECRET_KEY),
        "volumes": [f"{name}:{folder}:nocopy"],
        "depends_on": after_prepare(),
        "healthcheck": _answering(S3_PORT, "/health"),
        **_confined(plan),
    }


def _metrics(plan: ComposePlan) -> dict[str, Any]:
    port = ports.get("eviction-metrics").number
    prices = {node.group: 0.0 for node in plan.nodes} | {HEAD: plan.settings.usd_per_hour}
    return {
        "image": plan.head.image,
        "entrypoint": ["python", "-m", "sunspot.node.compose.exporter"],
        "command": [GCS, str(port)],
        "environment": {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": secret_files.inside(RAY_TOKEN),
            "PYTHONPATH": node_files.PYTHON,
            "SUNSPOT_PRICES": json.dumps(prices),
            "NVIDIA_VISIBLE_DEVICES": "void",
        },
        "secrets": mounts.secrets(RAY_TOKEN),
        "configs": node_files.configs(node_files.EXPORTER),
        "init": True,
        "depends_on": after_head(),
        "healthcheck": _listening(port),
        **_confined(plan),
    }


def _prometheus(plan: ComposePlan) -> dict[str, Any]:
    port = ports.get("prometheus").number
    name, folder = PROMETHEUS_FILES
    return {
        "image": plan.settings.images.get("prometheus", monitoring.PROMETHEUS),
        "entrypoint": ["prometheus"],
        "command": [
            "--config.file=/etc/prometheus/prometheus.yml",
            f"--storage.tsdb.path={folder}",
            "--storage.tsdb.retention.time=15d",
            "--storage.tsdb.retention.size=4GB",
            f"--web.listen-address={EVERY_ADDRESS}:{port}",
        ],
        "environment": _NO_PROXY,
        "configs": [mounts.config("prometheus.yml", "/etc/prometheus/prometheus.yml")],
        "volumes": [f"{name}:{folder}:nocopy", f"{':'.join(RAY_FILES)}:ro"],
        "depends_on": after_prepare(**{HEAD: _HEALTHY}),
        "healthcheck": _answering(port, "/-/ready"),
        **_confined(plan),
    }


def _grafana(plan: ComposePlan) -> dict[str, Any]:
    port = ports.get("grafana").number
    return {
        "image": plan.settings.images.get("grafana", monitoring.GRAFANA),
        "environment": {
            "GF_PATHS_CONFIG": "/etc/grafana/grafana.ini",
            "GF_PATHS_PROVISIONING": "/etc/grafana/provisioning",
            "GF_SERVER_HTTP_ADDR": EVERY_ADDRESS,
            "GF_SERVER_HTTP_PORT": str(port),
            **_NO_PROXY,
        },
        "configs": [mounts.config(_config(name), f"/etc/{name}") for name in _grafana_files()],
        # It stores nothing: all that it shows is in these files.
        "tmpfs": [f"/var/lib/grafana:uid={plan.settings.user.partition(':')[0]},mode=700"],
        "volumes": [f"{':'.join(RAY_FILES)}:ro"],
        "depends_on": {"prometheus": {"condition": _HEALTHY}},
        "healthcheck": _answering(port, "/api/health"),
        **_confined(plan),
    }


def _jupyter(plan: ComposePlan) -> dict[str, Any]:
    name, folder = NOTEBOOKS
    dashboard, client = ports.get("dashboard").number, ports.get("client").number
    return {
        **_jupyter_image(plan),
        "command": [
            "jupyter",
            "lab",
            f"--ip={EVERY_ADDRESS}",
            f"--port={JUPYTER_PORT}",
            "--no-browser",
            f"--ServerApp.root_dir={folder}",
        ],
        "user": plan.settings.user,
        "init": True,
        "environment": {
            **common_environment(plan),
            "RAY_ADDRESS": f"ray://{HEAD}:{client}",
            "RAY_API_SERVER_ADDRESS": f"http://{HEAD}:{dashboard}",
            "JUPYTER_TOKEN_FILE": secret_files.inside(JUPYTER_TOKEN),
            "NVIDIA_VISIBLE_DEVICES": "void",
        },
        "secrets": mounts.secrets(
            JUPYTER_TOKEN,
            RAY_TOKEN,
            *([S3_CREDENTIALS] if plan.settings.storage else []),
        ),
        "volumes": [f"{name}:{folder}:nocopy", *data_volumes(plan)],
        "depends_on": after_prepare(**{HEAD: _HEALTHY}),
        "healthcheck": _listening(JUPYTER_PORT),
        "restart": _RESTART,
        "logging": logging(),
    }


def _jupyter_image(plan: ComposePlan) -> dict[str, Any]:
    """The image of Jupyter: one that is named, or Jupyter on the image of the nodes."""
    if named := plan.settings.images.get("jupyter"):
        return {"image": named}
    build = {
        "context": str(plan.jupyter_context),
        "dockerfile": "jupyter.Dockerfile",
        "args": {"BASE_IMAGE": plan.head.image},
    }
    return {"image": f"{plan.project}-jupyter", "build": build}


def config_texts(plan: ComposePlan) -> dict[str, str]:
    """The text of every file of ours that a container gets, by its config's name."""
    exporter = node_files.EXPORTER if plan.settings.monitoring else ()
    modules = node_files.texts((*ray_nodes.modules(plan), *exporter))
    found = {node_files.config(name): text for name, text in modules.items()}
    if not plan.settings.monitoring:
        return found
    files = monitoring.files()
    texts = {
        _config(name): files[name].read_text() for name in ("prometheus.yml", *_grafana_files())
    }
    hosts: Mapping[str, Mapping[str, str]] = {
        "prometheus.yml": {"eviction-metrics": METRICS},
        _config("grafana/provisioning/datasources/prometheus.yml"): {"prometheus": "prometheus"},
    }
    for name, named in hosts.items():
        texts[name] = monitoring.between_containers(texts[name], named)
    return found | texts


def _grafana_files() -> list[str]:
    return [name for name in monitoring.files() if name.startswith("grafana/")]


def _config(name: str) -> str:
    """The name of the Compose config that has a file of `monitoring`."""
    return name.replace("/", "-")


def _answering(port: int, path: str) -> dict[str, Any]:
    """Healthy while a page is served; for images with busybox's wget."""
    return _health("CMD-SHELL", f"wget -q -O /dev/null http://127.0.0.1:{port}{path}")


def _listening(port: int) -> dict[str, Any]:
    """Healthy while a port is open; for images with bash."""
    return _health("CMD", "bash", "-c", f": <>/dev/tcp/127.0.0.1/{port}")


def _health(*test: str) -> dict[str, Any]:
    return {
        "test": list(test),
        "interval": "5s",
        "timeout": "10s",
        "retries": 12,
        "start_period": "60s",
    }


def _confined(plan: ComposePlan) -> dict[str, Any]:
    """What a server gets that needs no right at all."""
    return {
        "user": plan.settings.user,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": _RESTART,
        "logging": logging(),
    }
