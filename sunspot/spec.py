"""What a cluster is made of: its nodes, its groups of workers, its autoscaler.

The names and rules follow Sematic's Ray integration, so that code moves over by changing an
import (docs/sematic.md). Every class is a frozen dataclass, takes its fields by position or by
name, and raises UsageError, a ValueError, for values that are not valid.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import ArgsKwargs

from sunspot import catalog
from sunspot.config_class import ConfigBase, config_class
from sunspot.errors import UsageError
from sunspot.spec_values import (
    TESTED_RAY,
    Count,
    GroupName,
    Number,
    RayVersion,
    VmSizeName,
    installed_ray,
)

Market = Literal["spot", "on-demand", "spot-with-fallback"]

# Sematic's minimums; below them Ray's own processes leave no room for work.
MIN_NODE_MEMORY_GB = 2.0
MIN_AUTOSCALER_MEMORY_GB = 1.0

# Several times the largest machines that there are: more is a slip of the pen, on every target.
MAX_CPU = 10_000
MAX_MEMORY_GB = 100_000
MAX_GPUS = 1_000

DEFAULT_GROUP_NAME = "workers"
ON_DEMAND_SUFFIX = "-on-demand"


def _size_or_needs(schema: dict[str, Any]) -> None:
    """States in the JSON schema that a node needs a vm_size, or both cpu and memory_gb."""
    for name in ("cpu", "memory_gb"):
        schema["properties"][name].pop("default")
    schema["anyOf"] = [{"required": ["vm_size"]}, {"required": ["cpu", "memory_gb"]}]


@config_class(json_schema_extra=_size_or_needs)
class RayNodeConfig(ConfigBase):
    """One node: either what it needs (`cpu` and `memory_gb`), or a `vm_size` that has everything.

    With a `vm_size` the catalogue fills in the rest; a value given as well must equal the size's.
    A size that the catalogue does not have is taken as it is, if its shape is given: `cpu`,
    `memory_gb` and, if it has GPUs, `gpu_count`.
    A node with `cpu=0` runs no task that asks for a CPU, which is what some want of the head.
    """

    # No node keeps these two defaults: the VM size replaces them, or their absence is an error.
    cpu: Number = Field(
        default=math.nan, ge=0, le=MAX_CPU, description="CPUs (vCPUs on Azure) of the node"
    )
    memory_gb: Number = Field(
        default=math.nan,
        ge=MIN_NODE_MEMORY_GB,
        le=MAX_MEMORY_GB,
        description="memory of the node in GiB (2**30 bytes)",
    )
    gpu_count: Count = Field(default=0, ge=0, le=MAX_GPUS, description="GPUs of the node")
    vm_size: VmSizeName | None = Field(
        default=None,
        description="Azure VM size instead of cpu and memory_gb; `Standard_` may be left out; with "
        "them, it may be a size that Sunspot's catalogue does not have",
        examples=["Standard_D4s_v5", "Standard_NC4as_T4_v3"],
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, data: Any) -> Any:
        given = _by_name(cls, data) if isinstance(data, ArgsKwargs) else data
        if isinstance(given, Mapping) and isinstance(given.get("vm_size"), str):
            with suppress(UsageError):  # the field's own validator reports a wrong name
                return {**_shape(catalog.get(given["vm_size"])), **given}
        return data

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        if self.vm_size is None:
            self._check_needs()
        else:
            self._check_against_size(size_for(self))
        return self

    def _check_needs(self) -> None:
        missing = [name for name in ("cpu", "memory_gb") if math.isnan(getattr(self, name))]
        if missing:
            raise UsageError(
                f"{' and '.join(missing)} missing: set both cpu and memory_gb, or a vm_size"
            )

    def _check_against_size(self, size: catalog.VmSize) -> None:
        wrong = [
            f"{name} {getattr(self, name):g} is not the {value:g} of {size.name}"
            for name, value in _shape(size).items()
            if getattr(self, name) != value
        ]
        if wrong:
            raise UsageError(f"{', '.join(wrong)}: leave it out, or choose another vm_size")


def _by_name(cls: type[RayNodeConfig], given: ArgsKwargs) -> dict[str, Any]:
    names = [field.name for field in fields(cls)]
    return {**dict(zip(names, given.args, strict=False)), **(given.kwargs or {})}


def _shape(size: catalog.VmSize) -> dict[str, float]:
    return {"cpu": size.vcpus, "memory_gb": size.memory_gib, "gpu_count": size.gpu_count}


@config_class()
class ScalingGroup(ConfigBase):
    """Workers of one shape and one market, between `min_workers` and `max_workers` of them.

    A group without a name gets one in its cluster's stack: see `RayClusterConfig.with_names`.
    """

    worker_nodes: RayNodeConfig = Field(description="what each worker of the group is")
    min_workers: Count = Field(default=1, ge=0, description="workers that are always up")
    max_workers: Count = Field(
        default=1,
        gt=0,
        validate_default=True,
        description="workers that may be up at once; above min_workers the autoscaler decides",
    )
    name: GroupName = Field(
        default="",
        description="name of the group, unique in the cluster; without one, "
        f"{DEFAULT_GROUP_NAME}, then {DEFAULT_GROUP_NAME}-2 and so on",
    )
    market: Market = Field(
        default="on-demand",
        description="how the machines are bought: spot (cheap, may be evicted), on-demand, or "
        "spot-with-fallback (on-demand while spot is not available)",
    )

    @field_validator("max_workers")
    @classmethod
    def _check_range(cls, maximum: int, info: ValidationInfo) -> int:
        minimum = info.data.get("min_workers")
        if minimum is not None and maximum < minimum:
            raise UsageError(
                f"max_workers {maximum} is below min_workers {minimum}: "
                "raise max_workers or lower min_workers"
            )
        return maximum

    def is_elastic(self) -> bool:
        """Whether `min_workers` is below `max_workers`."""
        return self.max_workers > self.min_workers

    def is_autoscaled(self) -> bool:
        """Whether Ray's autoscaler creates and terminates the group's workers.

        It does so in a fixed group with fallback too: it chooses the market of each worker.
        """
        return self.is_elastic() or self.market == "spot-with-fallback"

    def node_types(self) -> tuple[str, ...]:
        """The names of the group's Ray node types: the group's own, then its on-demand twin.

        Only a group that is spot-with-fallback has the twin.
        """
        if self.market == "spot-with-fallback":
            return self.name, self.name + ON_DEMAND_SUFFIX
        return (self.name,)


@config_class()
class AutoscalerConfig(ConfigBase):
    """The resources of Ray's autoscaler, which runs beside the head."""

    cpu: Number = Field(gt=0, le=MAX_CPU, description="CPUs of the autoscaler")
    memory_gb: Number = Field(
        ge=MIN_AUTOSCALER_MEMORY_GB,
        le=MAX_MEMORY_GB,
        description="memory of the autoscaler in GiB (2**30 bytes)",
    )


