"""The nodes of a planned cluster, as cloud-init's renderer wants them told.

Pure: the program of `infra/` and a preview without Pulumi both get their user data from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cloud_init.render import AUTOSCALER_RUN_CONFIG, GIB, NodeValues
from sunspot.node import autoscaler_config
from sunspot.spec import HEAD
from sunspot.targets.azure.plan import AzurePlan, Machine, Market, Pool


def node_values(plan: AzurePlan, pool: Pool | None, known: Mapping[str, Any]) -> NodeValues:
    """What a worker of a pool is told, or the head where that is None.

    `known` holds what only Azure can tell, by the names of NodeValues' fields: the vault's and the
    storage's address, the subscription, the resource group, the identity's client id, the head's
    address, the registry, and the image where one is built.
    """
    machine = plan.head if pool is None else pool.machine
    told = {**known}
    if machine.image is not None:
        told["image"] = machine.image
    return NodeValues(
        role="head" if pool is None else "worker",
        group=HEAD if pool is None else pool.node_type,
        market="on-demand" if pool is None else pool.market,
        cluster=plan.cluster_name,
        cpus=machine.size.vcpus,
        gpus=machine.size.gpu_count,
        memory_gb=machine.size.memory_gib,
        accelerator=machine.accelerator,
        driver=machine.driver,
        scale_set=None if pool is None else pool.scale_set,
        autoscaler_config=_autoscaler_text(plan, known) if pool is None else None,
        prices=_prices(plan) if pool is None else {},
        **told,
    )


def _prices(plan: AzurePlan) -> dict[str, float]:
    """USD an hour by node type, the catalogue's; without those that are not known."""
    types: list[tuple[str, Machine, Market]] = [
        (HEAD, plan.head, "on-demand"),
        *((pool.node_type, pool.machine, pool.market) for pool in plan.pools),
    ]
    return {
        name: price
        for name, machine, market in types
        if (price := machine.size.price.usd(spot=market == "spot")) is not None
    }


def _autoscaler_text(plan: AzurePlan, known: Mapping[str, Any]) -> str | None:
    """The file of Ray's autoscaler, as JSON (which is YAML too); None where it owns no group.

    Groups of a fixed size are not in it, so that another size of theirs leaves the head alone.
    """
    pools = [pool for pool in plan.pools if pool.elastic]
    if not pools:
        return None
    head = _node_type(plan.head, HEAD, "on-demand", minimum=0, maximum=0)
    workers = {
        pool.node_type: _node_type(
            pool.machine, pool.node_type, pool.market, minimum=pool.minimum, maximum=pool.maximum
        )
        for pool in pools
    }
    provider = {
        "subscription_id": known["subscription_id"],
        "resource_group": known["resource_group"],
        "identity_client_id": known["identity_client_id"],
        "head": plan.head_name,
        "head_type": HEAD,
        "scale_sets": {pool.node_type: pool.scale_set for pool in pools},
        "twins": {pool.node_type: pool.twin for pool in pools if pool.twin},
        "config_file": AUTOSCALER_RUN_CONFIG,
    }
    config = autoscaler_config.config(
        name=plan.cluster_name,
        provider=provider,
        node_types={HEAD: head, **workers},
        head_type=HEAD,
    )
    return json.dumps(config, separators=(",", ":"))


def _node_type(
    machine: Machine, name: str, market: Market, *, minimum: int, maximum: int
) -> dict[str, Any]:
    amounts = {
        "CPU": machine.size.vcpus,
        "GPU": machine.size.gpu_count,
        "memory": int(machine.size.memory_gib * GIB),
    }
    if machine.accelerator is not None:
        amounts[f"accelerator_type:{machine.accelerator}"] = 1
    priorities = {
        "spot": autoscaler_config.SPOT_PRIORITY,
        "on-demand": autoscaler_config.ON_DEMAND_PRIORITY,
    }
    return {
        "resources": {resource: amount for resource, amount in amounts.items() if amount},
        "labels": {"ray.io/node-group": name, "ray.io/market-type": market},
        "node_config": {},
        "min_workers": minimum,
        "max_workers": maximum,
        "priority": priorities[market],
    }
