"""What a VM image of a user's own may have already: Docker, which starts at boot, and Ray's image.

Ray's image lies where disk.sh puts Docker's data, under the name that nodes ask for.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from machines.docker import engine
from machines.processes import checked
from machines.registry import registry

DATA_ROOT = "var/lib/sunspot/docker"
# Of an engine's data, what an image is made of. The rest is of the engine's own version.
KEPT = ("image", "overlay2")

# In the chroot, from the disk's own packages; no service starts.
INSTALL = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq
apt-get install -qq --no-install-recommends "$@" >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/* /usr/sbin/policy-rc.d
"""


def install_docker(root: Path, packages: Sequence[str]) -> None:
    """Installs Docker's packages in the system below `root`."""
    checked(["chroot", root, "/bin/sh", "-c", INSTALL, "sh", *packages])


def add_image(root: Path, storage: Path, reference: str, *, host: str) -> None:
    """Pulls NAME@DIGEST from the registry over `storage` into the system below `root`.

    There it is known as `host`/NAME@DIGEST.
    """
    data = root / DATA_ROOT
    pulled = root.parent / "docker"
    with registry(storage) as server, engine(pulled) as client:
        client("pull", "--quiet", server.reference(reference))
    data.mkdir(parents=True)
    for name in KEPT:
        (pulled / name).rename(data / name)
    shutil.rmtree(pulled)
    names = data / "image/overlay2/repositories.json"
    names.write_text(names.read_text().replace(server.address, host))
