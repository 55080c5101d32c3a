"""One node's values as the user data that makes an Ubuntu VM into that node.

`files/` holds units and scripts exactly as they land on the VM, and modules of `sunspot/node` land
there as they are. Nothing in them is filled in: what differs from node to node is in
`/etc/sunspot/node.env` and, on an autoscaled head, `/etc/sunspot/autoscaler.yaml`.
"""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

import sunspot
from sunspot.errors import UsageError
from sunspot.ray import ports

Driver = Literal["none", "nvidia", "rocm"]
NodeMarket = Literal["spot", "on-demand"]

# Azure's limit on customData, counted after base64 is decoded (its API reference, compute).
MAX_USER_DATA_BYTES = 65_535

IMDS_URL = "http://169.254.169.254"
NODE_ENV = "/etc/sunspot/node.env"
AUTOSCALER_CONFIG = "/etc/sunspot/autoscaler.yaml"
# ray.sh's copy of it, which Sunspot's node provider changes.
AUTOSCALER_RUN_CONFIG = "/run/sunspot/autoscaler/config.yaml"
TOKEN = "/run/sunspot/token"  # noqa: S105 - where it lies, not what it is
# On the head's data disk, at this logical unit number; state.sh mounts it.
STATE_LUN = 0
GCS_STATE = "/var/lib/sunspot/state/gcs"

# By digest: a tag can be moved. Both as their projects' updates name them (Renovate's, 2025-10).
PROMETHEUS_IMAGE = (
    "docker.io/prom/prometheus:v3.7.1"
    "@sha256:ff7e389acbe064a4823212a500393d40a28a8f362e4b05cbf6742a9a3ef736b2"
)
GRAFANA_IMAGE = (
    "docker.io/grafana/grafana:12.2.1"
    "@sha256:35c41e0fd0295f5d0ee5db7e780cf33506abfaf47686196f825364889dee878b"
)

# How long a worker keeps its work while the head is away: a VM's restart takes two or three
# minutes. Ray's own is 60 (ray_config_def.h).
HEAD_AWAY_S = 600

# Ray's own default share of memory for objects (ray_constants, 2.60). /dev/shm must hold them, and
# what NCCL puts there; it takes memory only as it fills.
OBJECT_STORE_SHARE = 0.3
SHM_SHARE = 0.5
GIB = 2**30

RESERVED_PORTS = "/etc/sysctl.d/60-sunspot.conf"

GZIP_MAGIC = b"\x1f\x8b"

FILES = Path(__file__).parent / "files"

# What of sunspot/node an Azure node runs, and where it lands; ray.sh shows it to the container.
# There is no `sunspot/__init__.py` beside it: that one needs more than an image with Ray has.
# Nodes may have Python 3.10.
NODE_MODULES = (
    # Ray's autoscaler on the head
    "autoscaler.py",
    "autoscaler_config.py",
    "azure/arm.py",
    "azure/scale_sets.py",
    "fallback.py",
    "files.py",
    "machines.py",
    # the eviction watcher, on every node; the head's answers Prometheus
    "azure/eviction.py",
    "collector.py",
    "gcs.py",
    "leaving.py",
    "metrics.py",
    # both
    "azure/imds.py",
)
NODE_SOURCES = Path(sunspot.__file__).parent / "node"
NODE_PYTHON = "/usr/local/lib/sunspot/python"

# Units that start at every boot. The driver's unit comes on top, named for the driver.
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

HEAD_UNITS = (
    "sunspot-state.service",
    "sunspot-prometheus.service",
    "sunspot-grafana.service",
)


