"""A stack "x" on Azure without Azure: what its file says, what Pulumi knows, what Ray answers."""

from typer.testing import CliRunner

from sunspot import stack as stacks
from sunspot.cli import app
from sunspot.targets.azure.automation import parse_state

GROUP = "/subscriptions/s/resourceGroups/sunspot-x"
ACCOUNT = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/sunspot1"
VM = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/sunspot-x-head"

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


def resource(kind, identity, *, protect=False, **outputs):
    return {
        "urn": f"urn:pulumi:x::sunspot::{kind}::{identity.rpartition('/')[2]}",
        "type": kind,
        "custom": True,
        "id": identity,
        "protect": protect,
        "outputs": outputs,
    }


def exported(*resources, **outputs):
    root = {"urn": "urn:stack", "type": "pulumi:pulumi:Stack", "outputs": outputs}
    provider = {
        "urn": "urn:p",
        "type": "pulumi:providers:azure-native",
        "custom": True,
        "id": "1",
    }
    return {"deployment": {"resources": [root, provider, *resources]}}


def group():
    return resource("azure-native:resources:ResourceGroup", GROUP)


def machine(vm_id="one"):
    return resource("azure-native:compute:VirtualMachine", VM, vmId=vm_id)


def account(*, protect=True):
    return resource("azure-native:storage:StorageAccount", ACCOUNT, protect=protect)


class FakeStack:
    """Pulumi's side of one stack: what `up` makes and `destroy` leaves, and what was called."""

    def __init__(self, outputs):
        self.outputs = outputs
        self.made = (group(), machine(), account())
        self.now = None
        self.calls = []
        self.error = None

    def state(self):
        self.calls.append("state")
        if self.error:
            raise self.error
        return None if self.now is None else parse_state(exported(*self.now, **self.outputs))

    def up(self, progress):
        self.calls.append("up")
        if self.error:
            raise self.error
        self.now = self.made
        progress("created VirtualMachine sunspot-x-head-vm")
        return self.state()

    def destroy(self, progress, *, delete_storage):
        progress("deleting")
        self.calls.append(f"destroy {delete_storage}")
        protected = [one for one in self.now or () if one["protect"]]
        self.now = () if delete_storage or not protected else (group(), *protected)


def member(name, **fields):
    return {
        "node_name": name,
        "state": "ALIVE",
        "state_message": None,
        "is_head_node": False,
        "resources_total": {"CPU": 4.0, "memory": 2.0**34},
        "labels": {"ray.io/node-group": "fixed", "ray.io/market-type": "spot"},
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
    handle = place.target.up(declared(), steps.append, **keywords)
    return handle, steps


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))
