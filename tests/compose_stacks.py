"""Stacks and hosts for the tests of the compose target."""

from sunspot.ray.resources import GIB
from sunspot.stack import Stack
from sunspot.targets.compose.host import Gpus, Host
from sunspot.targets.compose.settings import Maker

HEAD = {"cpu": 2, "memory_gb": 8}


def group(name="workers", *, minimum=1, maximum=2, market="spot", gpus=0, cpu=4, memory_gb=16.0):
    """A group as a stack file has it."""
    node = {"cpu": cpu, "memory_gb": memory_gb, "gpu_count": gpus}
    return {
        "name": name,
        "market": market,
        "min_workers": minimum,
        "max_workers": maximum,
        "worker_nodes": node,
    }


def stack(*groups, head=HEAD, name="course", image=None, **host):
    """A stack with these groups; `host` is its `sunspot:compose`."""
    cluster = {
        "head_node": head,
        "scaling_groups": list(groups),
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
    }
    config = {"sunspot:cluster": cluster, "sunspot:target": "compose"}
    if image:
        config["sunspot:image"] = {"reference": image}
    if host:
        config["sunspot:compose"] = host
    return Stack.parse(config, name=name)


COURSE = stack(group(minimum=1, maximum=3))


def host(maker: Maker = "none", devices=(), *, cpus=16, gib=64, groups=()):
    return Host(
        cpus=cpus,
        memory=int(gib * GIB),
        gpus=Gpus(maker=maker, devices=tuple(devices), groups=tuple(groups)),
    )


NVIDIA = host("nvidia", ("0", "1"))
AMD = host("amd", ("/dev/dri/renderD128", "/dev/dri/renderD129"), groups=("44", "109"))
