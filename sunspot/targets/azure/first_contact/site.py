"""The cluster of a first contact, and the ways to it: its head, and Azure by the user's login."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sunspot.stack import Stack
from sunspot.targets.azure.doctor import clients, login
from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.first_contact import head_jobs
from sunspot.targets.azure.first_contact.head_jobs import HeadJobs
from sunspot.targets.azure.first_contact.small_stack import GROUP
from sunspot.targets.azure.first_contact.steps import NotTriedError
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.protocol import Progress

if TYPE_CHECKING:
    from sunspot.targets.azure.target import AzureTarget


@dataclass(frozen=True, kw_only=True)
class Site:
    """The small cluster.

    Attributes:
        place: the azure target.
        stack: the small stack.
        plan: its plan.
        folder: the project's folder.
        progress: called with what is waited for.
    """

    place: AzureTarget
    stack: Stack
    plan: AzurePlan
    folder: Path
    progress: Progress

    @property
    def name(self) -> str:
        """The stack's name."""
        return self.stack.name

    @property
    def group(self) -> str:
        """The name of the resource group."""
        return str(self.place.outputs(self.name)["resource_group"])

    @property
    def scale_set(self) -> str:
        """The name of the workers' scale set."""
        return self.plan.pools[0].scale_set

    @cached_property
    def jobs(self) -> HeadJobs:
        """The probe on the head."""
        connect = functools.partial(self.place.handle, self.name)
        return HeadJobs(connect, GROUP, head_jobs.CONFIG)

    @cached_property
    def azure(self) -> Clients:
        """Azure, by the user's login.

        Raises:
            NotTriedError: the login is of a kind that only Pulumi uses.
            SunspotError: Azure's clients are not installed.
        """
        known = login.find(self.name, self.folder)
        if known.kind is None or known.subscription is None:
            raise NotTriedError("this kind of login is only for Pulumi: use `az login`")
        endpoints = self.place.endpoints
        return Clients(
            credential=clients.credential(known.kind, known.subscription, endpoints),
            subscription=known.subscription,
            endpoints=endpoints,
        )