@dataclass(frozen=True, kw_only=True)
class NodeValues:
    """Everything that one node must be told. None of it is secret.

    `image` is a container reference, `registry` the server to log in to as the node's identity
    before each pull, None for a public image. `head_address` is the head's private IP address.
    `token_secret` is the name of the token's secret in the vault, not the token. `gpus` above 0
    needs a `driver`. `autoscaler_config` is the text of the head's autoscaler file, None where Ray
    does not scale. `prices` is USD an hour by group, for the head's metrics.
    """

    role: ports.Role
    group: str
    market: NodeMarket
    cluster: str
    image: str
    registry: str | None
    head_address: str
    vault_url: str
    token_secret: str
    identity_client_id: str
    cpus: int
    gpus: int
    memory_gb: float
    accelerator: str | None
    driver: Driver
    storage_url: str | None
    subscription_id: str
    resource_group: str
    scale_set: str | None
    autoscaler_config: str | None
    prices: Mapping[str, float] = field(default_factory=dict)
    admin_user: str = "sunspot"

    def __post_init__(self) -> None:
        _check_choice("role", self.role, get_args(ports.Role))
        _check_choice("market", self.market, get_args(NodeMarket))
        _check_choice("driver", self.driver, get_args(Driver))
        if (self.gpus > 0) != (self.driver != "none"):
            raise UsageError(
                f"{self.group}: {self.gpus} GPUs with driver {self.driver!r}: "
                "GPUs need a driver, and a driver GPUs"
            )
        if self.autoscaler_config is not None and self.role != "head":
            raise UsageError(f"{self.group}: only the head has an autoscaler_config")


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the VM: its absolute path, its text, its mode."""

    path: str
    text: str
    mode: int


def render(values: NodeValues, *, compress: bool = True) -> bytes:
    """The node's `#cloud-config`; the same bytes for the same values.

    With `compress`, which is what Azure gets, it is gzipped as a whole (cloud-init unpacks such:
    its page "User data formats"); without, a person can read it.
    Raises UsageError (a ValueError) when what Azure gets is larger than it takes.
    """
    # Each unit installs what it needs; upgrades would only make the boot longer.
    head = {"package_update": False, "package_upgrade": False}
    # Units are in place from the second boot on. --no-block: cloud-init does not wait for Ray.
    commands = [
        # At later boots systemd does it.
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
            f"{values.group}: the user data has {len(data)} bytes, Azure takes at most "
            f"{MAX_USER_DATA_BYTES}: have fewer groups"
        )
    return data


def readable(user_data: bytes) -> bytes:
    """User data as `render` gives it without compressing it."""
    return gzip.decompress(user_data) if user_data.startswith(GZIP_MAGIC) else user_data


def files(values: NodeValues) -> Iterator[File]:
    """Every file that the user data carries, in its order."""
    yield from _static_files()
    yield File(path=NODE_ENV, text=_env_text(environment(values)), mode=0o644)
    yield File(path=RESERVED_PORTS, text=_reserved_ports(values), mode=0o644)
    if values.autoscaler_config is not None:
        yield File(path=AUTOSCALER_CONFIG, text=values.autoscaler_config, mode=0o644)


def units(values: NodeValues) -> list[str]:
    """The systemd units that the node enables."""
    enabled = [*UNITS]
    if values.role == "head":
        enabled += HEAD_UNITS
    if values.driver != "none":
        enabled.append(f"sunspot-driver@{values.driver}.service")
    return enabled


def environment(values: NodeValues) -> dict[str, str]:
    """The content of node.env: what the scripts read, and what Ray's container gets."""
    memory = int(values.memory_gb * GIB)
    autoscaler = values.autoscaler_config is not None
    registry = values.registry or ""
    env = {
        "SUNSPOT_CLUSTER": values.cluster,
        "SUNSPOT_ROLE": values.role,
        "SUNSPOT_GROUP": values.group,
        "SUNSPOT_MARKET": values.market,
        "SUNSPOT_ADMIN_USER": values.admin_user,
        "SUNSPOT_IMAGE": values.image,
        "SUNSPOT_REGISTRY": registry,
        "SUNSPOT_REGISTRY_URL": f"https://{registry}" if registry else "",
        "SUNSPOT_IMDS_URL": IMDS_URL,
        "SUNSPOT_VAULT_URL": values.vault_url.rstrip("/"),
        "SUNSPOT_TOKEN_SECRET": values.token_secret,
        "SUNSPOT_IDENTITY_CLIENT_ID": values.identity_client_id,
        "SUNSPOT_STORAGE": values.storage_url or "",
        "SUNSPOT_SUBSCRIPTION_ID": values.subscription_id,
        "SUNSPOT_RESOURCE_GROUP": values.resource_group,
        "SUNSPOT_SCALE_SET": values.scale_set or "",
        "SUNSPOT_DRIVER": values.driver,
        "SUNSPOT_ACCELERATOR": values.accelerator or "",
        "SUNSPOT_CPUS": str(values.cpus),
        "SUNSPOT_GPUS": str(values.gpus),
        "SUNSPOT_MEMORY_BYTES": str(memory),
        "SUNSPOT_OBJECT_STORE_BYTES": str(int(memory * OBJECT_STORE_SHARE)),
        "SUNSPOT_SHM_BYTES": str(int(memory * SHM_SHARE)),
        "SUNSPOT_HEAD_ADDRESS": values.head_address,
        "SUNSPOT_HEAD_PORT": str(ports.get("gcs").number),
        "SUNSPOT_AGENT_PORT": str(ports.get("dashboard-agent").number),
        "SUNSPOT_EVICTION_METRICS_PORT": str(ports.get("eviction-metrics").number),
        "SUNSPOT_PORT_FLAGS": " ".join(ports.start_flags(values.role)),
        "SUNSPOT_AUTOSCALER_CONFIG": AUTOSCALER_CONFIG if autoscaler else "",
        "AZURE_CLIENT_ID": values.identity_client_id,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": TOKEN,
        "RAY_NODE_TYPE_NAME": values.group,
        "RAY_NODE_MARKET_TYPE": values.market,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_AWAY_S),
        **ports.environment(values.role),
    }
    if values.role == "head":
        env |= _head_environment(values)
    if autoscaler:
        env["RAY_enable_autoscaler_v2"] = "1"
        env["RAY_enable_infeasible_task_early_exit"] = "true"
        # All that a type wants at a tick in one call, since calls for one scale set follow each
        # other; and calls for 40 types at once. Ray's own: 5 machines a call, 2 calls at once.
        env["AUTOSCALER_MAX_LAUNCH_BATCH"] = "1000"
        env["AUTOSCALER_MAX_CONCURRENT_LAUNCHES"] = "40000"
    return env


