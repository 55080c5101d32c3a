"""What a target does only when a person agrees to it, as an ability of its own."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sunspot.errors import UsageError
from sunspot.targets.protocol import Progress, Removal, Target


@runtime_checkable
class ReplacesHeads(Protocol):
    """An `up` may have to replace the head of a cluster that is up, and refuses to."""

    def replacing_head(self) -> Target:
        """This target, whose `up` replaces the head where it has to."""
        ...


@runtime_checkable
class DrainsGroups(Protocol):
    """An `up` waits until workers that leave, or that it replaces, have ended their work."""

    def removing_now(self) -> Target:
        """This target, whose `up` deletes them with what runs on them."""
        ...


class LeftBehindError(UsageError):
    """Something of a cluster exists that cannot be taken down in order. Nothing was changed.

    Attributes:
        question: what to ask a person before it is deleted all the same.
        has_results: whether results are in it that `down` would have kept.
    """

    def __init__(self, message: str, *, question: str, has_results: bool) -> None:
        super().__init__(message)
        self.question = question
        self.has_results = has_results


@runtime_checkable
class DeletesLeftBehind(Protocol):
    """What is left of a cluster that cannot be taken down in order can be deleted as a whole."""

    def delete_left_behind(self, name: str, progress: Progress) -> Removal:
        """Deletes it, results included, and then looks for what is left of it.

        Raises:
            NotUpError: there is no record of such a cluster.
        """
        ...
