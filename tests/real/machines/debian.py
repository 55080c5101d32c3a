"""Systems of Debian's packages: the smallest, made by debootstrap once, and copies with more.

A folder with a system in it is for `chroot`. Root alone can make one.
"""

from pathlib import Path

from machines import CACHE
from machines.kept import kept, key
from machines.processes import checked

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
# Without it apt takes no package by https, and TLS trusts nobody.
FIRST = "ca-certificates"
# debootstrap, apt and pip, on a busy machine.
MAKING_S = 1800.0

# In the chroot. No service starts.
INSTALL = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -qq --no-install-recommends "$@" >/dev/null
apt-get clean
rm /usr/sbin/policy-rc.d
"""
# What every system follows from, beside its packages.
RECIPE = (SUITE, MIRROR, FIRST, INSTALL)


def system(root: Path, *packages: str) -> None:
    """Makes a system with these packages of Debian at `root`, which must not exist."""
    checked(["cp", "--archive", _smallest(), root], timeout=MAKING_S)
    install(root, *packages)


def install(root: Path, *packages: str) -> None:
    """Adds packages to the system at `root`, from where its apt takes them."""
    checked(["chroot", root, "/bin/sh", "-c", INSTALL, "sh", *packages], timeout=MAKING_S)


def _smallest() -> Path:
    """A system that others are copied from; not to be written to."""
    return kept(CACHE / f"debian-{key(RECIPE)}", _bootstrap)


def _bootstrap(root: Path) -> None:
    include = f"--include={FIRST}"
    command = ["debootstrap", "--variant=minbase", include, SUITE, root, MIRROR]
    checked(command, timeout=MAKING_S)
