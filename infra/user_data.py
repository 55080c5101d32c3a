"""The user data of a node: what cloud_init renders, once Azure has told addresses and names."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from sunspot.targets.azure.plan import AzurePlan, Pool


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What every node of a cluster is told about the rest of it.

    `built_image` is the image that the stack builds, None where its machines name their own.
    """

    built_image: pulumi.Input[str] | None
    registry: pulumi.Input[str] | None
    head_address: pulumi.Input[str]
    vault_url: pulumi.Input[str]
    token_secret: str
    storage_url: pulumi.Input[str]
    subscription_id: pulumi.Input[str]
    resource_group: pulumi.Input[str]


def user_data(
    plan: AzurePlan,
    pool: Pool | None,
    *,
    identity_client_id: pulumi.Input[str],
    surroundings: Surroundings,
) -> pulumi.Output[str]:
    """The user data of a pool's workers, or of the head, as Azure takes it: base64 text."""
    return pulumi.Output.all(
        image=surroundings.built_image,
        registry=surroundings.registry,
        head_address=surroundings.head_address,
        vault_url=surroundings.vault_url,
        token_secret=surroundings.token_secret,
        storage_url=surroundings.storage_url,
        subscription_id=surroundings.subscription_id,
        resource_group=surroundings.resource_group,
        identity_client_id=identity_client_id,
    ).apply(lambda known: base64.b64encode(_render(plan, pool, known)).decode("ascii"))


def _render(plan: AzurePlan, pool: Pool | None, known: Mapping[str, Any]) -> bytes:
    from cloud_init.nodes import node_values
    from cloud_init.render import render

    return render(node_values(plan, pool, known), compress=True)
