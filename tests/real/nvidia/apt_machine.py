"""A small Debian with a real apt, in a chroot and a network of its own, that runs a node's scripts.

What stands in: the archives (stand_in_packages.py), the hardware (files in /sys), a restart.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from machines import debian
from machines.kept import kept, key
from stand_in_packages import SigningKey, nvidia, publish, run, ubuntu

ROOT = Path(__file__).resolve().parents[3]
# Debian's, since it can be had wherever these tests run; the script asks apt for nothing newer.
PACKAGES = ("curl",)
BASE = ROOT / ".cache" / "nvidia" / f"debian-{key(debian.RECIPE, PACKAGES)}"
UBUNTU_HOST = "archive.ubuntu.com"
NVIDIA_HOST = "nvidia.github.io"
NVIDIA_FOLDER = "libnvidia-container"
LIBRARY = "/usr/local/lib/sunspot"
PREFIX = "sunspot-nvidia"
DEADLINE_S = 300

_ENTER = """
set -eu
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"
for device in null urandom; do
    touch "$2/root/dev/$device"
    mount --bind "/dev/$device" "$2/root/dev/$device"
done
root=$2/root
shift 2
exec chroot "$root" "$@"
"""


def why_not() -> str | None:
    """Why no such machine can be made here; None where one can."""
    if os.geteuid() != 0:
        return "a chroot with an apt of its own needs root"
    programs = {
        "debootstrap": "debootstrap",
        "dpkg-scanpackages": "dpkg-dev",
        "gpg": "gnupg",
        "ip": "iproute2",
        "openssl": "openssl",
    }
    folders = [Path(folder) for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin")]
    for program, package in programs.items():
        if not any((folder / program).exists() for folder in folders):
            return f"there is no {program} here (package {package})"
    return None


def base() -> Path:
    """The system that every machine starts from; made once, then kept."""
    return kept(BASE, lambda part: debian.system(part, *PACKAGES))


@dataclass(frozen=True)
class Archives:
    """Both repositories, under their real names in `namespace`, from which nothing else is reached.

    A machine's traffic is TLS to NVIDIA's, with a certificate that only these machines trust.
    """

    folder: Path
    namespace: str

    @property
    def nvidia_key(self) -> Path:
        """The key that NVIDIA's repository hands out."""
        return self.folder / "www" / NVIDIA_HOST / NVIDIA_FOLDER / "gpgkey"

    @property
    def requests(self) -> list[str]:
        log = self.folder / "requests"
        return log.read_text().splitlines() if log.exists() else []


@contextlib.contextmanager
def archives(folder: Path) -> Iterator[Archives]:
    """Builds, signs and serves the archives while the block runs."""
    _sweep()
    made = Archives(folder, f"{PREFIX}-{os.getpid()}")
    www = folder / "www"
    keys = [SigningKey.make(folder / name) for name in ("ubuntu-key", "nvidia-key")]
    publish(ubuntu(), folder / "build-ubuntu", www / UBUNTU_HOST / "ubuntu", keys[0])
    toolkit = www / NVIDIA_HOST / NVIDIA_FOLDER
    publish(nvidia(), folder / "build-nvidia", toolkit / "stable/deb/amd64", keys[1])
    made.nvidia_key.write_bytes(keys[1].public.read_bytes())
    for signing in keys:
        signing.close()
    _make_certificate(folder / "certificate.pem")
    run("ip", "netns", "add", made.namespace)
    try:
        run("ip", "-n", made.namespace, "link", "set", "lo", "up")
        with _serving(made):
            yield made
    finally:
        run("ip", "netns", "delete", made.namespace)


def _sweep() -> None:
    """Takes away the namespaces of runs whose process is gone."""
    for line in run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        prefix, _, pid = name.rpartition("-")
        if prefix == PREFIX and not psutil.pid_exists(int(pid)):
            run("ip", "netns", "delete", name)


