"""What an edit of a stack file does to each resource, as Pulumi's engine would plan it.

A resource is replaced where its provider, or `replace_on_changes`, says so of a changed input, and
where its `replacement_trigger` is another one: none, or the first one, replaces nothing
(pulumi/pulumi#20936).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from azure_model.pulumi_mocks import Registered, Run
from azure_model.resource_ids import id_inputs

Step = Literal["same", "update", "replace", "create", "delete"]


def steps(before: Run, after: Run) -> dict[str, Step]:
    """What becomes of each resource of Azure, by its name in the program."""
    old, new = _by_urn(before), _by_urn(after)
    return {urn.rpartition("::")[2]: _step(old.get(urn), new.get(urn)) for urn in {**old, **new}}


def _by_urn(run: Run) -> dict[str, Registered]:
    return {one.urn: one for one in run.resources if one.type.startswith("azure-native:")}


def _step(before: Registered | None, after: Registered | None) -> Step:
    if before is None:
        return "create"
    if after is None:
        return "delete"
    triggers = {before.replacement_trigger, after.replacement_trigger}
    if "" not in triggers and len(triggers) > 1:
        return "replace"
    kept = {path for path in after.ignore_changes if path in before.ignore_changes}
    changed = [path for path in _changes(before.inputs, after.inputs) if not _is_any_of(path, kept)]
    if not changed:
        return "same"
    fixed = {*after.replace_on_changes, *id_inputs(after.kind), "location"}
    return "replace" if any(_is_any_of(path, fixed) for path in changed) else "update"


def _is_any_of(path: str, patterns: set[str]) -> bool:
    """Whether a changed path is one of these, within one, or has one within."""
    plain = re.sub(r"\[\d+\]", "[*]", path)
    return any(
        plain == one or plain.startswith((f"{one}.", f"{one}[")) or one.startswith(f"{plain}.")
        for one in patterns
    )


def _changes(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {*before, *after}:
            inner = f"{path}.{key}" if path else key
            yield from _changes(before.get(key), after.get(key), inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes(old, new, f"{path}[{index}]")
    else:
        yield path
