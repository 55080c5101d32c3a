"""A head as processes of this machine, in a namespace of the machines' network.

An emulated head takes ten minutes of a processor to start Ray, and a whole one from then on.
"""

import contextlib
import os
from collections.abc import Iterator

from cluster import Site
from dev_nodes import PATIENCE
from machines import lan
from machines.ray_host import RayHost, joined
from network import BRIDGE


@contextlib.contextmanager
def native_head(site: Site) -> Iterator[RayHost]:
    """The head that the site's worker looks for, from when it is up to the end of the block."""
    seed = site.seeds["head"]
    # So that a run whose process was killed is swept away by the next.
    namespace = f"{lan.PREFIX}-{os.getpid()}-head"
    host = lan.Host(seed.hostname, namespace, seed.address)
    router = lan.Host("router", site.network.name, seed.address)
    folder = site.folder / "native-head"
    with (
        lan.plugged_in(router, BRIDGE, host),
        joined(host, seed.address, folder, PATIENCE) as head,
    ):
        yield head
