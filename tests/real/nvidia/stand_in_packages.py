"""Stand-in packages, and the repositories that they are installed from with a real apt.

Names, versions and dependencies are those of Ubuntu 24.04 (noble-updates, restricted) as they were
when this was written; what is in the packages is a few lines of shell.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DRIVER = "580.178.04"
OLD_DRIVER = "580.173.02"
# Kernels: with modules for this driver, with modules for an older one alone, with none; and one
# that is newer than all that has modules.
NEWEST = "7.0.0-1020-azure"
OUTDATED = "6.17.0-1022-azure"
BARE = "6.11.0-1018-azure"
TOO_NEW = "7.0.0-1099-azure"

# The hardware and the kernel of a machine, as far as the script asks them.
UNAME = """#!/bin/bash
if [ "$*" = -r ]; then cat /etc/stand-in/kernel; else exec /usr/bin/uname "$@"; fi
"""
SYSTEMCTL = """#!/bin/bash
echo "$*" >>/var/log/stand-in-systemctl
"""
MODPROBE = """#!/bin/bash
# Loads what lies in /lib/modules of the running kernel; of NVIDIA's, only where there is a card.
kernel=$(uname -r)
for name in "$@"; do
    case $name in --*) continue ;; esac
    file=/lib/modules/$kernel/kernel/nvidia-580srv-open/${name//_/-}.ko
    if [ ! -e "$file" ]; then
        echo "modprobe: FATAL: Module $name not found in directory /lib/modules/$kernel" >&2
        exit 1
    fi
    if ! grep --quiet --no-messages 0x10de /sys/bus/pci/devices/*/vendor; then
        echo "modprobe: ERROR: could not insert '$name': No such device" >&2
        exit 1
    fi
    mkdir --parents /run/stand-in
    cp "$file" "/run/stand-in/$name"
done
"""
NVIDIA_SMI = f"""#!/bin/bash
loaded=$(cat /run/stand-in/nvidia 2>/dev/null)
case $loaded in
'') echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9 ;;
{DRIVER}) ;;
*) echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18 ;;
esac
if [ "$1" = --list-gpus ]; then echo 'GPU 0: Tesla T4 (UUID: GPU-1)'; fi
"""
# CDI's file names the devices that there are; the module alone makes none for CUDA.
NVIDIA_CTK = """#!/bin/bash
case "$*" in
'cdi generate --output='*)
    {
        echo 'kind: nvidia.com/gpu'
        echo "driver: $(cat /run/stand-in/nvidia)"
        ls -d /dev/nvidia-uvm 2>/dev/null
    } >"${3#--output=}"
    ;;
'system create-device-nodes --control-devices') mknod /dev/nvidia-uvm c 1 3 ;;
*) exit 2 ;;
esac
"""
# Its rules make CUDA's device some time after the module was loaded, on machines that have them.
UDEVADM = """#!/bin/bash
[ "$1" = settle ] && [ -e /etc/stand-in/udev-rules ] && ls /run/stand-in/nvidia_uvm &&
    mknod /dev/nvidia-uvm c 1 3
"""
# Holds apt's locks until it is told to go on.
SLOW_POSTINST = """#!/bin/bash
touch /var/log/stand-in-slow
for _ in {1..3000}; do [ -e /var/log/stand-in-go ] && exit; sleep 0.1; done
"""


@dataclass(frozen=True, kw_only=True)
class Package:
    """One binary package; `files` are its contents by path, executable where it is a script."""

    name: str
    version: str
    depends: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    postinst: str = ""

    def build(self, work: Path, repository: Path) -> None:
        """Builds the .deb into the repository's folder."""
        tree = work / self.name
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "all",
            "Maintainer": "Tests <tests@example.invalid>",
            "Depends": self.depends,
            "Description": "stand-in",
        }
        control = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
        _write(tree / "DEBIAN/control", control)
        if self.postinst:
            _write(tree / "DEBIAN/postinst", self.postinst)
        for path, text in self.files.items():
            _write(tree / path.removeprefix("/"), text)
        # Not compressed: they hold next to nothing.
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(repository))


def ubuntu() -> list[Package]:
    """What Ubuntu's archive has."""
    common = "nvidia-kernel-common-580-server"
    kernels = [
        Package(name=f"linux-image-{k}", version=_of(k), files={f"/boot/vmlinuz-{k}": ""})
        for k in (NEWEST, OUTDATED, BARE, TOO_NEW)
    ]
    return [
        *kernels,
        _modules(NEWEST, DRIVER),
        _modules(OUTDATED, OLD_DRIVER),
        Package(
            name="linux-modules-nvidia-580-server-open-azure",
            version=_of(NEWEST),
            depends=f"linux-modules-nvidia-580-server-open-{NEWEST} (= {_of(NEWEST)}), "
            f"{common} (>= {DRIVER})",
        ),
        Package(name=common, version=f"{DRIVER}-0ubuntu0.24.04.1"),
        Package(
            name="nvidia-headless-no-dkms-580-server-open",
            version=f"{DRIVER}-0ubuntu0.24.04.1",
            depends=f"{common} (<= {DRIVER}-1), {common} (>= {DRIVER})",
        ),
        Package(
            name="nvidia-utils-580-server",
            version=f"{DRIVER}-0ubuntu0.24.04.1",
            depends=f"{common} (>= {DRIVER})",
            files={"/usr/bin/nvidia-smi": NVIDIA_SMI},
        ),
        Package(
            name="stand-in-machine",
            version="1",
            files={
                "/usr/local/bin/uname": UNAME,
                "/usr/local/bin/systemctl": SYSTEMCTL,
                "/usr/local/bin/udevadm": UDEVADM,
                "/usr/local/sbin/modprobe": MODPROBE,
            },
        ),
        Package(name="stand-in-slow", version="1", postinst=SLOW_POSTINST),
    ]


def nvidia() -> list[Package]:
    """What NVIDIA's repository of the container toolkit has."""
    files = {"/usr/bin/nvidia-ctk": NVIDIA_CTK}
    return [
        Package(
            name="nvidia-container-toolkit",
            version="1.18.1-1",
            depends="nvidia-container-toolkit-base (= 1.18.1-1)",
        ),
        Package(name="nvidia-container-toolkit-base", version="1.18.1-1", files=files),
    ]


def _modules(kernel: str, driver: str) -> Package:
    folder = f"/lib/modules/{kernel}/kernel/nvidia-580srv-open"
    common = "nvidia-kernel-common-580-server"
    return Package(
        name=f"linux-modules-nvidia-580-server-open-{kernel}",
        version=_of(kernel),
        depends=f"linux-image-{kernel} | linux-image-unsigned-{kernel}, "
        f"{common} (<= {driver}-1), {common} (>= {driver})",
        files={f"{folder}/{name}.ko": driver for name in ("nvidia", "nvidia-uvm")},
    )


def _of(kernel: str) -> str:
    return kernel.removesuffix("-azure") + ".21"


def publish(packages: Sequence[Package], work: Path, folder: Path, key: "SigningKey") -> None:
    """Makes the folder a flat repository of the packages, signed with the key."""
    folder.mkdir(parents=True)
    for package in packages:
        package.build(work, folder)
    (folder / "Packages").write_text(run("dpkg-scanpackages", "--multiversion", ".", cwd=folder))
    digest, _, _ = run("sha256sum", "Packages", cwd=folder).partition(" ")
    size = (folder / "Packages").stat().st_size
    (folder / "Release").write_text(
        f"Origin: stand-in\nDate: {run('date', '--utc', '-R').strip()}\n"
        f"SHA256:\n {digest} {size} Packages\n"
    )
    key.sign(folder / "Release", folder / "InRelease")


@dataclass(frozen=True)
class SigningKey:
    """A key of its own for a repository; `public` is its armoured public half."""

    home: Path
    public: Path

    @classmethod
    def make(cls, home: Path) -> "SigningKey":
        home.mkdir(mode=0o700)
        key = cls(home, home / "public.asc")
        key._gpg("--passphrase", "", "--quick-generate-key", home.name, "ed25519", "sign", "0")
        key._gpg("--armor", "--output", str(key.public), "--export")
        return key

    def sign(self, plain: Path, signed: Path) -> None:
        self._gpg("--yes", "--output", str(signed), "--clearsign", str(plain))

    def close(self) -> None:
        """Ends the agent that gpg started for this key."""
        run("gpgconf", "--homedir", str(self.home), "--kill", "gpg-agent")

    def _gpg(self, *arguments: str) -> None:
        run("gpg", "--homedir", str(self.home), "--batch", "--quiet", *arguments)


def run(*command: str, cwd: Path | None = None) -> str:
    """Runs a command of this machine to its end; its output."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if text.startswith("#!") else 0o644)