@contextlib.contextmanager
def _serving(archives: Archives) -> Iterator[None]:
    script = str(Path(__file__).with_name("repository_server.py"))
    folder = archives.folder
    arguments = [str(folder / name) for name in ("www", "certificate.pem", "requests")]
    server = subprocess.Popen(
        [*_within(archives.namespace), sys.executable, script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield
    finally:
        server.kill()
        server.wait()


def _within(namespace: str) -> list[str]:
    return ["ip", "netns", "exec", namespace]


def _make_certificate(path: Path) -> None:
    names = f"subjectAltName=DNS:{NVIDIA_HOST}"
    request = ("openssl", "req", "-x509", "-newkey", "ed25519", "-noenc", "-days", "2")
    parts = ("-subj", f"/CN={NVIDIA_HOST}", "-addext", names)
    run(*request, *parts, "-keyout", f"{path}.key", "-out", f"{path}.crt")
    path.write_text(Path(f"{path}.key").read_text() + Path(f"{path}.crt").read_text())


class AptMachine:
    """A VM as the driver's script sees it. Its disk lasts over `restart`, its /run does not."""

    def __init__(self, folder: Path, archives: Archives, files: dict[str, tuple[bytes, int]]):
        self.folder = folder
        self.archives = archives
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True)
        for path, (content, mode) in files.items():
            self.write(path, content, mode)
        hosts = f"127.0.0.1 localhost {UBUNTU_HOST} {NVIDIA_HOST}\n"
        key = "/usr/share/keyrings/stand-in.asc"
        self.write("/etc/hosts", hosts.encode())
        self.write(key, (archives.folder / "ubuntu-key/public.asc").read_bytes())
        source = f"deb [signed-by={key}] http://{UBUNTU_HOST}/ubuntu ./\n"
        self.write("/etc/apt/sources.list", source.encode())
        trusted = (BASE / "etc/ssl/certs/ca-certificates.crt").read_bytes()
        own = (archives.folder / "certificate.pem.crt").read_bytes()
        self.write("/etc/ssl/certs/ca-certificates.crt", trusted + own)

    def path(self, path: str) -> Path:
        """Where a file that the machine changed or got lies on this one."""
        return self.folder / "upper" / path.removeprefix("/")

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)

    def text(self, path: str) -> str:
        return self.path(path).read_text()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on the machine to its end; what it leaves running is killed."""
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        enter = ["sh", "-c", _ENTER, "sh", str(BASE), str(self.folder)]
        return subprocess.run(
            [*_within(self.archives.namespace), *apart, *enter, *command],
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "DEBIAN_FRONTEND": "noninteractive",
            },
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def ok(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def use_kernel(self, kernel: str) -> None:
        """Makes it a machine that runs this kernel, as its image came with it."""
        self.ok("apt-get", "update")
        self.ok("apt-get", "install", "--yes", "stand-in-machine", f"linux-image-{kernel}")
        self.write("/etc/stand-in/kernel", f"{kernel}\n".encode())

    def plug_in(self, vendor: str = "0x10de") -> None:
        """Puts a card into the machine; NVIDIA's unless said otherwise."""
        self.write("/sys/bus/pci/devices/0001:00:00.0/vendor", f"{vendor}\n".encode())

    def driver(self) -> subprocess.CompletedProcess[str]:
        """Runs what the driver's unit runs."""
        script = f"{LIBRARY}/driver-nvidia.sh"
        return self.run(f"{LIBRARY}/phase.sh", "driver", script)

    def restart(self) -> None:
        """Empties /run and /dev and boots the newest kernel there is, as GRUB does."""
        newest = "ls /boot/vmlinuz-* | sort --version-sort | tail --lines=1"
        kernel = self.ok("bash", "-c", newest).strip().removeprefix("/boot/vmlinuz-")
        self.ok("bash", "-c", "rm -rf /run/* /dev/nvidia*")
        self.write("/etc/stand-in/kernel", f"{kernel}\n".encode())

    @property
    def restarts(self) -> int:
        """How often the machine was asked to restart."""
        log = self.path("/var/log/stand-in-systemctl")
        return log.read_text().splitlines().count("reboot") if log.exists() else 0

    def installed(self) -> set[str]:
        """The packages that apt has brought, by its own log."""
        history = self.path("/var/log/apt/history.log").read_text()
        lines = [x for x in history.splitlines() if x.startswith("Install: ")]
        entries = [x for line in lines for x in line.removeprefix("Install: ").split("), ")]
        return {entry.partition(":")[0] for entry in entries}


# Makes a machine that runs this kernel.
Boot = Callable[[str], AptMachine]
