"""The report of a first contact, which can be sent to the project."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sunspot
from sunspot.node.files import write_private
from sunspot.targets.azure import images
from sunspot.targets.azure.first_contact.shortening import shortened
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.settings import UNASSIGNED
from sunspot.targets.contacting import Trial
from sunspot.targets.protocol import Progress
from sunspot.targets.records import state_directory

# Shorter ones are words, or numbers, that also mean something else.
MIN_NAME = 3


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report's file, the plan of the small stack that it is about, and the project's folder."""

    file: Path
    plan: AzurePlan
    folder: Path

    def write(self, trials: Sequence[Trial], *, ended: str, note: Progress) -> dict[str, Any]:
        """Writes the report, readable only by its owner, and returns it.

        A full disk is told, and is no error: the cluster must be taken away all the same.

        Args:
            trials: the steps so far.
            ended: how it ended: "no" while it goes on, "whole", "interrupted", "cut off".
            note: called with what keeps the report from being written.
        """
        steps = [asdict(one) for one in self.shown(trials)]
        document = {**_place(self.plan), "ended": ended, "steps": steps}
        try:
            write_private(self.file, json.dumps(document, indent=2) + "\n")
        except OSError as error:
            note(f"The report cannot be written to {self.file}: {error.strerror or error}")
        return document

    def shown(self, trials: Sequence[Trial]) -> list[Trial]:
        """The steps as the report has them."""
        names, folders = _names(self.plan), (self.folder, state_directory())
        return [replace(one, detail=shortened(one.detail, names, folders)) for one in trials]


def _place(plan: AzurePlan) -> dict[str, Any]:
    """What the steps were tried on."""
    access = plan.access
    return {
        "sunspot": sunspot.__version__,
        "ray": plan.cluster.ray_version,
        "day": datetime.now(UTC).date().isoformat(),
        "region": plan.location,
        "size": plan.head.size.name,
        "access": {
            "public_ip": access.public_ip,
            "bastion": access.bastion,
            "custom_roles": access.custom_roles,
        },
        "own_network": plan.subnet_ids is None,
        "registry": plan.has_registry,
        "builds_image": plan.build is not None,
        "own_vm_image": plan.vm_image_id is not None,
    }


def _names(plan: AzurePlan) -> list[str]:
    """The values of the user's own tags, with the owner, the user's name and that of an image."""
    ours = {"project", "stack", "made-by"}
    values = [value for tag, value in plan.tags.items() if tag not in ours]
    values += [Path.home().name, *_own_image(plan)]
    return [one for one in values if len(one) >= MIN_NAME and one != UNASSIGNED]


def _own_image(plan: AzurePlan) -> list[str]:
    """The repository of the user's own image; none if it is Ray's."""
    _, rest = images.host_and_rest(plan.head.image or "")
    repository = re.split("[:@]", rest)[0]
    return [] if repository.startswith("rayproject/") else [repository]
