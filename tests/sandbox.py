"""A machine made of folders: the files of some user data land in it, and its scripts run for real.

Scripts run in a mount namespace of their own, chrooted into a temporary folder: this machine's
programs, but a /etc, /run, /var, /mnt and /usr/local of the test's. Stubs in /usr/local/bin stand
in for what must not run here (docker, apt-get, systemctl); each writes its call down.
"""

import configparser
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cloud_init import readable

LIBRARY = "/usr/local/lib/sunspot"
OWN_FOLDERS = ("etc", "run", "var/lib", "var/log", "mnt", "tmp", "dev", "proc", "usr", "notes")
SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
DEVICES = ("null", "urandom")

# Where stubs write down what they saw.
NOTES = "/notes"

# The user of the image. Without root there is but one user to give files to.
IMAGE_USER = 1000 if os.geteuid() == 0 else 0

_NAMESPACE = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
_ENTER = """
set -eu
root=$1
shift
mount --bind /usr "$root/usr"
mount --bind "$root/usr-local" "$root/usr/local"
mount --rbind /proc "$root/proc"
for device in null urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
if [ -e "$root/dev/kfd" ]; then mount --bind /dev/null "$root/dev/kfd"; fi
if [ -e "$root/mnt/.mounted" ]; then mount -t tmpfs none "$root/mnt"; fi
exec chroot "$root" "$@"
"""


def why_not() -> str | None:
    """Why no such machine can be made here; None where one can."""
    if not sys.platform.startswith("linux"):
        return "needs Linux namespaces"
    for program in ("/usr/bin/bash", "/usr/bin/curl", "/usr/bin/python3", "/usr/bin/mountpoint"):
        if not Path(program).exists():
            return f"needs {program}"
    try:
        tried = subprocess.run(
            [*_NAMESPACE, "mount", "--bind", "/usr", "/usr"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return "needs unshare"
    return f"no mount namespace: {tried.stderr.strip()}" if tried.returncode else None


def cloud_config(user_data: bytes) -> dict[str, Any]:
    """What cloud-init reads of it."""
    # Safe as well, and ten times as fast.
    return yaml.load(readable(user_data), Loader=yaml.CSafeLoader)


def landed(user_data: bytes) -> dict[str, tuple[bytes, int]]:
    """What cloud-init would write: path -> (content, mode)."""
    return {
        entry["path"]: (entry["content"].encode(), int(entry["permissions"], 8))
        for entry in cloud_config(user_data)["write_files"]
    }


class Machine:
    """A booted VM as the scripts see it. `calls` are what the stubs were asked to do."""

    def __init__(self, root: Path, user_data: bytes) -> None:
        self.root = root
        self.overrides: dict[str, str] = {}
        for folder in (*OWN_FOLDERS, "usr-local/bin"):
            (root / folder).mkdir(parents=True)
        for name in SYSTEM_LINKS:
            if (host := Path("/", name)).is_symlink():
                (root / name).symlink_to(host.readlink())
        for device in DEVICES:
            (root / "dev" / device).touch()
        for path, (content, mode) in landed(user_data).items():
            target = self.path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(mode)

    def path(self, path: str) -> Path:
        """Where a file of the machine lies on this one."""
        if path.startswith("/usr/local/"):
            return self.root / "usr-local" / path.removeprefix("/usr/local/")
        return self.root / path.removeprefix("/")

    def text(self, path: str) -> str:
        return self.path(path).read_text()

    def stub(self, name: str, body: str = "") -> None:
        """Puts a program on the PATH that writes its call down, then does `body` (of bash)."""
        path = self.path(f"/usr/local/bin/{name}")
        call = f"( printf '%s' {name}; printf ' %q' \"$@\"; echo ) >>{NOTES}/calls"
        path.write_text(f"#!/bin/bash\n{call}\n{body}\n")
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        log = self.path(f"{NOTES}/calls")
        return log.read_text().splitlines() if log.exists() else []

    def forget_calls(self) -> None:
        self.path(f"{NOTES}/calls").unlink(missing_ok=True)

    def restart(self) -> None:
        """Empties /run, as a reboot does."""
        for path in sorted(self.path("/run").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    def run(
        self,
        *command: str,
        env_files: Sequence[str] = ("/etc/sunspot/node.env",),
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command with the variables of these files, where they exist; nothing else."""
        load = "".join(f"if [ -e {file} ]; then . {file}; fi; " for file in env_files)
        over = "".join(f"{name}={shlex.quote(v)}; " for name, v in self.overrides.items())
        bash = ["/usr/bin/bash", "-c", f'set -a; {load}{over} exec "$@"', "bash", *command]
        return subprocess.run(
            [*_NAMESPACE, "/bin/sh", "-c", _ENTER, "sh", str(self.root), *bash],
            env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def script(self, name: str, *, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs one of our scripts as its unit would, /run's variables included."""
        files = ["/etc/sunspot/node.env"]
        files += [f"/run/sunspot/{name}.env" for name in ("disk", "image", "instance", "devices")]
        return self.run(f"{LIBRARY}/{name}", env_files=files, timeout_s=timeout_s)

    def start(self, unit: str) -> subprocess.CompletedProcess[str]:
        """Runs the ExecStart of a unit with its environment files, as systemd reads them."""
        name, _, instance = unit.removesuffix(".service").partition("@")
        template = f"/etc/systemd/system/{name}{'@' if instance else ''}.service"
        service = read_unit(self.text(template))["Service"]
        command = service["ExecStart"][-1].replace("%i", instance)
        files = [file.removeprefix("-") for file in service.get("EnvironmentFile", [])]
        return self.run(*shlex.split(command), env_files=files)


def read_unit(text: str) -> dict[str, dict[str, list[str]]]:
    """A unit file: section -> key -> every value it was given."""
    values: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in text.splitlines():
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            values.setdefault(section, {})
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise configparser.ParsingError(line)
        values[section].setdefault(key, []).append(value)
    return values
