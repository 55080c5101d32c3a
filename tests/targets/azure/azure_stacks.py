"""A stack "x" on Azure: what its file says, what Ray answers of it, the commands that take it."""

from azure_model.compute import FIRST_MODEL
from typer.testing import CliRunner

from sunspot import stack as stacks
from sunspot.cli.app import app

STACK = """
config:
  azure-native:location: uksouth
  sunspot:target: {target}
  sunspot:cluster:
    head_node: {{vm_size: Standard_D4s_v5}}
    scaling_groups:
      - name: fixed
        market: {market}
        min_workers: 2
        max_workers: 2
        worker_nodes: {{vm_size: Standard_D4s_v5}}
      - name: gpu
        market: spot
        min_workers: 0
        max_workers: 4
        worker_nodes: {{vm_size: Standard_NC4as_T4_v3}}
    autoscaler_config: {{cpu: 0.5, memory_gb: 1}}
  sunspot:access:
    ssh_public_key_file: {key}
    public_ip: true
    ssh_cidrs: [203.0.113.7/32]
"""

LABELS = {
    "ray.io/node-group": "fixed",
    "ray.io/market-type": "spot",
    "sunspot/boot": FIRST_MODEL,
}


def member(name, **fields):
    return {
        "node_name": name,
        "state": "ALIVE",
        "state_message": None,
        "is_head_node": False,
        "resources_total": {"CPU": 4.0, "memory": 2.0**34},
        "labels": LABELS,
        **fields,
    }


def members():
    labels = {"ray.io/node-group": "head", "ray.io/market-type": "on-demand"}
    head = member("sunspot-x-head", is_head_node=True, labels=labels)
    return [member("vm_b"), member("vm_a"), head]


def write(project, name, *, target="azure", key="missing.pub", market="spot"):
    """Declares the stack; `market` is that of its group `fixed`."""
    file = project / f"Pulumi.{name}.yaml"
    file.write_text(STACK.format(target=target, key=key, market=market))


def declared(name="x"):
    return stacks.load(name).for_target("azure")


def up(place, **keywords):
    steps = []
    handle = place.target.up(declared(), steps.append, **keywords).handle
    return handle, steps


def run(*arguments, **more):
    return CliRunner().invoke(app, list(arguments), **more)
