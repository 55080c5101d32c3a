"""The workers' right to delete themselves, when they have been without their head for too long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.roles import LEAVER, LEAVING, assign_custom, define
from sunspot.targets.azure.tree import Resource


@dataclass(frozen=True, kw_only=True)
class Leaving:
    """The workers' principal, and the ids of what they delete.

    `scale_sets` are by the keys of their role assignments; `after` is created before a new role is
    assigned, and `hooks` are those of `until_known`.
    """

    principal_id: pulumi.Input[str]
    group_id: pulumi.Input[str]
    group_name: pulumi.Input[str]
    scale_sets: Mapping[str, pulumi.Input[str]]
    after: Sequence[pulumi.Resource]
    hooks: pulumi.ResourceHookBinding | None


def let_workers_leave(declared: Resource, leaving: Leaving, *, parent: pulumi.Resource) -> None:
    """Lets the workers delete machines of the cluster's worker sets, and create none.

    All workers have one identity, so a worker could name another one.
    """
    if not leaving.scale_sets:
        return
    leaver, machines = (
        define(
            declared[f"role-{role.key}"],
            role,
            scopes=[leaving.group_id],
            owner=leaving.group_name,
            parent=parent,
        )
        for role in (LEAVER, LEAVING)
    )
    grants = {
        **{key: (leaver, scale_set) for key, scale_set in leaving.scale_sets.items()},
        "workers-delete-machines": (machines, leaving.group_id),
    }
    opts = pulumi.ResourceOptions(depends_on=leaving.after, hooks=leaving.hooks)
    for key, (role, scope) in grants.items():
        assign_custom(
            declared[key],
            principal_id=leaving.principal_id,
            role=role,
            scope=scope,
            parent=parent,
            opts=opts,
        )
