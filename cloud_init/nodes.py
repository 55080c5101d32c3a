"""The nodes of a planned cluster, as the values that the renderer takes.

Free of side effects: the program of `infra/` and a preview without Pulumi both start from here.
"""

from __future__ import annotations

import json

from cloud_init.render import AUTOSCALER_RUN_CONFIG
from cloud_init.values import AzureFacts, NodeValues
from sunspot.node import autoscaler_config
from sunspot.ray import start
from sunspot.ray.start import NodeMarket
from sunspot.spec_values import HEAD
from sunspot.targets.azure import images
from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.plan import AzurePlan, Pool

MACHINES = "sunspot.node.azure.scale_sets.create"
PRIORITIES: dict[NodeMarket, int] = {
    "spot": autoscaler_config.SPOT_PRIORITY,
    "on-demand": autoscaler_config.ON_DEMAND_PRIORITY,
}


def node_values(plan: AzurePlan, pool: Pool | None, facts: AzureFacts[str]) -> NodeValues:
    """The values of a worker of the pool, or of the head where `pool` is None."""
    machine = plan.head if pool is None else pool.machine
    image = facts.built_image if machine.image is None else _pulled(machine.image, plan, facts)
    assert image is not None  # noqa: S101 - a machine has none only where the stack builds it
    return NodeValues(
        role="head" if pool is None else "worker",
        group=HEAD if pool is None else pool.node_type,
        market="on-demand" if pool is None else pool.market,
        cluster=plan.cluster_name,
        image=image,
        resources=machine.resources,
        driver=machine.driver,
        facts=facts,
        scale_set=None if pool is None else pool.scale_set,
        autoscaler_config=_autoscaler_text(plan, facts) if pool is None else None,
        prices=_prices(plan) if pool is None else {},
        prometheus_image=_pulled(images.PROMETHEUS, plan, facts),
        grafana_image=_pulled(images.GRAFANA, plan, facts),
    )


def _pulled(reference: str, plan: AzurePlan, facts: AzureFacts[str]) -> str:
    return images.pulled(reference, plan.copies, facts.registry)


def _prices(plan: AzurePlan) -> dict[str, float]:
    """The catalogue's USD an hour by node type; without types whose price is unknown."""
    types: list[tuple[str, Machine, NodeMarket]] = [
        (HEAD, plan.head, "on-demand"),
        *((pool.node_type, pool.machine, pool.market) for pool in plan.pools),
    ]
    return {
        name: price
        for name, machine, market in types
        if (price := machine.size.price.usd(spot=market == "spot")) is not None
    }


def _autoscaler_text(plan: AzurePlan, facts: AzureFacts[str]) -> str | None:
    """The config file of Ray's autoscaler, as JSON (which is YAML too); None without elastic pools.

    Fixed pools are not in it, so that a change of their size does not replace the head.
    """
    pools = [pool for pool in plan.pools if pool.elastic]
    if not pools:
        return None
    head = autoscaler_config.node_type(
        resources=plan.head.resources.amounts(),
        labels=start.labels(HEAD, "on-demand"),
        priority=PRIORITIES["on-demand"],
    )
    config = autoscaler_config.config(
        name=plan.cluster_name,
        machines=MACHINES,
        settings={
            "subscription_id": facts.subscription_id,
            "resource_group": facts.resource_group,
            "identity_client_id": facts.identity_client_id,
            "head": plan.head_name,
            "head_type": HEAD,
            "scale_sets": {pool.node_type: pool.scale_set for pool in pools},
        },
        config_file=AUTOSCALER_RUN_CONFIG,
        node_types={HEAD: head, **{pool.node_type: _node_type(pool) for pool in pools}},
        head_type=HEAD,
        twins={pool.node_type: pool.twin for pool in pools if pool.twin},
    )
    return json.dumps(config, separators=(",", ":"))


def _node_type(pool: Pool) -> dict[str, object]:
    return autoscaler_config.node_type(
        resources=pool.machine.resources.amounts(),
        labels=start.labels(pool.node_type, pool.market),
        minimum=pool.minimum,
        maximum=pool.maximum,
        priority=PRIORITIES[pool.market],
    )
