"""One node's values as the user data that makes an Ubuntu VM into that node.

`files/` holds units and scripts exactly as they land on the VM, and modules of `sunspot/node` land
there without their documentation (spare.py). They are not templates: what differs from node to
node is in `/etc/sunspot/node.env`. What may change while a cluster runs is not in it: see live.py.
"""

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import sunspot
from cloud_init.spare import without_documentation
from cloud_init.values import NodeValues
from sunspot import monitoring
from sunspot.errors import UsageError
from sunspot.ray import ports, start
from sunspot.ray.start import Autoscaler, Head, RayNode

# Azure's limit on customData, counted after base64 is decoded (its API reference, compute).
MAX_USER_DATA_BYTES = 65_535

IMDS_URL = "http://169.254.169.254"
NODE_ENV = "/etc/sunspot/node.env"
# live.sh makes it of the head's user data, and Sunspot's node provider changes it.
AUTOSCALER_RUN_CONFIG = "/run/sunspot/autoscaler/config.yaml"
TOKEN = "/run/sunspot/token"  # noqa: S105 - its path, not the token
# On the head's data disk, at this logical unit number; state.sh mounts it.
STATE_LUN = 0
GCS_STATE = "/var/lib/sunspot/state/gcs"

# How long a worker keeps its work while the head is away; a VM restarts in two or three minutes.
HEAD_AWAY_S = 600

# All machines that a type needs at a tick go into one call, since calls for one scale set are
# serialised; calls for 40 types run at once.
LAUNCH_BATCH = 1000
CONCURRENT_LAUNCHES = 40 * LAUNCH_BATCH

# /dev/shm must hold the object store (0.3 of the memory) and NCCL's buffers; it uses memory only as
# it fills.
SHM_SHARE = 0.5

RESERVED_PORTS = "/etc/sysctl.d/60-sunspot.conf"

GZIP_MAGIC = b"\x1f\x8b"

FILES = Path(__file__).parent / "files"

# The modules of sunspot/node that an Azure node runs; ray.sh mounts them into the container.
# There is no `sunspot/__init__.py` beside them: that one needs more than an image with Ray has.
# Nodes may have Python 3.10.
NODE_MODULES = (
    # Ray's autoscaler on the head
    "autoscaler.py",
    "autoscaler_config.py",
    "azure/arm.py",
    "azure/joining.py",
    "azure/record.py",
    "azure/refusals.py",
    "azure/scale_sets.py",
    "azure/serial_log.py",
    "azure/vms.py",
    "events.py",
    "fallback.py",
    "files.py",
    "infeasible.py",
    "joins.py",
    "machines.py",
    "members.py",
    "notices.py",
    "teller.py",
    # the eviction watcher, on every node; the head's also serves Prometheus
    "azure/eviction.py",
    "attendance.py",
    "collector.py",
    "drain.py",
    "gcs.py",
    "leaving.py",
    "ledger.py",
    "metrics.py",
    "record_metrics.py",
    "shortening.py",
    # what looks after an idle cluster, on the head
    "asleep.py",
    "azure/idle.py",
    "idle.py",
    "usage.py",
    # `ray start`
    "raylet.py",
    # both
    "azure/imds.py",
    "azure/live.py",
    # gpus.sh
    "azure/cuda.py",
)
START_HOOK = "sunspot.node.raylet.start_hook"
NODE_SOURCES = Path(sunspot.__file__).parent / "node"
NODE_PYTHON = "/usr/local/lib/sunspot/python"

# Units that start at every boot, besides the driver's unit, which is named after the driver.
UNITS = (
    "sunspot-disk.service",
    "sunspot-docker.service",
    "sunspot-image.service",
    "sunspot-instance.service",
    "sunspot-token.service",
    "sunspot-ray.service",
    "sunspot-eviction.service",
    "sunspot-leave.path",
)

# A worker that may delete itself.
ORPHAN_UNIT = "sunspot-orphan.service"

HEAD_UNITS = (
    "sunspot-state.service",
    "sunspot-prometheus.service",
    "sunspot-grafana.service",
    "sunspot-idle.service",
)


@dataclass(frozen=True, kw_only=True)
class File:
    """A file on the VM: its absolute path, its text, its mode."""

    path: str
    text: str
    mode: int


