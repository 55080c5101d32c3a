"""A cluster "x" that is up in the stand-in for ARM: its settings, and what Ray tells of it."""

from azure_model.arm import HEAD
from azure_model.compute import FIRST_MODEL
from azure_stacks import LABELS, member

from sunspot.node.azure import live

FIXED_SET, GPU_SET = "sunspot-x-fixed", "sunspot-x-gpu"
GPU = {"ray.io/node-group": "gpu", "ray.io/market-type": "spot"}


def settings(arm):
    """What stands in the head's user data, as IMDS serves it."""
    return live.parse(arm.imds.user_data)


def write_settings(arm, wanted):
    arm.imds.user_data = wanted.text()
    arm.vms[HEAD].user_data = live.encoded(wanted.text())


def join(cluster, name, group, boot=FIRST_MODEL):
    labels = {**LABELS, "ray.io/node-group": group, "sunspot/boot": boot}
    if cluster.joins:
        cluster.api.nodes = [*cluster.api.nodes, member(name, labels=labels)]


def leave(cluster, name):
    cluster.api.nodes = [
        one for one in cluster.api.nodes if one["node_name"].lower() != name.lower()
    ]
