"""How to reach the head of a cluster: SSH, the tunnel's ports, the token that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from sunspot.errors import SunspotError
from sunspot.node.files import write_private
from sunspot.ray import ports
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets.azure.records import Record
from sunspot.targets.azure.settings import TARGET, AzureSettings
from sunspot.targets.ssh import RemoteCommandError, Ssh
from sunspot.targets.tunnel import Tunnel

# cloud_init/files writes it there; only root and the container's user may read it.
TOKEN_ON_HEAD = "/run/sunspot/token"  # noqa: S105 - its path, not the token

# Ray's Python, as root of the machine starts it; cloud_init/files: ray.sh names the container.
PYTHON_OF_RAY = ("sudo", "-n", "docker", "exec", "--interactive", "sunspot-ray", "python")

# What looks after the cluster when nothing uses it; cloud_init/files: idle.sh names the container.
LOOKS_AFTER_IDLE = (
    *("sudo", "-n", "docker", "exec", "sunspot-idle"),
    *("python", "-m", "sunspot.node.azure.idle"),
)

# Servers on the head's loopback address besides Ray's dashboard; names in sunspot.ray.ports.
MONITORING = ("grafana", "prometheus")

# Ray's server for drivers that are not on a node (Ray Client), also on the loopback address.
CLIENT = "client"


def ssh(stack: Stack, record: Record, known_hosts: Path) -> Ssh:
    """SSH to the head, with the private key beside the stack's public one if it is there."""
    access = AzureSettings.of(stack).access
    key = None
    if access.ssh_public_key is None:
        public = Path(record.folder) / Path(access.ssh_public_key_file).expanduser()
        private = public.with_suffix("") if public.suffix == ".pub" else public
        key = private if private.is_file() else None
    command = str(record.outputs.get("ssh_command", ""))
    return Ssh.parse(command, key=key, known_hosts=known_hosts)


def vm_of(group_id: str, head: str) -> str:
    """The ARM id of the head's VM in a resource group."""
    return f"{group_id}/providers/Microsoft.Compute/virtualMachines/{head}"


def running(to: Ssh, address: str) -> Callable[[Sequence[str], float], str]:
    """Runs a module of Sunspot's, with arguments, in the Python of Ray on the head.

    Args:
        to: SSH to the head.
        address: HOST:PORT of the GCS, as the head reaches it.
    """

    def run(module: Sequence[str], timeout_s: float) -> str:
        python = (*PYTHON_OF_RAY[:-2], f"--env=RAY_ADDRESS={address}", *PYTHON_OF_RAY[-2:])
        return to.read(*python, "-m", *module, timeout_s=timeout_s)

    return run


def open_tunnel(tunnel: Tunnel, to: Ssh, record: Record, *, preferred: int | None) -> int:
    """Opens the tunnel to the dashboard and what is beside it; the dashboard's port here.

    `preferred` is that port if it can be had.
    """
    also = [ports.get(one).number for one in (CLIENT, *MONITORING)]
    return tunnel.open(to, _dashboard_port(record), preferred=preferred, also=also)


def fetch_token(to: Ssh, token: Path) -> None:
    """Copies the cluster's token into a private file.

    Raises:
        RemoteCommandError: the head has none.
    """
    found = to.read("sudo", "-n", "cat", TOKEN_ON_HEAD).strip()
    if not found:
        raise RemoteCommandError(f"{TOKEN_ON_HEAD} on the head is empty")
    write_private(token, found)


def keep_alive(to: Ssh, seconds: float) -> float:
    """Keeps an idle cluster; returns when that ends, in seconds since the epoch.

    Raises:
        SunspotError: the head cannot be reached, or nothing there looks after idle clusters yet.
    """
    try:
        said = to.read(*LOOKS_AFTER_IDLE, "--keep-alive", str(seconds))
        return float(said.split()[-1])
    except (RemoteCommandError, ValueError, IndexError) as error:
        raise SunspotError(
            f"the head did not take it ({error}): see sunspot ssh, then: systemctl status "
            "sunspot-idle"
        ) from error


def handle(
    name: str, record: Record, *, token: Path, dashboard: int, forwarded: Mapping[int, int]
) -> ClusterHandle:
    """The handle of a cluster.

    Args:
        name: the cluster's name.
        record: its record.
        token: the file of its token.
        dashboard: the port here that leads to Ray's dashboard.
        forwarded: the ports here that lead to other servers, by the servers' own.
    """
    client = forwarded.get(ports.get(CLIENT).number)
    return ClusterHandle(
        name=name,
        target=TARGET,
        head_address=f"{record.outputs.get('head_private_ip')}:{ports.get('gcs').number}",
        driver_address=None if client is None else f"ray://127.0.0.1:{client}",
        job_address=f"http://127.0.0.1:{dashboard}",
        token_path=token,
        monitoring=_monitoring(forwarded),
    )


def _monitoring(forwarded: Mapping[int, int]) -> dict[str, str]:
    """Name -> URL of the monitoring servers that the tunnel leads to."""
    found = {name: forwarded.get(ports.get(name).number) for name in MONITORING}
    return {name.capitalize(): f"http://127.0.0.1:{port}" for name, port in found.items() if port}


def _dashboard_port(record: Record) -> int:
    usual = ports.get("dashboard").number
    return urlsplit(str(record.outputs.get("job_address", ""))).port or usual