def _head_environment(values: NodeValues) -> dict[str, str]:
    prometheus, grafana = ports.get("prometheus").number, ports.get("grafana").number
    return {
        "SUNSPOT_STATE_LUN": str(STATE_LUN),
        "SUNSPOT_PRICES": json.dumps(dict(values.prices), separators=(",", ":")),
        "SUNSPOT_PROMETHEUS_IMAGE": PROMETHEUS_IMAGE,
        "SUNSPOT_PROMETHEUS_PORT": str(prometheus),
        "SUNSPOT_GRAFANA_IMAGE": GRAFANA_IMAGE,
        "SUNSPOT_GRAFANA_PORT": str(grafana),
        # Ray's fault tolerance of the GCS without a server beside it (docs.ray.io, "GCS Fault
        # Tolerance", the embedded RocksDB backend, alpha in 2.60).
        "RAY_gcs_storage": "rocksdb",
        "RAY_gcs_storage_path": GCS_STATE,
        "RAY_PROMETHEUS_HOST": f"http://127.0.0.1:{prometheus}",
        "RAY_GRAFANA_HOST": f"http://127.0.0.1:{grafana}",
    }


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} {value!r} is unknown: choose {' or '.join(choices)}")


@cache
def _static_files() -> tuple[File, ...]:
    sources = {
        f"/{path.relative_to(FILES).as_posix()}": path
        for path in sorted(FILES.rglob("*"))
        if path.is_file()
    }
    modules = {f"{NODE_PYTHON}/sunspot/node/{name}": NODE_SOURCES / name for name in NODE_MODULES}
    return tuple(
        File(
            path=path,
            # Python would turn line ends into its own.
            text=source.read_bytes().decode(),
            # By the name: the mode of a checkout depends on where it was made.
            mode=0o755 if source.suffix == ".sh" else 0o644,
        )
        for path, source in {**sources, **modules}.items()
    )


def _reserved_ports(values: NodeValues) -> str:
    """Keeps the kernel from giving a port of Ray's to a process that asked for any."""
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
