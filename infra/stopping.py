"""The head's right to deallocate itself, when nothing uses the cluster (`sunspot:idle`)."""

from dataclasses import dataclass

import pulumi

from infra.roles import (
    STOPPER,
    VIRTUAL_MACHINE_CONTRIBUTOR,
    assign,
    assign_custom,
    define,
)
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.tree import ROLE_STOPPER, STOPS, Resource


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The head's principal, its VM, and the hooks of `until_known`."""

    principal_id: pulumi.Input[str]
    group_id: pulumi.Input[str]
    group_name: pulumi.Input[str]
    vm_id: pulumi.Input[str]
    hooks: pulumi.ResourceHookBinding | None


def let_head_stop(
    declared: Resource, plan: AzurePlan, stopping: Stopping, *, parent: pulumi.Resource
) -> None:
    """Lets the head deallocate its own VM, and no other, if the stack wants that."""
    assignment = declared.get(STOPS)
    if assignment is None:
        return
    if not plan.access.custom_roles:
        assign(
            assignment,
            principal_id=stopping.principal_id,
            role=VIRTUAL_MACHINE_CONTRIBUTOR,
            scope=stopping.vm_id,
            parent=parent,
        )
        return
    role = define(
        declared[ROLE_STOPPER],
        STOPPER,
        scopes=[stopping.group_id],
        owner=stopping.group_name,
        parent=parent,
    )
    assign_custom(
        assignment,
        principal_id=stopping.principal_id,
        role=role,
        scope=stopping.vm_id,
        parent=parent,
        opts=pulumi.ResourceOptions(hooks=stopping.hooks),
    )