def render(values: NodeValues, *, compress: bool = True) -> bytes:
    """The node's `#cloud-config`; the same bytes for the same values.

    Args:
        values: the node's values.
        compress: gzips the whole, as Azure gets it (cloud-init unpacks that: its page "User data
            formats"); otherwise it is readable text.

    Raises:
        UsageError: the compressed user data is larger than Azure accepts.
    """
    # Each unit installs what it needs; upgrades would only slow the boot.
    head = {"package_update": False, "package_upgrade": False}
    # Units are in place from the second boot on. --no-block: cloud-init does not wait for Ray.
    commands = [
        # At later boots systemd does this.
        ["sysctl", "--quiet", f"--load={RESERVED_PORTS}"],
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", *units(values)],
        ["systemctl", "start", "--no-block", "sunspot-ray.service"],
    ]
    parts = [
        "#cloud-config\n",
        _yaml(head),
        "write_files:\n",
        *(_written(file) for file in files(values)),
        _yaml({"runcmd": commands}),
    ]
    data = "".join(parts).encode()
    if not compress:
        return data
    data = _packed(data)
    if len(data) > MAX_USER_DATA_BYTES:
        raise UsageError(
            f"{values.group}: the user data has {len(data)} bytes, Azure accepts at most "
            f"{MAX_USER_DATA_BYTES}: use fewer groups"
        )
    return data


def readable(user_data: bytes) -> bytes:
    """The user data as `render` returns it uncompressed."""
    return gzip.decompress(user_data) if user_data.startswith(GZIP_MAGIC) else user_data


def files(values: NodeValues) -> Iterator[File]:
    """Every file in the user data, in its order."""
    yield from (file for file in _static_files() if _is_for(values, file.path))
    yield File(path=NODE_ENV, text=_env_text(environment(values)), mode=0o644)
    yield File(path=RESERVED_PORTS, text=_reserved_ports(values), mode=0o644)


def units(values: NodeValues) -> list[str]:
    """The systemd units that the node enables."""
    enabled = [*UNITS]
    if values.role == "head":
        enabled += HEAD_UNITS
    elif values.orphan_after_s is not None:
        enabled.append(ORPHAN_UNIT)
    if values.driver != "none":
        enabled.append(f"sunspot-driver@{values.driver}.service")
    return enabled


def environment(values: NodeValues) -> dict[str, str]:
    """The content of node.env: what the scripts read, and what Ray's container gets."""
    facts, node = values.facts, ray_node(values)
    registry = facts.registry or ""
    env = {
        "SUNSPOT_CLUSTER": values.cluster,
        "SUNSPOT_ROLE": values.role,
        "SUNSPOT_ADMIN_USER": values.admin_user,
        "SUNSPOT_IMAGE": values.image,
        "SUNSPOT_REGISTRY": registry,
        "SUNSPOT_REGISTRY_URL": f"https://{registry}" if registry else "",
        "SUNSPOT_IMDS_URL": IMDS_URL,
        "SUNSPOT_VAULT_URL": facts.vault_url.rstrip("/"),
        "SUNSPOT_TOKEN_SECRET": facts.token_secret,
        "SUNSPOT_IDENTITY_CLIENT_ID": facts.identity_client_id,
        "SUNSPOT_STORAGE": facts.storage_url,
        "SUNSPOT_SUBSCRIPTION_ID": facts.subscription_id,
        "SUNSPOT_RESOURCE_GROUP": facts.resource_group,
        "SUNSPOT_SCALE_SET": values.scale_set or "",
        "SUNSPOT_ORPHAN_SECONDS": str(values.orphan_after_s or ""),
        "SUNSPOT_DRIVER": values.driver,
        "SUNSPOT_ACCELERATOR": values.resources.accelerator or "",
        "SUNSPOT_GPUS": str(values.resources.gpus),
        "SUNSPOT_SHM_BYTES": str(int(values.resources.memory * SHM_SHARE)),
        "SUNSPOT_HEAD_ADDRESS": facts.head_address,
        "SUNSPOT_HEAD_PORT": str(ports.get("gcs").number),
        "SUNSPOT_AGENT_PORT": str(ports.get("dashboard-agent").number),
        "SUNSPOT_EVICTION_METRICS_PORT": str(ports.get("eviction-metrics").number),
        "SUNSPOT_RAY_FLAGS": _words(start.flags(node)),
        # Also on a worker, whose boot is another one when the autoscaler takes its group over.
        "SUNSPOT_AUTOSCALED": "1" if values.autoscaled else "",
        "AZURE_CLIENT_ID": facts.identity_client_id,
        **start.environment(node),
    }
    return env | _head_environment(values) if values.role == "head" else env


