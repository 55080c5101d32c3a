"""What cloud_init renders for a node, once Azure has returned addresses and names."""

import base64

import pulumi

from cloud_init.live import live_settings
from cloud_init.nodes import node_values
from cloud_init.render import render
from cloud_init.values import AzureFacts
from sunspot.node.azure.live import LiveSettings
from sunspot.targets.azure.plan import AzurePlan, Pool


def user_data(
    plan: AzurePlan, pool: Pool | None, facts: AzureFacts[pulumi.Input[str]]
) -> pulumi.Output[str]:
    """What a pool's workers, or the head, boot from (`customData`), as Azure has it: base64."""
    return pulumi.Output.all(**vars(facts)).apply(
        lambda known: _encoded(plan, pool, AzureFacts(**known))
    )


def live_data(
    plan: AzurePlan,
    facts: AzureFacts[pulumi.Input[str]],
    running: pulumi.Output[LiveSettings | None],
) -> pulumi.Output[str]:
    """What the cluster may change while it runs (`userData` of the head's VM), as base64."""
    return pulumi.Output.all(running, pulumi.Output.all(**vars(facts))).apply(
        lambda known: live_settings(plan, AzureFacts(**known[1]), known[0])
    )


def _encoded(plan: AzurePlan, pool: Pool | None, facts: AzureFacts[str]) -> str:
    return base64.b64encode(render(node_values(plan, pool, facts), compress=True)).decode("ascii")
