"""The user data of a node: what cloud_init renders, once Azure has returned addresses and names."""

import base64

import pulumi

from cloud_init.nodes import node_values
from cloud_init.render import render
from cloud_init.values import AzureFacts
from sunspot.targets.azure.plan import AzurePlan, Pool


def user_data(
    plan: AzurePlan, pool: Pool | None, facts: AzureFacts[pulumi.Input[str]]
) -> pulumi.Output[str]:
    """The user data of a pool's workers, or of the head, as Azure expects it: base64 text."""
    return pulumi.Output.all(**vars(facts)).apply(
        lambda known: _encoded(plan, pool, AzureFacts(**known))
    )


def _encoded(plan: AzurePlan, pool: Pool | None, facts: AzureFacts[str]) -> str:
    return base64.b64encode(render(node_values(plan, pool, facts), compress=True)).decode("ascii")
