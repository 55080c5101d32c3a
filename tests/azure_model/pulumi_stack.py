"""Pulumi's side of one stack, without its engine."""

from collections.abc import Callable, Sequence
from typing import Any

from azure_model.pulumi_state import account, exported, group, machine
from sunspot.targets.azure.automation import StackState, parse_state
from sunspot.targets.azure.replacing import Replacement


class FakeStack:
    """What `up` makes and `destroy` leaves, and what was called.

    `made` are the resources of the next `up`, `now` those that are there, None before the first.
    `error` is raised instead of an answer, `error_of_up` only by `up`. `plan` is what the next `up`
    would replace.
    """

    def __init__(self, outputs: dict[str, Any]) -> None:
        self.outputs = outputs
        self.made: tuple[dict[str, Any], ...] = (group(), machine(), account())
        self.now: tuple[dict[str, Any], ...] | None = None
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.error_of_up: Exception | None = None
        self.plan: tuple[Replacement, ...] = ()

    def state(self) -> StackState | None:
        self.calls.append("state")
        if self.error:
            raise self.error
        return None if self.now is None else parse_state(exported(*self.now, **self.outputs))

    def up(self, progress: Callable[[str], None]) -> StackState:
        self.calls.append("up")
        if error := self.error or self.error_of_up:
            raise error
        self.now = self.made
        progress("created VirtualMachine sunspot-x-head-vm")
        state = self.state()
        assert state is not None
        return state

    def replacements(self) -> tuple[Replacement, ...]:
        self.calls.append("preview")
        return self.plan

    def unprotect(self, urns: Sequence[str]) -> None:
        self.calls += [f"unprotect {urn.rpartition('::')[2]}" for urn in urns]
        self.now = tuple(
            {**one, "protect": one["protect"] and one["urn"] not in urns} for one in self.now or ()
        )

    def destroy(self, progress: Callable[[str], None], *, delete_storage: bool) -> None:
        progress("deleting")
        self.calls.append(f"destroy {delete_storage}")
        protected = [one for one in self.now or () if one["protect"]]
        self.now = () if delete_storage or not protected else (group(), *protected)

    def remove(self) -> None:
        self.calls.append("remove")
        self.now = None
