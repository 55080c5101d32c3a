"""Stacks of this machine, and the folders that clusters of them leave."""

from sunspot.node.local.folder import ClusterFolder, ClusterRecord
from sunspot.spec import AutoscalerConfig, RayClusterConfig, RayNodeConfig, ScalingGroup
from sunspot.stack import Stack
from sunspot.targets.local import plan
from sunspot.targets.local.host_ports import HostPorts

NODE = RayNodeConfig(cpu=2, memory_gb=4)
WORKERS = ScalingGroup(worker_nodes=NODE, min_workers=0, max_workers=4, market="spot")
AUTOSCALER = AutoscalerConfig(cpu=0.5, memory_gb=1)


def stack(*groups, head=NODE, name="dev"):
    cluster = RayClusterConfig(
        head_node=head,
        scaling_groups=list(groups),
        autoscaler_config=AUTOSCALER,
        ray_version="2.60.0",
    )
    return Stack(name=name, target="local", cluster=cluster)


def write(clusters, described, **fields):
    """The folder of a cluster of that stack, as `up` leaves it, with no process of it."""
    folder = ClusterFolder(clusters / described.name)
    shapes = plan.shapes(described, folder, HostPorts(gcs=1, dashboard=2))
    record = ClusterRecord(
        name=described.name,
        gcs_port=1,
        dashboard_port=2,
        shapes=shapes,
        stack=described.model_dump(mode="json"),
        **fields,
    )
    folder.write_cluster(record)
    folder.add_node(shapes["head"])
    plan.write_autoscaler_config(folder, described)
    return folder
