"""What Ray counts on a node: the one derivation, for every target and for the checks before.

Ray's names of resources and its rules: docs.ray.io, "Resources" and "Accelerator support".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sunspot.catalog import VmSize
from sunspot.spec import RayNodeConfig, size_for

GIB = 2**30

# Ray's own default share of a node's memory for its object store (ray_constants, 2.60).
OBJECT_STORE_SHARE = 0.3


@dataclass(frozen=True, kw_only=True)
class NodeResources:
    """What Ray counts on one node.

    `cpus` is whole, as Ray counts them; `memory` is bytes; `accelerator` is Ray's name of the GPUs,
    None where a node has none, or does not say which.
    """

    cpus: int
    gpus: int
    memory: int
    accelerator: str | None = None

    @property
    def accelerator_resource(self) -> dict[str, int]:
        """The resource by which Ray distinguishes kinds of GPUs: {"accelerator_type:T4": 1}, or {}.

        Ray adds it for the GPUs that it detects; where a node's GPUs are only logical, it
        is a flag of `ray start`.
        """
        return {} if self.accelerator is None else {f"accelerator_type:{self.accelerator}": 1}

    @property
    def object_store(self) -> int:
        """The bytes of its memory that Ray gives the object store by default."""
        return int(self.memory * OBJECT_STORE_SHARE)

    def amounts(self) -> dict[str, int]:
        """Ray's names -> amounts, as its autoscaler expects them; without zero amounts."""
        named = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return {name: n for name, n in named.items() if n} | self.accelerator_resource


def of(node: RayNodeConfig) -> NodeResources:
    """What Ray counts on such a node; if it names a VM size, that size's numbers and GPUs."""
    return NodeResources(
        cpus=math.ceil(node.cpu),
        gpus=node.gpu_count,
        memory=int(node.memory_gb * GIB),
        accelerator=size_for(node).accelerator_type if node.vm_size else None,
    )


def of_size(size: VmSize) -> NodeResources:
    """What Ray counts on a whole machine of this size."""
    return NodeResources(
        cpus=size.vcpus,
        gpus=size.gpu_count,
        memory=int(size.memory_gib * GIB),
        accelerator=size.accelerator_type,
    )
