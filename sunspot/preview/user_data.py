"""The user data of a planned node, with stand-ins for what Azure will say.

The same text as the program of `infra/` makes, without Pulumi: a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sunspot.azure_plan import AzurePlan, Machine, Pool
from sunspot.errors import SunspotError, UsageError
from sunspot.node import autoscaler_config
from sunspot.spec import HEAD

if TYPE_CHECKING:
    from cloud_init import NodeValues

GIB = 2**30
WORKER = "worker"
TOKEN_SECRET = "ray-token"  # noqa: S105 - its name, not the token

# What nobody knows before the resources are there.
STAND_INS = {
    "vault_url": "<address of the vault>",
    "storage_url": "<address of the storage>",
    "subscription_id": "<subscription>",
    "resource_group": "<resource group>",
    "identity_client_id": "<client id of the identity>",
}
BUILT_IMAGE = "<registry>/sunspot/ray@<digest>"
BUILT_REGISTRY = "<registry>"
HEAD_ADDRESS = "<address of the head>"


@dataclass(frozen=True, kw_only=True)
class UserData:
    """A node type's user data as a person reads it, and its size as Azure gets it (compressed)."""

    node_type: str
    text: str
    bytes_sent: int
    bytes_allowed: int


def user_data(plan: AzurePlan, node: str) -> UserData:
    """The user data of a node: "head", "worker", or the name of a group or node type.

    Raises UsageError for a name that means none of the plan's nodes, or several.
    """
    pool = _chosen(plan, node)
    values = node_values(plan, pool, _known(plan))
    from cloud_init import render
    from cloud_init.render import MAX_USER_DATA_BYTES

    return UserData(
        node_type=values.group,
        text=render(values, compress=False).decode(),
        bytes_sent=len(render(values, compress=True)),
        bytes_allowed=MAX_USER_DATA_BYTES,
    )


def node_values(plan: AzurePlan, pool: Pool | None, known: Mapping[str, str | None]) -> NodeValues:
    """What cloud_init renders for the workers of a pool, or for the head where that is None.

    `known` holds what only Azure can tell: the keys of STAND_INS, `head_address`, `registry`, and
    `image` where one is built.
    """
    try:
        from cloud_init import NodeValues
    except ImportError as error:
        raise SunspotError(
            "the user data is rendered by cloud_init/ of the project, which is not here: "
            "install Sunspot from a clone (`make setup`)"
        ) from error
    machine = plan.head if pool is None else pool.machine
    told: dict[str, Any] = {**known}
    if machine.image is not None:
        told["image"] = machine.image
    return NodeValues(
        role="head" if pool is None else "worker",
        group=HEAD if pool is None else pool.node_type,
        market="on-demand" if pool is None else pool.market,
        cluster=plan.cluster_name,
        token_secret=TOKEN_SECRET,
        cpus=machine.size.vcpus,
        gpus=machine.size.gpu_count,
        memory_gb=machine.size.memory_gib,
        accelerator=machine.accelerator,
        driver=machine.driver,
        scale_set=None if pool is None else pool.scale_set,
        autoscaler_config=_autoscaler_config(plan, known) if pool is None else None,
        **told,
    )


def _known(plan: AzurePlan) -> dict[str, str | None]:
    built = plan.build is not None
    return {
        **STAND_INS,
        "head_address": HEAD_ADDRESS if plan.addresses is None else plan.addresses.head_address,
        "image": BUILT_IMAGE if built else None,
        "registry": BUILT_REGISTRY if built else None,
    }


def _chosen(plan: AzurePlan, node: str) -> Pool | None:
    if node == HEAD:
        return None
    found = [pool for pool in plan.pools if node in (WORKER, pool.group, pool.node_type)]
    exact = [pool for pool in found if pool.node_type == node]
    chosen = exact or found
    if len(chosen) == 1:
        return chosen[0]
    known = ", ".join([HEAD, *(pool.node_type for pool in plan.pools)])
    what = "means several nodes" if chosen else "is no node of this stack"
    raise UsageError(f"{node!r} {what}: choose one of {known}")


def _autoscaler_config(plan: AzurePlan, known: Mapping[str, str | None]) -> str | None:
    elastic = [pool for pool in plan.pools if pool.elastic]
    if not elastic or not plan.cluster.requires_autoscale():
        return None
    return json.dumps(_autoscaler(plan, elastic, known), separators=(",", ":"))


def _autoscaler(
    plan: AzurePlan, elastic: Sequence[Pool], known: Mapping[str, str | None]
) -> dict[str, Any]:
    head = _node_type(plan.head, HEAD, "on-demand", minimum=0, maximum=0)
    workers = {
        pool.node_type: _node_type(
            pool.machine, pool.node_type, pool.market, minimum=pool.minimum, maximum=pool.maximum
        )
        for pool in elastic
    }
    return autoscaler_config.config(
        name=plan.cluster_name,
        provider={
            "subscription_id": known["subscription_id"],
            "resource_group": known["resource_group"],
            "scale_sets": {pool.node_type: pool.scale_set for pool in elastic},
        },
        node_types={HEAD: head, **workers},
        head_type=HEAD,
    )


def _node_type(
    machine: Machine, name: str, market: str, *, minimum: int, maximum: int
) -> dict[str, Any]:
    amounts = {
        "CPU": machine.size.vcpus,
        "GPU": machine.size.gpu_count,
        "memory": int(machine.size.memory_gib * GIB),
    }
    if machine.accelerator is not None:
        amounts[f"accelerator_type:{machine.accelerator}"] = 1
    return {
        "resources": {resource: amount for resource, amount in amounts.items() if amount},
        "labels": {"ray.io/node-group": name, "ray.io/market-type": market},
        "node_config": {},
        "min_workers": minimum,
        "max_workers": maximum,
        "priority": int(market == "spot"),
    }
