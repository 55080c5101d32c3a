"""The nodes of a planned cluster, as the values that the renderer takes.

Free of side effects: the program of `infra/` and a preview without Pulumi both start from here.
"""

from __future__ import annotations

from dataclasses import replace

from cloud_init.boots import boot_of
from cloud_init.values import AzureFacts, NodeValues
from sunspot import monitoring
from sunspot.spec_values import HEAD
from sunspot.targets.azure import images
from sunspot.targets.azure.plan import AzurePlan, Pool


def node_values(plan: AzurePlan, pool: Pool | None, facts: AzureFacts[str]) -> NodeValues:
    """The values of a worker of the pool, or of the head where `pool` is None."""
    values = _values(plan, pool, facts)
    if pool is None:
        return values
    return replace(values, boot=boot_of(values, pool.machine, plan.ssh_public_key))


def _values(plan: AzurePlan, pool: Pool | None, facts: AzureFacts[str]) -> NodeValues:
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
        autoscaled=plan.autoscaled if pool is None else pool.elastic,
        orphan_after_s=None if pool is None else plan.orphan_after_s,
        ray_version=plan.cluster.ray_version,
        prometheus_image=_pulled(monitoring.PROMETHEUS, plan, facts),
        grafana_image=_pulled(monitoring.GRAFANA, plan, facts),
    )


def _pulled(reference: str, plan: AzurePlan, facts: AzureFacts[str]) -> str:
    return images.pulled(reference, plan.copies, facts.registry)
