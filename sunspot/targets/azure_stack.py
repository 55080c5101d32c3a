"""A stack on Azure, through Pulumi's Automation API.

It runs the project's own program (`Pulumi.yaml`, `__main__.py`) in the project's folder. So
`sunspot up` and plain `pulumi up` are one thing: the same program, environment, settings and state,
and either may go on where the other stopped.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi import automation as auto

from sunspot.errors import SunspotError
from sunspot.targets import Progress

STACK_TYPE = "pulumi:pulumi:Stack"
MACHINE_TYPE = "azure-native:compute:VirtualMachine"
GROUP_TYPE = "azure-native:resources:ResourceGroup"

SHOWN_PROBLEMS = 3
LONGEST_PROBLEM = 600


class EngineMissingError(SunspotError):
    """There is no `pulumi` command here."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource of Azure's, as the stack's state has it."""

    type: str
    name: str
    id: str
    protected: bool
    outputs: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class StackState:
    """What a stack has made so far: its outputs, and its resources of Azure's."""

    outputs: Mapping[str, Any]
    resources: tuple[Resource, ...]

    @property
    def head(self) -> Resource | None:
        """The head's machine, the only one that Pulumi makes by itself."""
        return next((one for one in self.resources if one.type == MACHINE_TYPE), None)

    @property
    def group_id(self) -> str | None:
        """The ARM id of the resource group."""
        return next((one.id for one in self.resources if one.type == GROUP_TYPE), None)

    @property
    def protected(self) -> tuple[Resource, ...]:
        return tuple(one for one in self.resources if one.protected)


def find_engine() -> auto.PulumiCommand:
    """The `pulumi` command of this machine, of the PATH or of an earlier installation by us.

    Raises EngineMissingError.
    """
    ours = Path.home() / ".pulumi" / "versions" / _version()
    for root in (None, str(ours)):
        try:
            return auto.PulumiCommand(root=root)
        except (OSError, subprocess.CalledProcessError):
            continue
        except auto.InvalidVersionError as error:
            raise SunspotError(f"the pulumi command is too old or too new: {error}") from error
    raise EngineMissingError("there is no `pulumi` command on this machine")


def install_engine(progress: Progress) -> auto.PulumiCommand:
    """The `pulumi` command; where there is none, it is installed into ~/.pulumi."""
    try:
        return find_engine()
    except EngineMissingError:
        progress(f"there is no pulumi command here: installing {_version()}")
    try:
        return auto.PulumiCommand.install()
    except (OSError, subprocess.CalledProcessError) as error:
        raise EngineMissingError(
            f"there is no `pulumi` command here, and it could not be installed ({error}). Install "
            "it yourself: https://www.pulumi.com/docs/install/"
        ) from error


def _version() -> str:
    """The version that `PulumiCommand.install` installs: the SDK's own."""
    return importlib.metadata.version("pulumi")


@dataclass(frozen=True)
class AzureStack:
    """The stack `name` of the project in `folder`."""

    name: str
    folder: Path
    command: auto.PulumiCommand

    def state(self) -> StackState | None:
        """What the stack has made; None where the backend knows no such stack."""
        try:
            exported = self._run("stack", "export", "--stack", self.name)
        except auto.StackNotFoundError:
            return None
        except auto.CommandError as error:
            raise problem(self.name, _said(error)) from error
        return parse_state(json.loads(exported))

    def up(self, progress: Progress) -> StackState:
        """Makes or changes everything that the stack describes."""
        watcher = Watcher(progress)
        try:
            stack = auto.create_or_select_stack(
                self.name,
                work_dir=str(self.folder),
                opts=auto.LocalWorkspaceOptions(pulumi_command=self.command),
            )
            stack.up(on_event=watcher)
        except auto.CommandError as error:
            raise problem(self.name, *(watcher.errors or [_said(error)])) from error
        state = self.state()
        if state is None:
            raise SunspotError(f"stack {self.name!r} is gone, just after it was brought up")
        return state

    def destroy(self, progress: Progress, *, delete_storage: bool) -> None:
        """Deletes everything, except what is protected unless `delete_storage`."""
        watcher = Watcher(progress)
        try:
            if delete_storage:
                self._run("state", "unprotect", "--all", "--yes", "--stack", self.name)
            stack = auto.select_stack(
                self.name,
                work_dir=str(self.folder),
                opts=auto.LocalWorkspaceOptions(pulumi_command=self.command),
            )
            stack.destroy(on_event=watcher, exclude_protected=not delete_storage)
        except auto.CommandError as error:
            raise problem(self.name, *(watcher.errors or [_said(error)])) from error

    def _run(self, *arguments: str) -> str:
        environment = {"PULUMI_SKIP_UPDATE_CHECK": "true"}
        return self.command.run(list(arguments), str(self.folder), environment).stdout


