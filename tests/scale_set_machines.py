"""Two scale sets of a stand-in for ARM, a spot group's and its twin's, as machines."""

from azure_model.arm import GROUP, HEAD, Arm
from azure_model.resource_ids import SUBSCRIPTION

from sunspot.node.azure import arm as client
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.scale_sets import Cluster, ScaleSetMachines

GPU, TWIN = "sunspot-test-gpu", "sunspot-test-gpu-on-demand"
SETS = {"gpu": GPU, "gpu-on-demand": TWIN}


def machines_of(arm: Arm, *, patience_s: float = 20.0) -> ScaleSetMachines:
    """The machines of both sets, of which the spot one has a maximum of 5."""
    cluster = Cluster(
        subscription_id=SUBSCRIPTION,
        resource_group=GROUP,
        head=HEAD,
        head_type="head",
        scale_sets=SETS,
        maximums={"gpu": 5},
    )
    return ScaleSetMachines(cluster, client.Arm(Imds(arm.url), arm.url, patience_s=patience_s))


def ids(machines: ScaleSetMachines, node_type: str = "gpu") -> list[str]:
    return sorted(machine.id for machine in machines.list() if machine.node_type == node_type)
