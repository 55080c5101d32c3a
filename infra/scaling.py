"""The head's rights to change the scale sets that it resizes, by custom or by built-in roles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.roles import (
    MACHINES,
    MANAGED_IDENTITY_OPERATOR,
    SCALER,
    VIRTUAL_MACHINE_CONTRIBUTOR,
    assign,
    assign_custom,
    define,
    group_of,
)
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.tree import Resource


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The head's principal, and the ids of what it needs to grow a set.

    `rules_id` is None if the subnet has the rules. `scale_sets` has those that the head resizes, by
    the keys of their role assignments, `after` what is created before a new role is assigned, and
    `hooks` those of `until_known`.
    """

    principal_id: pulumi.Input[str]
    group_id: pulumi.Input[str]
    group_name: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    workers_identity_id: pulumi.Input[str]
    rules_id: pulumi.Input[str] | None
    scale_sets: Mapping[str, pulumi.Input[str]]
    after: Sequence[pulumi.Resource]
    hooks: pulumi.ResourceHookBinding | None


def let_head_scale(
    declared: Resource, plan: AzurePlan, scaling: Scaling, *, parent: pulumi.Resource
) -> None:
    """Lets the head change the scale sets that it resizes, and only these, if there are any.

    A scale set that grows creates machines with a NIC and an identity, and Azure checks that
    the caller may create and use those too.
    """
    if not scaling.scale_sets:
        return
    if plan.access.custom_roles:
        _by_custom_roles(declared, plan, scaling, parent=parent)
    else:
        _by_built_in_roles(declared, scaling, parent=parent)


def _by_custom_roles(
    declared: Resource, plan: AzurePlan, scaling: Scaling, *, parent: pulumi.Resource
) -> None:
    groups = [scaling.group_id]
    if plan.subnet_ids is not None:
        groups.append(group_of(plan.subnet_ids.workers))
    scaler, machines = (
        define(
            declared[f"role-{role.key}"],
            role,
            scopes=groups,
            owner=scaling.group_name,
            parent=parent,
        )
        for role in (SCALER, MACHINES)
    )
    grants = {
        **{key: (scaler, scale_set) for key, scale_set in scaling.scale_sets.items()},
        "head-joins-workers": (scaler, scaling.subnet_id),
        "head-gives-identity": (scaler, scaling.workers_identity_id),
        "head-manages-machines": (machines, scaling.group_id),
    }
    if scaling.rules_id is not None:
        grants["head-uses-rules"] = (scaler, scaling.rules_id)
    # The roles are defined early and assigned late, when Azure has probably replicated them.
    opts = pulumi.ResourceOptions(depends_on=scaling.after, hooks=scaling.hooks)
    for key, (role, scope) in grants.items():
        assign_custom(
            declared[key],
            principal_id=scaling.principal_id,
            role=role,
            scope=scope,
            parent=parent,
            opts=opts,
        )


def _by_built_in_roles(declared: Resource, scaling: Scaling, *, parent: pulumi.Resource) -> None:
    """The narrowest built-in roles that have these actions, at the narrowest scopes.

    Source: Microsoft's pages "Azure built-in roles for Compute" and "... for Identity". The first
    one also has subnets/join and networkSecurityGroups/join, so Network Contributor is not needed.
    """
    grants = {
        "head-manages-machines": (VIRTUAL_MACHINE_CONTRIBUTOR, scaling.group_id),
        "head-gives-identity": (MANAGED_IDENTITY_OPERATOR, scaling.workers_identity_id),
        "head-joins-workers": (VIRTUAL_MACHINE_CONTRIBUTOR, scaling.subnet_id),
    }
    for key, (role, scope) in grants.items():
        if (assignment := declared.get(key)) is not None:
            assign(
                assignment,
                principal_id=scaling.principal_id,
                role=role,
                scope=scope,
                parent=parent,
            )
