"""A stack on Azure, through Pulumi's Automation API.

It runs the project's own program (`Pulumi.yaml`, `__main__.py`) in the project's folder. So
`sunspot up` and plain `pulumi up` are equivalent: the same program, environment, settings and
state, and either can continue where the other stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi import automation as auto

from sunspot.errors import SunspotError
from sunspot.targets.azure.engine import Pulumi
from sunspot.targets.azure.errors import is_being_written, is_freed_later, plain, problem, said
from sunspot.targets.azure.replacing import IRREPLACEABLE, Plan, Replacement
from sunspot.targets.azure.updating import BusyError
from sunspot.targets.protocol import Lasting, Progress, silent

# A machine's NIC is freed 180 s after the machine is gone (see is_freed_later).
DESTROY_AGAIN_S = 60.0
DESTROY_TRIES = 5

# Where another command is just writing the state.
READ_TRIES, READ_AGAIN_S = 4, 0.5

STACK_TYPE = "pulumi:pulumi:Stack"
MACHINE_TYPE = "azure-native:compute:VirtualMachine"
GROUP_TYPE = "azure-native:resources:ResourceGroup"
AKS_TYPE = "azure-native:containerservice:ManagedCluster"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One Azure resource in a stack's state. `id` is its ARM id, `urn` Pulumi's."""

    type: str
    urn: str
    id: str
    protected: bool
    outputs: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Pulumi's name."""
        return self.urn.rpartition("::")[2]


@dataclass(frozen=True, kw_only=True)
class StackState:
    """A stack's state: its outputs, and its Azure resources."""

    outputs: Mapping[str, Any]
    resources: tuple[Resource, ...]

    @property
    def head(self) -> Resource | None:
        """The head's VM, the only one outside a scale set."""
        return next((one for one in self.resources if one.type == MACHINE_TYPE), None)

    @property
    def is_aks(self) -> bool:
        """Whether it has an AKS cluster, which only Pulumi deletes."""
        return any(one.type == AKS_TYPE for one in self.resources)

    @property
    def irreplaceable(self) -> tuple[Resource, ...]:
        """The head's VM, and the disk with the cluster's state if that is a resource."""
        return tuple(one for one in self.resources if one.type in IRREPLACEABLE)

    @property
    def protected_head(self) -> tuple[str, ...]:
        """The URNs of those of them that Pulumi protects."""
        return self.protected_of(*IRREPLACEABLE)

    def protected_of(self, *types: str) -> tuple[str, ...]:
        """The URNs of the resources of these types that Pulumi protects."""
        return tuple(one.urn for one in self.resources if one.type in types and one.protected)

    @property
    def group_id(self) -> str | None:
        """The ARM id of the resource group."""
        return next((one.id for one in self.resources if one.type == GROUP_TYPE), None)


