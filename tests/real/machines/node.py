"""A node without a VM: namespaces with the files of its user data, a Docker engine and its Azure.

The node has processes, mounts and a network of its own, this machine's programs, and folders of
its own for everything else. Its units are run as systemd would run them, one command after the
other.
"""

import contextlib
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from azure_model import imds
from azure_model.imds import FakeAzure
from ending import below
from node_values import SECRETS
from sandbox import landed
from waiting import wait_for

from cloud_init import NodeValues, render
from machines.docker import Docker
from machines.namespaces import PATH, WAIT, Namespaces, booted, remove_cgroups
from machines.network import SUBNET, Network, network_of
from machines.processes import DEADLINE_S, STOP_S, StepError, checked, environment

# What the units ask for, and where the runtime lies on a node that cannot give it.
_OPEN_FILES = 65536
_RUNTIME = "/usr/local/bin/runc-within-limits"

_FOLDERS = ("etc", "root", "var/lib", "var/log", "mnt", "usr", "usr-local/bin", "old")
_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
_COPIED = ("passwd", "group", "shadow", "nsswitch.conf", "login.defs")

# Builds the node's file system.
_BOOT = (
    """
set -eu
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mkdir proc sys dev run tmp
chmod 1777 tmp
mount --bind /usr usr
mount --bind usr-local usr/local
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t tmpfs tmpfs run
# Docker's data and Ray's files are gone with the node, which from a disk takes long.
mkdir var/lib/sunspot
mount -t tmpfs -o mode=755,size=4g tmpfs var/lib/sunspot
# The head's data disk, as state.sh has mounted it.
mkdir var/lib/sunspot/state
mount --bind var/lib/sunspot/state var/lib/sunspot/state
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
hostname "$2"
pivot_root . old
umount --lazy /old
"""
    + WAIT
)


@dataclass(frozen=True)
class Node(Namespaces):
    """A booted node. `azure` is what it sees of Azure; `root` is where its files lie here."""

    name: str
    address: str
    root: Path
    azure: FakeAzure

    def stub(self, name: str, body: str = "") -> None:
        """Puts a program of bash in place of one that must not run here."""
        path = self.root / "usr-local" / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def processes(self) -> list[psutil.Process]:
        """Every process of the node, its containers' included."""
        tree = psutil.Process(self.pid).children(recursive=True)
        # What was started from here has its parent here.
        namespace = Path(f"/proc/{self.pid}/ns/pid").readlink()
        entered = [p for p in psutil.process_iter() if _pid_namespace(p) == namespace]
        started = [child for process in entered for child in below(process.pid)]
        return list({*tree, *entered, *started})


def _pid_namespace(process: psutil.Process) -> Path | None:
    try:
        return Path(f"/proc/{process.pid}/ns/pid").readlink()
    except OSError:
        return None


@contextlib.contextmanager
def node(network: Network, number: int, values: NodeValues, root: Path) -> Iterator[Node]:
    """Boots a node as the network's address `number`; nothing of it is left after the block.

    `root` is made, and removed. The node's vault has the token of Ray.
    """
    name = f"{values.group}-{number}"
    _prepare(root, name, values)
    log = root.with_suffix(".log")
    pids: list[int] = []
    try:
        with booted(_BOOT, root, name, log=log) as made, contextlib.ExitStack() as served:
            pids.append(made.pid)
            address = network.join(made.pid, number)
            with network_of(made.pid):
                checked(["ip", "addr", "add", f"{imds.ADDRESS}/32", "dev", "lo"])
                azure = FakeAzure(name=name, secrets=dict(SECRETS))
                served.enter_context(imds.serving(azure, imds.ADDRESS, 80))
            yield Node(made.pid, name, address, root, azure)
    finally:
        # Named after the first process, whose pid the engine's flags have.
        for pid in pids:
            remove_cgroups(f"sunspot-{pid}")
        shutil.rmtree(root)
        log.unlink(missing_ok=True)


@contextlib.contextmanager
def engine_of(node: Node) -> Iterator[Docker]:
    """The node's Docker engine, as disk.sh has set it up, at Docker's usual place."""
    log = node.root.parent / f"{node.name}.dockerd.log"
    command = ["dockerd", "--bridge=none", "--iptables=false"]
    command += [f"--insecure-registry={SUBNET}.0/24", f"--cgroup-parent=/sunspot-{node.pid}"]
    if not may_open(_OPEN_FILES):
        _install_runtime(node)
        command += [f"--add-runtime=within-limits={_RUNTIME}", "--default-runtime=within-limits"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            node.command(*command), env=environment(PATH=PATH), stdout=output, stderr=output
        )
    docker = Docker(Path("/run/docker.sock"), log, enter=tuple(node.command()))
    try:
        wait_for(f"dockerd, see {log}", lambda: _answers(process, docker), DEADLINE_S)
        yield docker
    finally:
        # nsenter hands no signal on.
        node.run("sh", "-c", "kill $(cat /run/docker.pid)")
        # An engine that hangs goes with the node.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)


def may_open(files: int) -> bool:
    """Whether a process of this one may have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, files)))
    except (ValueError, OSError):
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return True


def _install_runtime(node: Node) -> None:
    path = node.root / "usr-local" / Path(_RUNTIME).relative_to("/usr/local")
    shutil.copy(Path(__file__).with_name("runc_within_limits.py"), path)
    path.chmod(0o755)


def _answers(process: subprocess.Popen[bytes], docker: Docker) -> bool:
    if process.poll() is not None:
        raise StepError(docker.log.read_text()[-3000:])
    return docker.run("info").returncode == 0


def _prepare(root: Path, name: str, values: NodeValues) -> None:
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True)
    (root / "var" / "run").symlink_to("/run")
    for link in _SYSTEM_LINKS:
        if (host := Path("/", link)).is_symlink():
            (root / link).symlink_to(host.readlink())
    for file in _COPIED:
        if (host := Path("/etc", file)).exists():
            shutil.copy(host, root / "etc")
    (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    (root / "etc" / "resolv.conf").touch()
    with (root / "etc" / "passwd").open("a") as passwd:
        passwd.write(f"{values.admin_user}:x:4242:100::/:/bin/bash\n")
    for path, (content, mode) in landed(render(values)).items():
        inside = path.removeprefix("/")
        if path.startswith("/usr/local/"):
            inside = f"usr-local/{path.removeprefix('/usr/local/')}"
        target = root / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