def parse_state(exported: Mapping[str, Any]) -> StackState:
    """The state as `pulumi stack export` writes it."""
    listed = exported.get("deployment", {}).get("resources") or []
    outputs = next((one.get("outputs", {}) for one in listed if one["type"] == STACK_TYPE), {})
    return StackState(
        outputs=outputs,
        resources=tuple(
            Resource(
                type=one["type"],
                name=one["urn"].rpartition("::")[2],
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
    "create-replacement": ("creating anew", "created anew"),
    "delete-replaced": ("deleting the old", "deleted the old"),
}
_COLOUR = re.compile(r"<\{%[^%]*%\}>|\x1b\[[0-9;]*m")
# What the engine says to everybody, and nobody needs.
_NOISE = ("from $PATH",)


class Watcher:
    """Turns the engine's events into one line for each step of a resource, and keeps its errors."""

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
            self._progress(f"failed: {_called(metadata)}")
        elif event.diagnostic_event:
            self._diagnostic(event.diagnostic_event)

    def _step(self, metadata: Any, done: int) -> None:
        words = _DOING.get(getattr(metadata.op, "value", metadata.op))
        # Components and providers are no resources of Azure's.
        if words and metadata.type.startswith("azure-native:"):
            self._progress(f"{words[done]} {_called(metadata)}")

    def _diagnostic(self, diagnostic: Any) -> None:
        text = _COLOUR.sub("", diagnostic.message).strip()
        if diagnostic.severity == "error":
            # The last error only says that there were errors.
            if text and text not in self.errors and text != "update failed":
                self.errors.append(text)
        elif diagnostic.severity == "warning" and not any(noise in text for noise in _NOISE):
            self._progress(f"warning: {text}")


def _called(metadata: Any) -> str:
    return f"{metadata.type.rpartition(':')[2]} {metadata.urn.rpartition('::')[2]}"


# Errors


_QUOTA = re.compile(
    r"exceeding approved (?P<family>.+?) quota.*?Location: (?P<location>[^,]+),"
    r".*?Current Limit: (?P<limit>\d+),.*?Current Usage: (?P<usage>\d+),"
    r".*?Additional Required: (?P<more>\d+),.*?New Limit Required: (?P<needed>\d+)",
    re.DOTALL,
)
_SPOT_FAMILY = re.compile(r"low\s*priority|spot", re.IGNORECASE)


def _quota(found: re.Match[str]) -> str:
    family = " ".join(found["family"].split())
    what = "the quota of all spot machines" if _SPOT_FAMILY.search(family) else "a quota of vCPUs"
    return (
        f"Azure's quota {family!r} ({what}) in {found['location'].strip()} is too small: its limit "
        f"is {found['limit']}, {found['usage']} are in use, {found['more']} more are needed. Ask "
        f"for {found['needed']} in the Azure portal (Quotas > Compute), or take smaller or fewer "
        "machines, or another region"
    )


def _says(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _found: text


_EXPLAINED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_QUOTA, _quota),
    (
        re.compile(r"SkuNotAvailable"),
        _says(
            "Azure does not offer this size in this region now, or not to this subscription; take "
            "another size or region (`az vm list-skus --location REGION --size SIZE -o table`)"
        ),
    ),
    (
        re.compile(r"AllocationFailed|OverconstrainedAllocationRequest"),
        _says("Azure has no machine of this size free in this region; try later, or another size"),
    ),
    (
        re.compile(r"roleAssignments/write"),
        _says(
            "you may not give roles in this subscription, which the cluster's identities need; ask "
            "for the role 'Role Based Access Control Administrator' (or Owner) beside Contributor"
        ),
    ),
    (
        re.compile(r"AuthorizationFailed|does not have authorization"),
        _says("you may not do this in the subscription; ask for the role Contributor"),
    ),
    (
        re.compile(
            r"az login|AADSTS|failed to (?:get|obtain|acquire).*?(?:token|credential)", re.I
        ),
        _says("Azure does not know you: run `az login` and `az account set --subscription NAME`"),
    ),
    (
        re.compile(r"passphrase must be set|incorrect passphrase", re.IGNORECASE),
        _says(
            "Pulumi needs the passphrase of this stack's secrets: set PULUMI_CONFIG_PASSPHRASE or "
            "PULUMI_CONFIG_PASSPHRASE_FILE"
        ),
    ),
    (
        re.compile(r"PULUMI_ACCESS_TOKEN|not logged in|pulumi login", re.IGNORECASE),
        _says("Pulumi has no place for its state yet: run `pulumi login --local` (or another)"),
    ),
    (
        re.compile(r"currently locked by|Another update is currently in progress"),
        _says(
            "another command works on this stack, or one was killed while it did; wait, or, if "
            "nothing runs, free it with: pulumi cancel -s NAME"
        ),
    ),
)


def explain(text: str) -> str | None:
    """What a message of Azure's or the engine's means and what to do, where we know it."""
    for pattern, tell in _EXPLAINED:
        if found := pattern.search(text):
            return tell(found)
    return None


def problem(name: str, *messages: str) -> SunspotError:
    """The error for what the engine complained of, with an explanation before its own words."""
    told = list(dict.fromkeys(filter(None, map(explain, messages))))
    lines = [*told, *(f"it said: {_short(one)}" for one in messages[:SHOWN_PROBLEMS])]
    if len(messages) > SHOWN_PROBLEMS:
        lines.append(f"and {len(messages) - SHOWN_PROBLEMS} errors more: pulumi up -s {name}")
    return SunspotError("\n  ".join([f"stack {name!r} on azure:", *lines]))


def _short(text: str) -> str:
    # A program's own error message has lines of its own that must stay apart.
    kept = "\n    ".join(line.strip() for line in text.splitlines() if line.strip())
    return kept if len(kept) <= LONGEST_PROBLEM else f"{kept[: LONGEST_PROBLEM - 3]}..."


def _said(error: auto.CommandError) -> str:
    """What the command printed to stderr, or all that it printed."""
    text = _COLOUR.sub("", str(error))
    return text.partition("\n stderr: ")[2].strip() or text.strip()