@config_class()
class RayClusterConfig(ConfigBase):
    """A whole cluster: a head, groups of workers, the version of Ray on all of them.

    `ray_version` defaults to that of the Ray installed here.
    """

    head_node: RayNodeConfig = Field(description="the head, always on-demand")
    scaling_groups: list[ScalingGroup] = Field(
        default_factory=list,
        description="the groups of workers; none for a cluster of only a head",
    )
    ray_version: RayVersion = Field(
        default_factory=installed_ray,
        description=f"version of Ray on every node, one of {', '.join(TESTED_RAY)}; defaults to "
        "the one installed here",
    )
    autoscaler_config: AutoscalerConfig | None = Field(
        default=None,
        validate_default=True,
        description="the autoscaler; required where a group's max_workers is above its "
        "min_workers, or its market is spot-with-fallback",
    )

    @field_validator("scaling_groups")
    @classmethod
    def _check_names(cls, groups: list[ScalingGroup]) -> list[ScalingGroup]:
        owners: dict[str, int] = {}
        for index, group in enumerate(groups):
            for name in group.node_types() if group.name else ():
                if name in owners:
                    raise UsageError(
                        f"groups [{owners[name]}] and [{index}] would both make node type "
                        f"{name!r}: give each group its own name (spot-with-fallback also takes "
                        f"NAME{ON_DEMAND_SUFFIX})"
                    )
                owners[name] = index
        return groups

    @field_validator("autoscaler_config")
    @classmethod
    def _check_autoscaler(
        cls, autoscaler: AutoscalerConfig | None, info: ValidationInfo
    ) -> AutoscalerConfig | None:
        groups = [g for g in _named(info.data.get("scaling_groups", [])) if g.is_autoscaled()]
        if groups and autoscaler is None:
            ranges = ", ".join(f"{g.name} {g.min_workers}-{g.max_workers}" for g in groups)
            raise UsageError(
                f"missing, but these groups scale or fall back: {ranges}. Add one, such as cpu "
                "0.5 and memory_gb 1, or make max_workers equal min_workers and the market spot or "
                "on-demand"
            )
        return autoscaler

    def requires_autoscale(self) -> bool:
        """Whether any group needs Ray's autoscaler: an elastic one, or one with fallback."""
        return any(group.is_autoscaled() for group in self.scaling_groups)

    def with_names(self) -> Self:
        """This cluster with a name for every group that has none.

        The first is 'workers', then come 'workers-2' and so on, without those that are taken.
        """
        if all(group.name for group in self.scaling_groups):
            return self
        return replace(self, scaling_groups=_named(self.scaling_groups))


