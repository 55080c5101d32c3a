"""A cluster "x" that is up in the stand-in for ARM: its settings, and what Ray tells of it."""

from azure_stacks import member

from sunspot.node.azure import live

FIXED_SET, GPU_SET = "sunspot-x-fixed", "sunspot-x-gpu"
GPU = {"ray.io/node-group": "gpu", "ray.io/market-type": "spot"}


def settings(arm):
    """What stands in the head's user data, as IMDS serves it."""
    return live.parse(arm.imds.user_data)


def join(cluster, name, group):
    labels = {**GPU, "ray.io/node-group": group}
    if cluster.joins:
        cluster.api.nodes = [*cluster.api.nodes, member(name, labels=labels)]


def leave(cluster, name):
    cluster.api.nodes = [one for one in cluster.api.nodes if one["node_name"] != name]