@dataclass(frozen=True)
class AzureStack:
    """The stack `name` of the project in `folder`."""

    name: str
    folder: Path
    command: Pulumi
    sleep: Callable[[float], None] = time.sleep

    def state(self) -> StackState | None:
        """The stack's state; None if the backend does not have the stack."""
        try:
            exported = self._exported()
        except auto.StackNotFoundError:
            return None
        except auto.CommandError as error:
            raise problem(self.name, said(error)) from error
        return parse_state(json.loads(exported))

    def _exported(self) -> str:
        """What `pulumi stack export` prints."""
        command = ("stack", "export", "--stack", self.name)
        for _ in range(READ_TRIES - 1):
            try:
                return self._run(*command)
            except auto.CommandError as error:
                if not is_being_written(said(error)):
                    raise
                self.sleep(READ_AGAIN_S)
        return self._run(*command)

    def up(self, progress: Progress) -> StackState:
        """Creates or updates everything that the stack describes.

        Raises:
            BusyError: another command is doing so.
            SunspotError: Pulumi or Azure refused.
        """
        watcher = Watcher(progress)
        try:
            with self.command.holding_interrupts():
                stack = auto.create_or_select_stack(
                    self.name,
                    work_dir=str(self.folder),
                    opts=auto.LocalWorkspaceOptions(pulumi_command=self.command),
                )
                stack.up(on_event=watcher)
        except auto.ConcurrentUpdateError as error:
            raise BusyError(str(problem(self.name, said(error)))) from error
        except auto.CommandError as error:
            raise problem(self.name, *(watcher.errors or [said(error)])) from error
        state = self.state()
        if state is None:
            raise SunspotError(f"stack {self.name!r} disappeared just after it was brought up")
        return state

    def replacements(self) -> tuple[Replacement, ...]:
        """What `up` would replace, by a preview. The stack must exist; nothing changes.

        Raises:
            SunspotError: the preview failed, and not only on the head's protection.
        """
        plan, watcher = Plan(), Watcher(silent)

        def hear(event: auto.EngineEvent) -> None:
            plan(event)
            watcher(event)

        try:
            with self.command.holding_interrupts():
                self._selected().preview(on_event=hear)
        except auto.CommandError as error:
            found = plan.replacements(watcher.errors)
            if any(one.is_irreplaceable for one in found):
                return found  # what is protected makes the preview fail
            raise problem(self.name, *(watcher.errors or [said(error)])) from error
        return plan.replacements()

    def unprotect(self, urns: Sequence[str]) -> None:
        """Lets Pulumi delete these resources, until the next `up` protects them again."""
        for urn in urns:
            self._edit_state("unprotect", urn)

    def destroy(self, progress: Progress, *, delete_storage: bool) -> None:
        """Deletes everything; what is protected only with `delete_storage`."""
        if delete_storage:
            self._edit_state("unprotect", "--all")
        for tries_left in reversed(range(DESTROY_TRIES)):
            errors = self._destroy_once(progress, exclude_protected=not delete_storage)
            if not errors:
                return
            if not tries_left or not any(map(is_freed_later, errors)):
                raise problem(self.name, *errors)
            progress(
                f"Azure still holds a NIC of a deleted machine: again in {DESTROY_AGAIN_S:.0f} s"
            )
            self.sleep(DESTROY_AGAIN_S)

    def remove(self) -> None:
        """Removes a stack without resources from Pulumi's backend, and its stack file.

        A stack that is not there is not an error.
        """
        try:
            self._run("stack", "rm", "--yes", "--stack", self.name)
        except auto.StackNotFoundError:
            return
        except auto.CommandError as error:
            raise problem(self.name, said(error)) from error

    def _edit_state(self, *arguments: str) -> None:
        try:
            self._run("state", *arguments, "--yes", "--stack", self.name)
        except auto.CommandError as error:
            raise problem(self.name, said(error)) from error

    def _destroy_once(self, progress: Progress, *, exclude_protected: bool) -> list[str]:
        """Runs `pulumi destroy`, which continues where an earlier one stopped; its errors."""
        watcher = Watcher(progress)
        try:
            with self.command.holding_interrupts():
                self._selected().destroy(on_event=watcher, exclude_protected=exclude_protected)
        except auto.CommandError as error:
            return watcher.errors or [said(error)]
        return []

    def _selected(self) -> auto.Stack:
        return auto.select_stack(
            self.name,
            work_dir=str(self.folder),
            opts=auto.LocalWorkspaceOptions(pulumi_command=self.command),
        )

    def _run(self, *arguments: str) -> str:
        environment = {"PULUMI_SKIP_UPDATE_CHECK": "true"}
        return self.command.run(list(arguments), str(self.folder), environment).stdout


def parse_state(exported: Mapping[str, Any]) -> StackState:
    """The state from the output of `pulumi stack export`."""
    listed = exported.get("deployment", {}).get("resources") or []
    outputs = next((one.get("outputs", {}) for one in listed if one["type"] == STACK_TYPE), {})
    return StackState(
        outputs=outputs,
        resources=tuple(
            Resource(
                type=one["type"],
                urn=one["urn"],
                id=one["id"],
                protected=bool(one.get("protect")),
                outputs=one.get("outputs", {}),
            )
            for one in listed
            if one.get("custom") and one.get("id") and one["type"].startswith("azure-native:")
        ),
    )


# Progress


_DOING = {
    "create": ("creating", "created"),
    "update": ("updating", "updated"),
    "delete": ("deleting", "deleted"),
    "create-replacement": ("creating the replacement of", "created the replacement of"),
    "delete-replaced": ("deleting the old", "deleted the old"),
}
# Warnings that the engine always prints and that mean nothing to the user.
_NOISE = ("from $PATH",)


class Watcher:
    """Turns the engine's events into one line per step of a resource, and collects its errors."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.errors: list[str] = []

    def __call__(self, event: auto.EngineEvent) -> None:
        if event.resource_pre_event:
            self._step(event.resource_pre_event.metadata, 0)
        elif event.res_outputs_event:
            self._step(event.res_outputs_event.metadata, 1)
        elif event.res_op_failed_event:
            metadata = event.res_op_failed_event.metadata
            self._report(f"failed: {_called(metadata)}")
        elif event.diagnostic_event:
            self._diagnostic(event.diagnostic_event)

    def _step(self, metadata: Any, done: int) -> None:
        words = _DOING.get(getattr(metadata.op, "value", metadata.op))
        # Components and providers are not Azure resources.
        if words and metadata.type.startswith("azure-native:"):
            self._report(f"{words[done]} {_called(metadata)}")

    def _report(self, step: str) -> None:
        try:
            self._progress(step)
        except (BrokenPipeError, SystemExit):
            # The reader has gone (`| head`); the engine, which waits for us, must go on.
            self._progress = lambda _: None

    def _diagnostic(self, diagnostic: Any) -> None:
        text = plain(diagnostic.message)
        if diagnostic.severity == "error":
            # The last error only says that there were errors.
            if text and text not in self.errors and text != "update failed":
                self.errors.append(text)
        elif diagnostic.severity == "warning" and not any(noise in text for noise in _NOISE):
            self._report(Lasting(f"warning: {text}"))


def _called(metadata: Any) -> str:
    return f"{metadata.type.rpartition(':')[2]} {metadata.urn.rpartition('::')[2]}"