def _named(groups: Iterable[ScalingGroup]) -> list[ScalingGroup]:
    groups = list(groups)
    taken = {name for group in groups if group.name for name in group.node_types()}
    return [group if group.name else _with_free_name(group, taken) for group in groups]


def _with_free_name(group: ScalingGroup, taken: set[str]) -> ScalingGroup:
    """The group with the first default name whose node types are free; they are taken then."""
    later = (f"{DEFAULT_GROUP_NAME}-{number}" for number in itertools.count(2))
    for name in itertools.chain([DEFAULT_GROUP_NAME], later):
        named = replace(group, name=name)
        if taken.isdisjoint(named.node_types()):
            taken.update(named.node_types())
            return named
    raise AssertionError("the names do not end")


# Named like a class, as in Sematic: it stands in for one.
def SimpleRayCluster(  # noqa: N802
    n_nodes: int,
    node_config: RayNodeConfig,
    max_nodes: int | None = None,
    ray_version: str | None = None,
    autoscaler_config: AutoscalerConfig | None = None,
) -> RayClusterConfig:
    """A cluster of equal nodes: a head, and one on-demand group of workers.

    Args:
        n_nodes: nodes that are always up, including the head; a single node has no group.
        node_config: what each node is.
        max_nodes: nodes that may be up at once; `n_nodes` by default, which is a fixed size.
        ray_version: version of Ray on every node; by default the one installed here.
        autoscaler_config: required where `max_nodes` is above `n_nodes`.

    Raises:
        ValueError: not 1 <= n_nodes <= max_nodes, or the autoscaler_config is missing.
    """
    limit = n_nodes if max_nodes is None else max_nodes
    for name, value in (("n_nodes", n_nodes), ("max_nodes", limit)):
        if type(value) is not int:  # a bool is an int to isinstance
            raise UsageError(f"{name} {value!r} is not a whole number: give 1 or more")
    if n_nodes < 1:
        raise UsageError(f"n_nodes {n_nodes} is too small: give 1 or more, the head included")
    if limit < n_nodes:
        raise UsageError(f"max_nodes {limit} is below n_nodes {n_nodes}: raise it, or leave it out")
    groups: list[ScalingGroup] = []
    if limit > 1:
        groups = [ScalingGroup(node_config, min_workers=n_nodes - 1, max_workers=limit - 1)]
    version = {} if ray_version is None else {"ray_version": ray_version}
    return RayClusterConfig(
        head_node=node_config,
        scaling_groups=groups,
        autoscaler_config=autoscaler_config,
        **version,
    )


def size_for(node: RayNodeConfig) -> catalog.VmSize:
    """The VM size that a node runs on: the one it names, or the cheapest that fits its needs.

    A named size that the catalogue does not have is of the node's own shape.

    Raises:
        UsageError: no size fits; the message names the nearest one and what it lacks.
    """
    if node.vm_size is not None:
        return catalog.find(node.vm_size) or catalog.unlisted(
            node.vm_size,
            vcpus=node.cpu,
            memory_gib=node.memory_gb,
            gpu_count=node.gpu_count,
        )
    return catalog.cheapest(node.cpu, node.memory_gb, node.gpu_count)
