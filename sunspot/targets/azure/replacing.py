"""What an `up` would replace: read from the events of Pulumi's preview, and refused for the head.

Azure cannot change what a VM boots from. The disk with the cluster's state outlives the head's VM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sunspot.errors import UsageError
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.protocol import Lasting, Progress

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import StackState

NATIVE = "azure-native:"
# Outside a scale set, a stack has only the head's, and the one with the cluster's state.
STATE_DISK = f"{NATIVE}compute:Disk"
IRREPLACEABLE = frozenset({f"{NATIVE}compute:VirtualMachine", STATE_DISK})
# Whose deletion is told, too.
SCALE_SET = f"{NATIVE}compute:VirtualMachineScaleSet"
_TOLD = IRREPLACEABLE | {SCALE_SET}

_REPLACED = frozenset({"replace", "create-replacement", "delete-replaced"})
_DELETED = "delete"

# The start of a property of Azure's -> the key of a stack file that it comes from.
_KEYS = {
    "hardwareProfile.vmSize": "sunspot:cluster > head_node > vm_size",
    "storageProfile.imageReference": "sunspot:image > vm_image",
    "storageProfile": "sunspot:cluster > head_node",
    "networkProfile": "sunspot:network",
    "osProfile.linuxConfiguration": "sunspot:access > ssh_public_key",
    "location": "azure-native:location",
}
# The files and settings that a VM gets for its first boot.
_BOOT = "osProfile.customData"
# The edits of a stack file that one message names.
_SHOWN = 8

LOST = (
    "lost with it: the disk with the cluster's state. Running jobs and actors end, the records of "
    "jobs go, and workers start anew. Results, network and vault stay"
)

STOPPED = (
    "Ray's head is away for minutes, and jobs whose entrypoint runs there end. The disk with the "
    "cluster's state stays"
)
GOES_ON = (
    f"{STOPPED}: the same cluster goes on, with the records of jobs and detached actors, and its "
    "workers wait ten minutes for it; those that get a new boot are replaced after that"
)
ANEW = (
    f"{STOPPED}, and keeps what Ray has now in a folder of its own; with another version of Ray, a "
    "new cluster begins: actors end, and the records of jobs go"
)

_FIELDS = {"cluster": "sunspot:cluster", "image": "sunspot:image"}
_OF_AZURE = {field: key for key, field in AzureSettings.KEYS.items()}


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A resource of Azure that an update would replace, or delete.

    Attributes:
        urn: Pulumi's name of it.
        type: Pulumi's type of it.
        properties: Azure's names of what causes it, where it is known.
        deleted: whether nothing comes in its place.
    """

    urn: str
    type: str
    properties: tuple[str, ...] = ()
    deleted: bool = False

    @property
    def called(self) -> str:
        """The resource as a person knows it: `VirtualMachine sunspot-x-head-vm`."""
        return f"{self.type.rpartition(':')[2]} {self.urn.rpartition('::')[2]}"

    @property
    def is_irreplaceable(self) -> bool:
        """Whether the cluster's state goes with it."""
        return self.type in IRREPLACEABLE

    def __str__(self) -> str:
        causes = f" ({', '.join(self.properties)})" if self.properties else ""
        return f"will {'delete' if self.deleted else 'replace'} {self.called}{causes}"


class Plan:
    """Gathers from the events of a preview what would be replaced. Called with each event."""

    def __init__(self) -> None:
        self._found: dict[str, Replacement] = {}

    def __call__(self, event: Any) -> None:
        for told in (event.resource_pre_event, event.res_outputs_event):
            if told is not None:
                self._step(told.metadata)

    def _step(self, metadata: Any) -> None:
        operation = str(getattr(metadata.op, "value", metadata.op))
        if not metadata.type.startswith(NATIVE) or operation not in {*_REPLACED, _DELETED}:
            return
        before = self._found.get(metadata.urn)
        causes = () if before is None else before.properties
        if operation in _REPLACED:
            causes = tuple(dict.fromkeys((*causes, *_causes(metadata))))
        self._found[metadata.urn] = Replacement(
            urn=metadata.urn,
            type=metadata.type,
            properties=causes,
            deleted=operation == _DELETED and (before is None or before.deleted),
        )

    def replacements(self, errors: Sequence[str] = ()) -> tuple[Replacement, ...]:
        """What would be replaced, and which head, disk or scale set would be deleted.

        Args:
            errors: what the preview printed as errors; it names what is protected there.
        """
        found = {**dict(_protected(errors)), **self._found}
        return tuple(one for one in found.values() if not one.deleted or one.type in _TOLD)


def _causes(metadata: Any) -> Iterator[str]:
    """The properties that cause a replacement, by the provider and by `replace_on_changes`."""
    for path, one in (metadata.detailed_diff or {}).items():
        # pulumi.automation.events.DiffKind: add-replace, delete-replace, update-replace.
        if str(getattr(one.diff_kind, "value", one.diff_kind)).endswith("-replace"):
            yield path
    yield from metadata.keys or ()


# The engine's words (pkg/resource/deploy/step_generator.go, v3.258.0) for what is protected.
_REFUSED = re.compile(
    r"(?:unable to replace resource|resource) \"(?P<urn>urn:[^\"]+)\"\s+"
    r"(?P<deleted>cannot be deleted)?(?:as part of replacing \"(?P<cause>urn:[^\"]+)\")?"
)


def _protected(errors: Sequence[str]) -> Iterator[tuple[str, Replacement]]:
    for found in map(_REFUSED.search, errors):
        if found is None:
            continue
        urn, cause = found["urn"], found["cause"]
        kind = urn.split("::")[-2].rpartition("$")[2] if urn.count("::") > 1 else ""
        yield (
            urn,
            Replacement(
                urn=urn,
                type=kind,
                properties=() if cause is None else (f"with {cause.rpartition('::')[2]}",),
                deleted=found["deleted"] is not None,
            ),
        )