def ray_node(values: NodeValues) -> RayNode:
    """The node as sunspot.ray.start describes it; ray.sh adds its name, which is the VM's."""
    is_head, address = values.role == "head", values.facts.head_address
    return RayNode(
        group=values.group,
        market=values.market,
        resources=values.resources,
        object_store=values.resources.object_store,
        token_path=TOKEN,
        head=_head(values) if is_head else None,
        head_address=None if is_head else f"{address}:{ports.get('gcs').number}",
        # The address that the workers use.
        node_ip=address if is_head else None,
        head_away_s=HEAD_AWAY_S,
        start_hook=START_HOOK,
        boot=values.boot or None,
    )


def _head(values: NodeValues) -> Head:
    autoscaler = Autoscaler(
        config=AUTOSCALER_RUN_CONFIG,
        launch_batch=LAUNCH_BATCH,
        concurrent_launches=CONCURRENT_LAUNCHES,
    )
    return Head(
        autoscaler=autoscaler if values.autoscaled else None,
        gcs_storage=GCS_STATE,
        prometheus_url=f"http://{start.LOOPBACK}:{ports.get('prometheus').number}",
        grafana_url=f"http://{start.LOOPBACK}:{ports.get('grafana').number}",
    )


def _words(flags: list[str]) -> str:
    """The flags in one line, which ray.sh splits at the spaces."""
    for flag in flags:
        if len(flag.split()) != 1:
            raise UsageError(f"{flag!r} cannot be passed to a node: it contains a space")
    return " ".join(flags)


def _head_environment(values: NodeValues) -> dict[str, str]:
    return {
        "SUNSPOT_STATE_LUN": str(STATE_LUN),
        "SUNSPOT_RAY_VERSION": values.ray_version,
        "SUNSPOT_PROMETHEUS_IMAGE": values.prometheus_image,
        "SUNSPOT_PROMETHEUS_PORT": str(ports.get("prometheus").number),
        "SUNSPOT_GRAFANA_IMAGE": values.grafana_image,
        "SUNSPOT_GRAFANA_PORT": str(ports.get("grafana").number),
        "SUNSPOT_DASHBOARD_PORT": str(ports.get("dashboard").number),
    }


def _is_for(values: NodeValues, path: str) -> bool:
    """Whether a node needs a file: Azure's limit leaves no room for what another one runs."""
    name = path.rpartition("/")[2]
    if name in {"orphan.sh", ORPHAN_UNIT}:
        return values.role == "worker"
    if path.startswith("/etc/sunspot/") or name in {"grafana.sh", "prometheus.sh"}:
        return values.role == "head"
    if name.startswith("driver-"):
        return name == f"driver-{values.driver}.sh"
    return name != "cuda.py" or values.driver == "nvidia"


@cache
def _static_files() -> tuple[File, ...]:
    sources = {
        f"/{path.relative_to(FILES).as_posix()}": path
        for path in sorted(FILES.rglob("*"))
        if path.is_file()
    }
    sources |= {f"/etc/sunspot/{name}": path for name, path in monitoring.files().items()}
    modules = {f"{NODE_PYTHON}/sunspot/node/{name}": NODE_SOURCES / name for name in NODE_MODULES}
    return tuple(
        File(
            path=path,
            text=_text(source),
            # By the name: file modes of a checkout depend on the system.
            mode=0o755 if source.suffix == ".sh" else 0o644,
        )
        for path, source in [*sorted(sources.items()), *modules.items()]
    )


def _text(source: Path) -> str:
    # As bytes: read_text would translate line endings.
    text = source.read_bytes().decode()
    return without_documentation(text) if source.suffix == ".py" else text


def _reserved_ports(values: NodeValues) -> str:
    """Keeps the kernel from giving one of Ray's ports to a process that asks for any port."""
    any_port = ports.get("ephemeral")
    ours = [port.number for port in ports.of(values.role) if port is not any_port]
    reserved = [str(number) for number in ours if number >= any_port.number]
    return f"net.ipv4.ip_local_reserved_ports = {','.join(reserved)}\n"


def _env_text(env: dict[str, str]) -> str:
    return "".join(f"{name}={_quoted(name, value)}\n" for name, value in env.items())


def _quoted(name: str, value: str) -> str:
    """The value in single quotes, between which both systemd and sh take everything as it is."""
    if "'" in value or not value.isprintable():
        raise UsageError(
            f"{name} {value!r} cannot be passed to a node: "
            "it has a quotation mark ' or a character that does not print"
        )
    return f"'{value}'"


@cache
def _written(file: File) -> str:
    """The file as an item of cloud-init's write_files; kept, since most are in every node's."""
    entry = {"path": file.path, "permissions": f"{file.mode:04o}", "content": file.text}
    return _yaml([entry])


def _packed(data: bytes) -> bytes:
    buffer = io.BytesIO()
    # GzipFile, because gzip.compress writes another header from one Python to the next.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def _yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that a person can read them."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
