"""The one machine of a cluster: namespaces of this machine, with a containerd of their own.

The host reaches it through a pair of network devices that goes with the namespaces. It reaches
nothing but the host: there is no route further.
"""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from machines.docker import cpu_group
from machines.kubernetes import CACHE, container_images
from machines.namespaces import WAIT, Namespaces, booted
from machines.processes import checked

NAME = "sunspot"
LOGS = "logs"
CLUSTERS = CACHE / "clusters"
MOST_CLUSTERS = 16

# What the scheduler may give away. Nothing is held to what it asked for (`cpuCFSQuota`).
PROCESSORS = 32

CONTAINERD = "/run/containerd/containerd.sock"
POD_RANGE = "10.244.0.0/24"
SERVICE_RANGE, API_SERVICE, DNS_SERVICE = "10.96.0.0/16", "10.96.0.1", "10.96.0.10"
DNS_ZONE = "cluster.local"

# By setupKernelTunables of Kubernetes 1.34 (pkg/kubelet/cm/container_manager_linux.go).
_KERNEL = (
    *("vm/overcommit_memory=1", "vm/panic_on_oom=0", "kernel/panic=10", "kernel/panic_on_oops=1"),
    *("kernel/keys/root_maxkeys=1000000", "kernel/keys/root_maxbytes=25000000"),
)
_CGROUPS = Path("/sys/fs/cgroup")

_BOOT = (
    f"""
set -eu
folder=$1
mount --make-rprivate /
mkdir "$folder/cgroup"
mount --rbind /sys/fs/cgroup "$folder/cgroup"
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount --rbind "$folder/cgroup" /sys/fs/cgroup
umount --lazy "$folder/cgroup"
# By these the kubelet counts processors: as many as the small requests of tests take.
mount -t tmpfs tmpfs /sys/devices/system/node
mount -t tmpfs tmpfs /sys/devices/system/cpu
for number in $(seq {PROCESSORS}); do mkdir "/sys/devices/system/cpu/cpu$number"; done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
printf 'search {DNS_ZONE}\\nnameserver {DNS_SERVICE}\\n' > /run/resolv.conf
mount --bind /run/resolv.conf /etc/resolv.conf
# What the kubelet would set for the whole of this machine it finds set.
for setting in {" ".join(_KERNEL)}; do
    name=${{setting%=*}}
    echo "${{setting#*=}}" > "/run/$(basename "$name")"
    mount --bind "/run/$(basename "$name")" "/proc/sys/$name"
done
hostname {NAME}
ip link set lo up
ip address add {DNS_SERVICE}/32 dev lo
sysctl --quiet --write net.ipv4.ip_forward=1
"""
    + WAIT
)

# `restrict_oom_score_adj`: not every root may lower one.
_CONTAINERD_CONFIG = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{pause}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
_CNI_CONFIG = f"""\
{{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {{
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {{
        "type": "host-local",
        "dataDir": "/run/cni",
        "ranges": [[{{"subnet": "{POD_RANGE}"}}]],
        "routes": [{{"dst": "0.0.0.0/0"}}]
      }}
    }},
    {{"type": "portmap", "capabilities": {{"portMappings": true}}}}
  ]
}}
"""


@dataclass(frozen=True)
class Machine:
    """The machine of a cluster.

    Attributes:
        inside: its namespaces.
        folder: its files, which go with it.
        address: its IP address, which the host reaches.
        cgroup: the control group of its containers, below that of each controller.
    """

    inside: Namespaces
    folder: Path
    address: str
    cgroup: str

    @property
    def logs(self) -> Path:
        """Where its programs write to, one file each."""
        return self.folder / LOGS


@contextlib.contextmanager
def machine() -> Iterator[Machine]:
    """A booted machine without a program; nothing of it is left after the block."""
    with _number() as number:
        folder = CLUSTERS / str(number)
        cgroup = f"{cpu_group().rstrip('/')}/sunspot-kubernetes-{number}"
        shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
        for part in (LOGS, "cni"):
            (folder / part).mkdir(parents=True)
        try:
            _write_configuration(folder)
            container_images.copy_store(folder / "containerd")
            with _cgroups(cgroup), booted(_BOOT, folder, log=folder / LOGS / "boot") as inside:
                yield Machine(inside, folder, _connect(inside, number), cgroup)
        finally:
            shutil.rmtree(folder)


def _write_configuration(folder: Path) -> None:
    pause = container_images.PAUSE
    (folder / "containerd.toml").write_text(_CONTAINERD_CONFIG.format(pause=pause, folder=folder))
    (folder / "cni" / "pods.conflist").write_text(_CNI_CONFIG)


@contextlib.contextmanager
def _number() -> Iterator[int]:
    """A number that no other cluster of this machine has: its network comes from it."""
    CLUSTERS.mkdir(parents=True, exist_ok=True)
    for number in range(MOST_CLUSTERS):
        with (CLUSTERS / f"{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    raise AssertionError(f"{MOST_CLUSTERS} clusters run already")


def _connect(inside: Namespaces, number: int) -> str:
    """Makes the way between the host and the machine; the machine's address."""
    host, address = f"10.79.{number}.1", f"10.79.{number}.2"
    device = f"{NAME}-k8s-{number}"
    here = ["ip", "link", "add", device, "type", "veth", "peer", "name", "eth0"]
    checked([*here, "netns", str(inside.pid)])
    checked(["ip", "address", "add", f"{host}/30", "dev", device])
    checked(["ip", "link", "set", device, "up"])
    inside("ip", "address", "add", f"{address}/30", "dev", "eth0")
    inside("ip", "link", "set", "eth0", "up")
    # What is sent to a service has another address before it leaves.
    inside("ip", "route", "add", SERVICE_RANGE, "dev", "eth0")
    return address


@contextlib.contextmanager
def _cgroups(path: str) -> Iterator[None]:
    """A control group of that path of each controller, and none of them after the block."""
    is_version_2 = (_CGROUPS / "cgroup.controllers").exists()
    tops = [_CGROUPS] if is_version_2 else [p for p in _CGROUPS.iterdir() if not p.is_symlink()]
    made = [top / path.lstrip("/") for top in tops]
    for group in made:
        group.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for group in made:
            _remove(group)


def _remove(group: Path) -> None:
    for below in sorted(group.rglob("*/"), reverse=True):
        below.rmdir()
    group.rmdir()
