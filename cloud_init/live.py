"""What a cluster may change while it runs, for the user data of the head's VM.

Azure limits it to 64 KB ("User Data for Azure Virtual Machine"), without saying whether before or
after base64: the longer one counts here.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_init.nodes import node_values
from cloud_init.render import AUTOSCALER_RUN_CONFIG, MAX_USER_DATA_BYTES
from cloud_init.values import AzureFacts
from sunspot.errors import UsageError
from sunspot.idle import Idle
from sunspot.node import autoscaler_config
from sunspot.node.azure import record
from sunspot.node.azure.live import LiveSettings, encoded
from sunspot.ray import ports, start
from sunspot.ray.start import NodeMarket
from sunspot.spec_values import HEAD
from sunspot.targets.azure import by_hand
from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.plan import AzurePlan, Pool

MACHINES = "sunspot.node.azure.scale_sets.create"
LIVE = "sunspot.node.azure.live.create"
JOINS = "sunspot.node.azure.joining.create"
PRIORITIES: dict[NodeMarket, int] = {
    "spot": autoscaler_config.SPOT_PRIORITY,
    "on-demand": autoscaler_config.ON_DEMAND_PRIORITY,
}


def live_settings(
    plan: AzurePlan, facts: AzureFacts[str], running: LiveSettings | None = None
) -> str:
    """The settings as base64, as Azure has them.

    Args:
        plan: what the stack file says.
        facts: what only Azure knows.
        running: the settings of the cluster that runs, whose sizes by hand stay; None without one.

    Raises:
        UsageError: they are larger than Azure accepts.
    """
    settings = _settings(plan, plan.pools, facts)
    groups = plan.cluster.scaling_groups
    data = encoded(by_hand.carried(settings, running, groups).text())
    if len(data) > MAX_USER_DATA_BYTES:
        fit = next(
            count
            for count in reversed(range(len(plan.pools)))
            if len(_encoded(plan, plan.pools[:count], facts)) <= MAX_USER_DATA_BYTES
        )
        raise UsageError(
            f"{plan.stack}: the settings of {len(plan.pools)} node types have {len(data)} bytes, "
            f"and Azure accepts at most {MAX_USER_DATA_BYTES} as user data: {fit} node types fit "
            "(a group has one, or two if it falls back to on-demand): use fewer groups"
        )
    return data


def _encoded(plan: AzurePlan, pools: Sequence[Pool], facts: AzureFacts[str]) -> str:
    return encoded(_settings(plan, pools, facts).text())


def _settings(plan: AzurePlan, pools: Sequence[Pool], facts: AzureFacts[str]) -> LiveSettings:
    autoscaler = _autoscaler(plan, pools, facts) if plan.autoscaled else None
    idle = None if plan.idle is None else _idle(plan, plan.idle)
    return LiveSettings(
        autoscaler=autoscaler,
        prices=_prices(plan.head, pools),
        idle=idle,
        boots={pool.node_type: node_values(plan, pool, facts).boot for pool in pools},
    )


def _idle(plan: AzurePlan, given: Idle) -> dict[str, object]:
    """The policy for when nothing uses the cluster, with what the head needs to follow it."""
    fixed = [pool.scale_set for pool in plan.pools if not pool.elastic]
    return {**given.model_dump(mode="json"), "stack": plan.stack, "fixed": fixed}


def _prices(head: Machine, pools: Sequence[Pool]) -> dict[str, float]:
    """The catalogue's USD an hour by node type; without types whose price is unknown."""
    types: list[tuple[str, Machine, NodeMarket]] = [
        (HEAD, head, "on-demand"),
        *((pool.node_type, pool.machine, pool.market) for pool in pools),
    ]
    return {
        name: price
        for name, machine, market in types
        if (price := machine.size.price.usd(spot=market == "spot")) is not None
    }


def _autoscaler(
    plan: AzurePlan, pools: Sequence[Pool], facts: AzureFacts[str]
) -> dict[str, object]:
    """The config of Ray's autoscaler, which has only the elastic pools."""
    elastic = [pool for pool in pools if pool.elastic]
    head = autoscaler_config.node_type(
        resources=plan.head.resources.amounts(),
        labels=start.labels(HEAD, "on-demand"),
        priority=PRIORITIES["on-demand"],
    )
    return autoscaler_config.config(
        name=plan.cluster_name,
        machines=MACHINES,
        settings={
            "live": LIVE,
            "joins": JOINS,
            "record": record.FOLDER,
            "gcs": f"{facts.head_address}:{ports.get('gcs').number}",
            "subscription_id": facts.subscription_id,
            "resource_group": facts.resource_group,
            "identity_client_id": facts.identity_client_id,
            "head": plan.head_name,
            "head_type": HEAD,
            "scale_sets": {pool.node_type: pool.scale_set for pool in elastic},
            "maximums": {pool.node_type: pool.maximum for pool in elastic},
            "fixed": [pool.node_type for pool in pools if not pool.elastic],
            # So that another image lifts the pause of a group that could not boot from this one.
            "image": node_values(plan, None, facts).image,
        },
        config_file=AUTOSCALER_RUN_CONFIG,
        node_types={HEAD: head, **{pool.node_type: _node_type(pool) for pool in elastic}},
        head_type=HEAD,
        twins={pool.node_type: pool.twin for pool in elastic if pool.twin},
    )


def _node_type(pool: Pool) -> dict[str, object]:
    return autoscaler_config.node_type(
        resources=pool.machine.resources.amounts(),
        labels=start.labels(pool.node_type, pool.market),
        minimum=pool.minimum,
        maximum=pool.maximum,
        priority=PRIORITIES[pool.market],
    )
