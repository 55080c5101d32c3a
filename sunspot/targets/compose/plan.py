"""A stack's cluster on one host: each node's share of its GPUs, CPUs and memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from sunspot.errors import UsageError
from sunspot.ray import images, resources
from sunspot.ray.images import ImageBuild
from sunspot.ray.resources import GIB, NodeResources
from sunspot.ray.start import NodeMarket
from sunspot.spec import RayNodeConfig, ScalingGroup
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.compose import host as hosts
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.host import Host
from sunspot.targets.compose.settings import ComposeSettings
from sunspot.targets.compose.settings import Host as Settings

JUPYTER_DOCKERFILE = Path("docker") / "jupyter.Dockerfile"
"""In the project's folder."""

# Docker's rule for the names of projects; it takes no capitals.
_NOT_IN_PROJECT = re.compile(r"[^a-z0-9_-]")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One Ray node, which is one container.

    Attributes:
        name: its name in Ray, and its service's.
        group: its group; "head".
        market: how its group is bought elsewhere; here it is only a label.
        resources: what Ray counts on it.
        image: its image.
        gpus: its GPUs, as `host.Gpus.devices` names them; empty where GPUs are logical.
        cpuset: the host's CPUs that it runs on, "0-3"; None for all.
        starts: whether `up` starts it; otherwise only `scale` does.
    """

    name: str
    group: str
    market: NodeMarket
    resources: NodeResources
    image: str
    gpus: tuple[str, ...] = ()
    cpuset: str | None = None
    starts: bool = True

    @property
    def is_head(self) -> bool:
        return self.group == HEAD


@dataclass(frozen=True, kw_only=True)
class ComposePlan:
    """All that the containers of a stack are made from.

    Attributes:
        stack: the stack's name.
        project: its Compose project.
        host: the host.
        settings: the stack's settings for it.
        nodes: the Ray nodes, the head first.
        build: what their image is built from; None if it is pulled.
        jupyter: whether Jupyter runs.
        jupyter_context: the folder that Jupyter's image is built in, where it is built.
        notes: what a user should know about it, one sentence each.
    """

    stack: str
    project: str
    host: Host
    settings: Settings
    nodes: tuple[Node, ...]
    build: ImageBuild | None = None
    jupyter: bool = False
    jupyter_context: Path | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def has_logical_gpus(self) -> bool:
        """Whether nodes have GPUs that are only numbers."""
        return self.host.gpus.maker == "none" and any(node.resources.gpus for node in self.nodes)

    @property
    def workers(self) -> tuple[Node, ...]:
        return self.nodes[1:]


def project(stack: str) -> str:
    """The Compose project of a stack; different for stacks that differ."""
    plain = _NOT_IN_PROJECT.sub("-", stack.lower())
    if plain != stack:
        plain += "-" + hashlib.sha256(stack.encode()).hexdigest()[:6]
    return f"sunspot-{plain}"


def of(stack: Stack, engine: Engine, folder: Path) -> ComposePlan:
    """The plan of a stack.

    Args:
        stack: the stack, fitted to this target.
        engine: the engine; it need not answer if it is this machine's.
        folder: the project's folder, which images are built from.

    Raises:
        UsageError: the host does not have what the stack needs.
    """
    settings = ComposeSettings.of(stack).host
    needs_gpus = any(node.gpu_count for node in node_configs(stack))
    host = hosts.find(engine, settings.gpu, needs_gpus=needs_gpus)
    hosts.check_folders(engine, settings.data)
    return make(stack, host, folder)


def make(stack: Stack, host: Host, folder: Path) -> ComposePlan:
    """The plan of a stack on a host. Arguments and errors as for `of`."""
    settings, named = ComposeSettings.of(stack).host, project(stack.name)
    _check_nodes(stack, host)
    nodes = list(_nodes(stack, host, f"{named}-ray"))
    kept = _within_memory(_with_gpus(nodes, host, stack.name), host)
    dockerfile = folder / JUPYTER_DOCKERFILE
    can_have = "jupyter" in settings.images or dockerfile.is_file()
    return ComposePlan(
        stack=stack.name,
        project=named,
        host=host,
        settings=settings,
        nodes=tuple(_with_cpus(kept, host)),
        build=images.build(stack, folder),
        jupyter=settings.jupyter and can_have,
        jupyter_context=dockerfile.parent,
        notes=(
            *_notes(stack, host, kept),
            *(
                [f"Jupyter is left out: there is no {dockerfile} to build its image from"]
                if settings.jupyter and not can_have
                else []
            ),
        ),
    )


def node_configs(stack: Stack) -> list[RayNodeConfig]:
    """The head, and the workers of each group."""
    return [
        stack.cluster.head_node,
        *(group.worker_nodes for group in stack.cluster.scaling_groups),
    ]


def _check_nodes(stack: Stack, host: Host) -> None:
    """Checks that each node by itself fits the host. More than one may share its CPUs."""
    problems = []
    keys = ["head_node", *(f"group {group.name}" for group in stack.cluster.scaling_groups)]
    for key, node in zip(keys, node_configs(stack), strict=True):
        has = resources.of(node)
        if has.cpus > host.cpus:
            problems.append(f"{key}: cpu {has.cpus} is more than the host's {host.cpus}")
        if has.memory > host.memory:
            problems.append(
                f"{key}: memory_gb {has.memory / GIB:g} is more than the host's "
                f"{host.memory / GIB:.1f}"
            )
        if has.gpus and host.gpus.maker == "amd" and not _names_image(stack):
            problems.append(
                f"{key}: Ray has no image for AMD GPUs: build docker/rocm.Dockerfile, and name it "
                "in sunspot:image"
            )
    if problems:
        raise UsageError("\n  ".join([f"stack {stack.name} does not fit this host:", *problems]))


def _names_image(stack: Stack) -> bool:
    return stack.image.reference is not None or stack.image.context is not None


def _nodes(stack: Stack, host: Host, built: str) -> Iterator[Node]:
    """Every node that there could be, without its share of the host."""

    def image(node: RayNodeConfig) -> str:
        physical = bool(node.gpu_count) and host.gpus.maker != "none"
        return images.reference(stack, gpus=physical, arm=host.arm) or built

    head = stack.cluster.head_node
    yield Node(
        name=HEAD,
        group=HEAD,
        market="on-demand",
        resources=resources.of(head),
        image=image(head),
    )
    for group in stack.cluster.scaling_groups:
        for number in range(1, group.max_workers + 1):
            yield Node(
                name=f"{group.name}-{number}",
                group=group.name,
                # Spot first: one host is never short of spot, so the twin is never needed.
                market="on-demand" if group.market == "on-demand" else "spot",
                resources=resources.of(group.worker_nodes),
                image=image(group.worker_nodes),
                starts=number <= group.min_workers,
            )


def _with_gpus(nodes: list[Node], host: Host, stack: str) -> list[Node]:
    """The nodes that there are GPUs for, in their order.

    Raises:
        UsageError: there are too few for the nodes that `up` starts.
    """
    if host.gpus.maker == "none":
        return nodes
    first = sum(node.resources.gpus for node in nodes if node.starts)
    if first > len(host.gpus.devices):
        raise UsageError(
            f"Pulumi.{stack}.yaml asks for {first} GPUs (the head's, and those of min_workers of "
            f"each group), and this host has {len(host.gpus.devices)}: lower min_workers or "
            "gpu_count, or make GPUs logical by sunspot:compose: {gpu: none}"
        )
    free, given = list(host.gpus.devices), {}
    for node in sorted(nodes, key=lambda node: not node.starts):
        count = node.resources.gpus
        if count <= len(free):
            given[node.name] = tuple(free[:count])
            del free[:count]
    return [replace(n, gpus=given[n.name]) for n in nodes if n.name in given]


def _within_memory(nodes: list[Node], host: Host) -> list[Node]:
    """The nodes without those beyond the first ones that the host has no memory for."""
    left = host.memory - sum(node.resources.memory for node in nodes if node.starts)
    kept = []
    for node in nodes:
        if not node.starts:
            left -= node.resources.memory
            if left < 0:
                continue
        kept.append(node)
    return kept


def _with_cpus(nodes: list[Node], host: Host) -> Iterator[Node]:
    """The nodes with CPUs one after the other, from the first again where there are too few.

    Those that `up` starts get theirs first.
    """
    at, given = 0, {}
    for node in sorted(nodes, key=lambda node: not node.starts):
        if count := node.resources.cpus:
            given[node.name] = sorted((at + offset) % host.cpus for offset in range(count))
            at += count
    for node in nodes:
        cpus = given.get(node.name)
        yield node if cpus is None else replace(node, cpuset=_ranges(cpus))


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers as Docker writes a set of CPUs: "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _notes(stack: Stack, host: Host, nodes: list[Node]) -> Iterator[str]:
    for group in stack.cluster.scaling_groups:
        count = sum(node.group == group.name for node in nodes)
        if count < group.max_workers:
            yield (
                f"{group.name}: the host has GPUs and memory for {count} of at most "
                f"{group.max_workers} workers"
            )
        if group.is_elastic():
            yield _fixed(group)
    if host.gpus.maker == "none" and any(node.resources.gpus for node in nodes):
        yield "the GPUs are numbers, which Ray counts: Ray Train trains on the CPU, with gloo"
    if not host.gpus.divisible and sum(bool(node.gpus) for node in nodes) > 1:
        yield (
            "the host is WSL2, where every container that gets a GPU sees all of them: let one "
            "worker have them all, or nodes use the same"
        )
    first = [node.resources for node in nodes if node.starts]
    if (cpus := sum(one.cpus for one in first)) > host.cpus:
        yield f"the nodes have {cpus} CPUs in all and the host {host.cpus}, which they share"
    if (memory := sum(one.memory for one in first)) > host.memory:
        yield (
            f"the nodes may use {memory / GIB:.0f} GiB of memory in all, and the host has "
            f"{host.memory / GIB:.0f}"
        )


def _fixed(group: ScalingGroup) -> str:
    return (
        f"{group.name} starts with its min_workers, {group.min_workers}; Docker Compose has no "
        f"autoscaler, so add workers yourself: sunspot scale {group.name}=N"
    )
