"""The disks that the machines start from: Debian with what Ubuntu's image on Azure has.

Docker is not on the plain one, as it is not on Ubuntu's; its packages lie in a folder that apt
takes for its only mirror. The second has the layers of Ray's image besides, but not the one that a
user has put on it: to unpack them all takes an emulated machine minutes. On the prepared one are
Docker and the whole image, as on a VM image of a user's own. All are made once by debootstrap and
kept in the project's `.cache/vm`, in a folder named by what went in. The machines write to overlays
of their own.

    PYTHONPATH=tests/real python tests/real/vm/disk.py      # makes them ahead of the tests, as root
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import image
from image import Images
from machines import debian
from machines.debian import MAKING_S
from machines.kept import kept, key
from machines.processes import checked

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "vm"
DISK_BYTES = 8 * 2**30

# netplan.io because Ubuntu's images configure networks by it, and needrestart since they have it;
# the host's own name has no DNS here.
PACKAGES = (
    *("cloud-init", "curl", "dbus", "e2fsprogs", "iproute2", "iputils-ping", "kmod"),
    *("libnss-myhostname", "libpam-systemd", "linux-image-cloud-amd64", "needrestart"),
    *("netbase", "netplan.io", "openssh-server", "procps", "python3", "sudo"),
    *("systemd", "systemd-sysv", "udev"),
)
# What docker.sh installs.
DOCKER = ("apparmor", "docker.io", "pigz")
# And what benchmarks/boot.py's peer does.
LATER = (*DOCKER, "python3-venv")

# A service of the disk's own, which an updated library may restart.
CONTROL = "control.service"
_CONTROL_UNIT = """[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""

# In the chroot. cloud-init asks one source alone, as Azure's image does.
_PREPARE = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
mirror=/var/local/packages
mkdir -p $mirror
apt-get install -qq --no-install-recommends --download-only "$@" >/dev/null
mv /var/cache/apt/archives/*.deb $mirror
# To unpack them takes an emulated machine half a minute, by zstd a few seconds.
for package in $mirror/*.deb; do
    dpkg-deb --raw-extract $package /var/tmp/package
    dpkg-deb -Zzstd --build /var/tmp/package $package >/dev/null
    rm -r /var/tmp/package
done
apt-get install -qq --no-install-recommends dpkg-dev >/dev/null
(cd $mirror && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)
apt-get purge -qq --autoremove dpkg-dev >/dev/null
apt-get clean
echo "deb [trusted=yes] file:$mirror ./" >/etc/apt/sources.list
rm -rf /var/lib/apt/lists/*
systemctl --quiet enable control.service \
    systemd-networkd.service systemd-networkd-wait-online.service
printf 'datasource_list: [NoCloud]\napt: {preserve_sources_list: true}\n' \
    >/etc/cloud/cloud.cfg.d/99-test.cfg
echo LANG=C.UTF-8 >/etc/default/locale
echo /dev/vda / ext4 errors=remount-ro 0 1 >/etc/fstab
# As Azure's VM utilities name a data disk: by its logical unit number, here its serial number.
echo 'SUBSYSTEM=="block", ENV{ID_SERIAL}=="lun0", SYMLINK+="disk/azure/data/by-lun/0"' \
    >/etc/udev/rules.d/80-azure-data.rules
# Each machine makes its own.
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id
: >/etc/machine-id
echo unnamed >/etc/hostname
# No name is asked of anybody: those that are needed are in /etc/hosts.
: >/etc/resolv.conf
"""


DiskKind = Literal["plain", "layers", "prepared"]


@dataclass(frozen=True)
class Disks:
    """The folder of the disks, which are raw and not to be written to."""

    folder: Path

    def of(self, kind: DiskKind) -> Path:
        return self.folder / f"{kind}.img"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"


def disks() -> Disks:
    """The disks of this recipe, made if they are not in the cache; others there are removed."""
    images = image.published()

    def make(part: Path) -> None:
        for old in CACHE.glob("disk*/"):
            shutil.rmtree(old)
        _make(Disks(part), part / "work", images)

    return Disks(kept(CACHE / f"disks-{_key(images)}", make))


def _key(images: Images) -> str:
    """Digits that change with everything that goes into the disks."""
    system = (debian.RECIPE, PACKAGES, LATER, CONTROL, _CONTROL_UNIT, _PREPARE)
    added = (DOCKER, image.DATA_ROOT, image.BAKED, image.REGISTRY, images.base, images.node)
    return key(DISK_BYTES, system, added)


def _make(made: Disks, work: Path, images: Images) -> None:
    root = work / "root"
    work.mkdir(parents=True)
    debian.system(root, *PACKAGES)
    (root / "etc/systemd/system" / CONTROL).write_text(_CONTROL_UNIT)
    checked(["chroot", root, "/bin/sh", "-c", _PREPARE, "sh", *LATER], timeout=MAKING_S)
    for file in (made.kernel, made.initrd):
        shutil.copy((root / file.name).resolve(), file)
    _write(root, made.of("plain"))
    image.add_to(root, images, images.base)
    _write(root, made.of("layers"))
    debian.install(root, *DOCKER)
    image.add_to(root, images, images.node)
    image.mark_as_baked(root)
    _write(root, made.of("prepared"))
    shutil.rmtree(work)


def _write(root: Path, disk: Path) -> None:
    """A disk with what is in the folder."""
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    checked(["mkfs.ext4", "-q", "-F", "-L", "root", "-d", root, disk], timeout=MAKING_S)


if __name__ == "__main__":
    print(disks().folder)
