"""A stand-in for `rayproject/ray`, made here: Debian, Python and the locked Ray.

What it has in common with Ray's image, and what our Dockerfiles and units rely on: a user `ray`
with uid 1000 and gid 100, whose Python with Ray and pip comes first on the PATH.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from machines import CACHE, PROJECT, debian
from machines.debian import MAKING_S
from machines.docker import Docker
from machines.kept import key, locked
from machines.processes import checked, environment, kept_settings
from machines.registry import Registry

NAME = "ray-stand-in:2.60.0"
PACKAGES = ("procps", "python3", "python3-venv", "wget")
VENV = "/home/ray/venv"
_RAY = f"{VENV.removeprefix('/')}/lib/python3.11/site-packages/ray"
# What nothing here reads: these folders, and what has such a name among the Python packages.
LEFT_OUT = (
    *("usr/share/doc", "usr/share/locale", "usr/share/man"),
    *("var/cache/apt", "var/lib/apt/lists", "var/log"),
    "usr/share/zoneinfo",
    *(f"{_RAY}/jars", f"{_RAY}/llm", f"{_RAY}/rllib"),
)
NEEDLESS = ("tests", "*.pyi", "*.h", "*.a")
# Symbols for debuggers are a third of these.
STRIPPED = tuple(
    f"{_RAY}/{name}"
    for name in ("_raylet.so", "core/src/ray/raylet/raylet", "core/src/ray/gcs/gcs_server")
)
LOCK = PROJECT / "docker" / "requirements" / "ray.txt"
CHANGES = (
    f"ENV PATH={VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "ENV HOME=/home/ray",
    "ENV LANG=C.UTF-8",
    # Its default of 30 s is too little on busy cores. Not much more: a raylet that has ended is
    # waited for, too.
    "ENV RAY_raylet_start_wait_time_s=60",
    "USER 1000",
    "WORKDIR /home/ray",
    'CMD ["/bin/bash"]',
)

# pip in the new system reaches the package index as it does here. Nothing of that is left in it.
_INSTALL = f"""
set -eu
root=$1
mount --bind "$2" "$root/mnt"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
chroot "$root" python3 -m venv {VENV}
chroot "$root" {VENV}/bin/pip install --quiet --no-cache-dir --disable-pip-version-check \\
    --require-hashes --requirement /mnt/requirements.txt
chroot "$root" useradd --uid 1000 --gid users --no-create-home --home-dir /home/ray \\
    --shell /bin/bash ray
chroot "$root" chown --recursive ray:users /home/ray
"""


@dataclass(frozen=True)
class BaseImage:
    """The root file system as a tar, and the folder of a registry that has it as an image."""

    tar: Path
    registry_storage: Path


def base_image() -> BaseImage:
    """The stand-in, made at the first call and after a change of what goes into it."""
    recipe = (debian.RECIPE, PACKAGES, LEFT_OUT, NEEDLESS, STRIPPED, _INSTALL, LOCK.read_text())
    folder = CACHE / f"base-{key(recipe)}"
    image = BaseImage(folder / "rootfs.tar", folder / f"registry-{key(CHANGES)}")
    with locked(folder):
        if not image.tar.exists():
            _make(image.tar, folder / "work")
    return image


def load(docker: Docker, image: BaseImage) -> str:
    """Imports the image into an engine that does not have it; its name there."""
    name = f"local/{NAME}-{key(image.tar.parent.name, CHANGES)}"
    if not docker.has_image(name):
        changes = [f"--change={change}" for change in CHANGES]
        docker("import", *changes, image.tar, name, timeout=MAKING_S)
    return name


def publish(docker: Docker, registry: Registry, image: BaseImage) -> str:
    """Pushes the image to a registry that does not have it; its name there."""
    with locked(image.tar.parent):
        reference = registry.reference(NAME)
        if not registry.has(NAME):
            docker("tag", load(docker, image), reference)
            docker("push", "--quiet", reference, timeout=MAKING_S)
            docker("rmi", reference)  # its other name stays
    return reference


def _make(tar: Path, work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    root, notes = work / "root", work / "notes"
    notes.mkdir(parents=True)
    debian.system(root, *PACKAGES)
    shutil.copy(LOCK, notes / "requirements.txt")
    _install(root, notes)
    for folder in LEFT_OUT:
        shutil.rmtree(root / folder)
        (root / folder).mkdir()
    for name in NEEDLESS:
        found = ["find", root / VENV.removeprefix("/"), "-name", name, "-prune"]
        checked([*found, "-exec", "rm", "-r", "{}", "+"])
    checked(["strip", "--strip-unneeded", *(root / name for name in STRIPPED)])
    # debootstrap copies this machine's.
    (root / "etc" / "resolv.conf").write_text("")
    part = tar.with_suffix(".part")
    checked(["tar", "--create", "--file", part, "--directory", root, "."], timeout=MAKING_S)
    part.rename(tar)
    shutil.rmtree(work)


def _install(root: Path, notes: Path) -> None:
    settings = kept_settings("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT")
    settings |= kept_settings("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    certificates = certificate_file()
    if certificates:
        shutil.copy(certificates, notes / "ca.pem")
        settings["PIP_CERT"] = "/mnt/ca.pem"
    checked(
        ["unshare", "--mount", "sh", "-c", _INSTALL, "sh", root, notes],
        env=environment(**settings),
        timeout=MAKING_S,
    )


def certificate_file() -> Path | None:
    """The certificates that this machine trusts, where it has them in Debian's place."""
    path = Path("/etc/ssl/certs/ca-certificates.crt")
    return path if path.exists() else None
