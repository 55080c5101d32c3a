"""Where a stack's resources go, and the tags that all of them carry."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import pulumi

NOT_YET = "not-known-yet"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The resource group, the region and the tags of everything in it."""

    resource_group: pulumi.Output[str]
    location: str
    tags: Mapping[str, str]

    def of_group(self, group: str) -> Self:
        """This place with the tag of one group of nodes."""
        return replace(self, tags={**self.tags, "group": group})


def answered(text: str | None, what: str) -> str:
    """The value that Azure returned. A preview, which may have none yet, gets a stand-in."""
    if text is not None:
        return text
    if pulumi.runtime.is_dry_run():
        return NOT_YET
    raise ValueError(f"Azure did not return {what}")
