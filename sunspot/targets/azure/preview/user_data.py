"""The user data of a planned node, as a preview shows it without Pulumi.

It is rendered as in the program of `infra/`, from stand-ins for the values that Azure will return.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_init.nodes import node_values
from cloud_init.render import MAX_USER_DATA_BYTES, render
from cloud_init.values import TOKEN_SECRET, AzureFacts
from sunspot.errors import UsageError
from sunspot.spec_values import HEAD
from sunspot.targets.azure.plan import AzurePlan, Pool

WORKER = "worker"


@dataclass(frozen=True, kw_only=True)
class UserData:
    """A node type's user data as readable text, and its size as Azure gets it (compressed)."""

    node_type: str
    text: str
    bytes_sent: int
    bytes_allowed: int


def user_data(plan: AzurePlan, node: str) -> UserData:
    """The user data of a node: "head", "worker", or the name of a group or node type.

    Raises:
        UsageError: the name means none of the plan's nodes, or several.
    """
    values = node_values(plan, _chosen(plan, node), stand_ins(plan))
    return UserData(
        node_type=values.group,
        text=render(values, compress=False).decode(),
        bytes_sent=len(render(values, compress=True)),
        bytes_allowed=MAX_USER_DATA_BYTES,
    )


def stand_ins(plan: AzurePlan) -> AzureFacts[str]:
    """Stand-ins for the values that Azure returns only once the resources exist."""
    built, addresses = plan.build is not None, plan.addresses
    return AzureFacts(
        built_image="<registry>/sunspot/ray@<digest>" if built else None,
        registry="<registry>" if plan.has_registry else None,
        # Without spaces: it becomes part of a flag.
        head_address="<address-of-the-head>" if addresses is None else addresses.head_address,
        vault_url="<address of the vault>",
        token_secret=TOKEN_SECRET,
        storage_url="<address of the storage>",
        subscription_id="<subscription>",
        resource_group="<resource group>",
        identity_client_id="<client id of the identity>",
    )


def _chosen(plan: AzurePlan, node: str) -> Pool | None:
    if node == HEAD:
        return None
    found = [pool for pool in plan.pools if node in (WORKER, pool.group, pool.node_type)]
    exact = [pool for pool in found if pool.node_type == node]
    chosen = exact or found
    if len(chosen) == 1:
        return chosen[0]
    known = ", ".join([HEAD, *(pool.node_type for pool in plan.pools)])
    what = "means several nodes" if chosen else "is not a node of this stack"
    raise UsageError(f"{node!r} {what}: choose one of {known}")