class Planning(Protocol):
    """A stack of Pulumi's: an `AzureStack`."""

    def state(self) -> StackState | None:
        """Its state."""
        ...

    def replacements(self) -> tuple[Replacement, ...]:
        """What `up` would replace."""
        ...

    def unprotect(self, urns: Sequence[str]) -> None:
        """Lets Pulumi delete these resources."""
        ...


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The stack that is to come, and the one of the last `up`, as plain values.

    Attributes:
        name: the stack's name.
        now: as its file describes it.
        before: as it was brought up from here; None if it is not known.
    """

    name: str
    now: Mapping[str, Any]
    before: Mapping[str, Any] | None

    @property
    def has_another_ray(self) -> bool:
        """Whether the version of Ray was edited."""
        if self.before is None:
            return False
        before, now = (one.get("cluster") or {} for one in (self.before, self.now))
        return before.get("ray_version") != now.get("ray_version")

    def changes(self) -> list[str]:
        """The keys of the stack file that differ, each with its values."""
        return [] if self.before is None else list(_differences(self.before, self.now))


def look(
    engine: Planning, wanted: Wanted, progress: Progress, *, replace_head: bool
) -> tuple[Replacement, ...]:
    """Tells what an `up` would replace, and returns it; nothing is asked before the first one.

    Args:
        engine: the stack, of Pulumi's.
        wanted: what it is to become.
        progress: called with a line for each resource that will be replaced.
        replace_head: whether the head may be among them; it then loses Pulumi's protection.

    Raises:
        UsageError: the head would be replaced, or deleted, without `replace_head`.
        SunspotError: Pulumi could not say.
    """
    state = engine.state()
    if state is None or not state.irreplaceable:
        return ()
    has_disk = any(one.type == STATE_DISK for one in state.irreplaceable)
    if replace_head:
        engine.unprotect(state.protected_of(*IRREPLACEABLE - {STATE_DISK}))
    progress("looking at what would be replaced (a preview; it reads every resource)")
    found = engine.replacements()
    lost = [one for one in found if one.is_irreplaceable]
    if lost and not replace_head:
        raise UsageError(_refusal(wanted, lost, _becomes(wanted, lost, has_disk=has_disk)))
    if any(one.type == STATE_DISK for one in lost):
        engine.unprotect(state.protected_of(STATE_DISK))
    for one in found:
        progress(Lasting(str(one)))
    if lost:
        progress(Lasting(_becomes(wanted, lost, has_disk=has_disk)))
    return found


def _becomes(wanted: Wanted, lost: Sequence[Replacement], *, has_disk: bool) -> str:
    """What becomes of the cluster where its head is replaced."""
    if not has_disk or any(one.type == STATE_DISK for one in lost):
        return LOST
    return ANEW if wanted.has_another_ray else GOES_ON


def _refusal(wanted: Wanted, lost: Sequence[Replacement], becomes: str) -> str:
    causes = list(dict.fromkeys(cause for one in lost for cause in one.properties))
    return "\n  ".join(
        [
            f"stack {wanted.name!r} on azure: `up` {_and(lost)}. Nothing was changed.",
            *([f"because this changes: {', '.join(map(_explained, causes))}"] if causes else []),
            *_edited(wanted, causes),
            becomes,
            f"undo the edit, or do it all the same: sunspot up {wanted.name} --replace-head",
        ]
    )


def _and(lost: Sequence[Replacement]) -> str:
    return " and ".join(str(one).partition(" (")[0].replace("will", "would", 1) for one in lost)


def _edited(wanted: Wanted, causes: Sequence[str]) -> list[str]:
    """What the user has edited, as far as it is known."""
    file = f"Pulumi.{wanted.name}.yaml"
    if edits := wanted.changes():
        more = [f"and {len(edits) - _SHOWN} more"] if len(edits) > _SHOWN else []
        return [f"edited in {file} since the last `up`: {'; '.join([*edits[:_SHOWN], *more])}"]
    if keys := list(dict.fromkeys(filter(None, map(_key, causes)))):
        return [f"which {file} says in: {', '.join(keys)}"]
    if wanted.before is None:
        return []
    return [f"{file} is as at the last `up` from here: the change is in Sunspot, or its folder"]


def _explained(cause: str) -> str:
    return f"{cause} (what the head boots with)" if cause.startswith(_BOOT) else cause


def _key(cause: str) -> str | None:
    return next((key for start, key in _KEYS.items() if cause.startswith(start)), None)


def _differences(before: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The values that differ between two stacks, as `sunspot:cluster > ...: 4 -> 8`."""
    old, new = _by_key(before), _by_key(now)
    if old is None or new is None:
        if before != now:
            yield f"{' > '.join(_in_file(path))}: {_short(before)} -> {_short(now)}"
        return
    for key in dict.fromkeys((*old, *new)):
        if path or key not in {"name", "target"}:
            yield from _differences(old.get(key), new.get(key), (*path, key))


def _by_key(value: Any) -> Mapping[str, Any] | None:
    """The parts of a value by their keys, of a list by their names; None if it has no parts."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return {str(one.get("name", number)): one for number, one in enumerate(value)}
    return None


def _in_file(path: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of a stack file for the fields of a `Stack`."""
    match path:
        case ("settings", "azure", field, *rest):
            return (_OF_AZURE.get(field, field), *rest)
        case (field, *rest):
            return (_FIELDS.get(field, field), *rest)
    return path


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(given)"
    return "(none)" if value is None else str(value)
