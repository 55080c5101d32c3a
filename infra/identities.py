"""Two identities: the head's and the workers'."""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import managedidentity

from infra.place import Place
from sunspot.targets.azure.tree import Resource


@dataclass(frozen=True, kw_only=True)
class IdentitiesArgs:
    """Where the identities are made."""

    place: Place


class Identities(pulumi.ComponentResource):
    """The identities of the machines. Neither has any permissions at first."""

    head: managedidentity.UserAssignedIdentity
    workers: managedidentity.UserAssignedIdentity

    def __init__(
        self, declared: Resource, args: IdentitiesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        self.head = _create_identity(declared["head"], args.place, parent=self)
        self.workers = _create_identity(declared["workers"], args.place, parent=self)
        self.register_outputs({"headId": self.head.id, "workersId": self.workers.id})


def _create_identity(
    declared: Resource, place: Place, *, parent: pulumi.Resource
) -> managedidentity.UserAssignedIdentity:
    return managedidentity.UserAssignedIdentity(
        declared.name,
        resource_group_name=place.resource_group,
        location=place.location,
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )
