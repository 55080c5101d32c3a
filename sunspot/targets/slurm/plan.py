"""A stack as a Slurm job: what is asked for each group, and the plan that its nodes read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sunspot.node.slurm.plan import HEAD, Group, Plan
from sunspot.ray import ports, resources, start
from sunspot.ray.start import Head, NodeMarket, RayNode
from sunspot.spec import RayNodeConfig, ScalingGroup
from sunspot.stack import Stack
from sunspot.targets.slurm.settings import Job, Place, SlurmSettings

MIB_OF_GIB = 1024
DEFAULT_GRES = "gpu"

# Nodes share a machine with those of other jobs, so the kernel chooses the ports of workers. All
# others come from a block that the node chooses (sunspot/node/slurm/addresses.py).
WORKER_PORTS = {"workers": 0}

# A module system, a shared file system and Ray itself may each take a minute.
JOIN_S = 300


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one group of nodes asks of Slurm.

    Attributes:
        group: the group's name.
        nodes: how many nodes.
        cpus: CPUs of each.
        memory_mb: memory of each in MiB; 0 leaves it to Slurm.
        gpus: GPUs of each.
        place: partition, account and the like.
    """

    group: str
    nodes: int
    cpus: int
    memory_mb: int
    gpus: int
    place: Place

    @property
    def gres(self) -> str:
        """The GPUs as Slurm spells them, "gpu:a100:2"; "" for none."""
        return f"{self.place.gres or DEFAULT_GRES}:{self.gpus}" if self.gpus else ""

    def options(self) -> list[str]:
        """The options of sbatch, without the number of nodes."""
        place = self.place
        given = {
            "--partition": place.partition,
            "--account": place.account,
            "--qos": place.qos,
            "--ntasks-per-node": 1,
            "--cpus-per-task": self.cpus,
            "--mem": f"{self.memory_mb}M" if self.memory_mb else None,
            "--gres": self.gres or None,
        }
        known = [f"{name}={value}" for name, value in given.items() if value is not None]
        return [*known, *place.extra]


def settings(stack: Stack) -> Job:
    """What a stack file says of Slurm."""
    return SlurmSettings.of(stack).job


def requests(stack: Stack) -> list[Request]:
    """What the stack's groups ask for, the head first; a group that starts with none is left out.

    A group starts with its minimum: further workers are jobs of their own (`sunspot scale`).
    """
    groups = [group for group in stack.cluster.scaling_groups if group.min_workers]
    return [
        request(stack, HEAD, stack.cluster.head_node, 1),
        *(request(stack, group.name, group.worker_nodes, group.min_workers) for group in groups),
    ]


def request(stack: Stack, group: str, node: RayNodeConfig, nodes: int) -> Request:
    """What `nodes` nodes of a group ask for."""
    has, job = resources.of(node), settings(stack)
    return Request(
        group=group,
        nodes=nodes,
        # A head whose tasks have no CPU still runs on one.
        cpus=max(1, has.cpus),
        memory_mb=math.ceil(node.memory_gb * MIB_OF_GIB) if job.memory else 0,
        gpus=has.gpus,
        place=job.place(group),
    )


def components(asked: Sequence[Request]) -> list[list[Request]]:
    """The groups by the component of the job that they are in.

    Where all nodes are alike the job has one component, which Slurm starts sooner: only the
    backfill scheduler starts heterogeneous jobs (Slurm's page "Heterogeneous Job Support").
    """
    if all(one.options() == asked[0].options() for one in asked):
        return [list(asked)]
    return [[one] for one in asked]


def nodes_plan(stack: Stack) -> Plan:
    """The plan that the nodes of the stack's cluster read."""
    job = settings(stack)
    cluster = stack.cluster
    return Plan(
        name=stack.name,
        ray_version=cluster.ray_version,
        groups=[
            _group(HEAD, cluster.head_node, 1, "on-demand"),
            *(
                _group(one.name, one.worker_nodes, one.min_workers, _market(one))
                for one in cluster.scaling_groups
            ),
        ],
        interface=job.interface,
        scratch=job.scratch,
        join_s=JOIN_S,
        notice_s=job.notice_s,
        requeue=job.requeue,
    )


def _market(group: ScalingGroup) -> NodeMarket:
    # As on this machine: jobs that ask for spot find the nodes that the stack calls so.
    return "on-demand" if group.market == "on-demand" else "spot"


def _group(name: str, node: RayNodeConfig, nodes: int, market: NodeMarket) -> Group:
    has = resources.of(node)
    ray_node = RayNode(
        group=name,
        market=market,
        resources=has,
        object_store=has.object_store,
        port_numbers=WORKER_PORTS,
        # The batch script's notice is the drain; at the end there is no time for another one.
        sigterm_drain_s=0,
    )
    if name == HEAD:
        ray_node = replace(ray_node, head=Head())
    return Group(
        name=name,
        nodes=nodes,
        cpus=has.cpus,
        gpus=has.gpus,
        flags=start.flags(ray_node),
        environment=start.environment(ray_node),
        ports=_port_settings(ray_node.role),
    )


def _port_settings(role: ports.Role) -> dict[str, str]:
    """What sets each of a node's single ports: a flag of `ray start`, or a variable."""
    return {
        port.name: port.setting
        for port in ports.of(role)
        if port.setting is not None and port.last is None
    }
