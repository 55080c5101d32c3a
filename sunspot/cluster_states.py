"""The states of a `RayCluster`, which may follow which, and the errors of its life."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sunspot.errors import SunspotError


class ResourceState(enum.Enum):
    """The states of a cluster, named as in Sematic."""

    CREATED = "CREATED"
    ACTIVATING = "ACTIVATING"
    ACTIVE = "ACTIVE"
    DEACTIVATING = "DEACTIVATING"
    DEACTIVATED = "DEACTIVATED"
    FORCE_KILLED = "FORCE_KILLED"

    def is_terminal(self) -> bool:
        """Whether no other state can follow."""
        return self in {ResourceState.DEACTIVATED, ResourceState.FORCE_KILLED}


@dataclass(frozen=True, kw_only=True)
class ResourceStatus:
    """A state of a cluster, and the message for people that came with it."""

    state: ResourceState
    message: str


_S = ResourceState
ALLOWED_TRANSITIONS: Mapping[ResourceState, frozenset[ResourceState]] = {
    _S.CREATED: frozenset({_S.ACTIVATING, _S.DEACTIVATING, _S.DEACTIVATED, _S.FORCE_KILLED}),
    # ACTIVE -> ACTIVE is a new message: a node was lost.
    _S.ACTIVATING: frozenset({_S.ACTIVATING, _S.ACTIVE, _S.DEACTIVATING, _S.FORCE_KILLED}),
    _S.ACTIVE: frozenset({_S.ACTIVE, _S.DEACTIVATING, _S.FORCE_KILLED}),
    _S.DEACTIVATING: frozenset({_S.DEACTIVATING, _S.DEACTIVATED, _S.FORCE_KILLED}),
    _S.DEACTIVATED: frozenset(),
    _S.FORCE_KILLED: frozenset(),
}

StateCallback = Callable[[ResourceState, str], None]


class IllegalStateTransitionError(SunspotError):
    """A cluster cannot go from its state to the requested one."""


class ExternalResourceError(SunspotError):
    """The cluster could not be activated or deactivated; the message ends with the cause."""
