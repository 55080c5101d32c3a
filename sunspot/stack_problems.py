"""The wording of a stack file's problems: the key, the value, the limit and the fix."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from sunspot.errors import UntrustedError, UsageError
from sunspot.problems import FILE, hint, message

ROOT = 0  # the user's id

# How alike two namespaces are if one is a slip of the other: sunpot, Sunspot, azure_native.
NEAR = 0.8

# What the YAML reader says of the two slips that people make -> the fix.
_FIXES = {
    "mapping values are not allowed here": "check the indentation here and in the line above",
    "found character '\\t' that cannot start any token": "indent with spaces, not tabs",
}


NO_CLUSTER = (
    "describes no cluster: begin it with `config:`, as a stack file, or with `head_node:`, as the "
    "content of sunspot:cluster"
)

# What every file for `ray up` has (ray/autoscaler/ray-schema.json, 2.60).
_RAYS_KEYS = {"cluster_name", "provider"}


def wrong(source: str, problems: Iterable[str]) -> UsageError:
    """The error for a file (or another source) with these problems, one per line."""
    return UsageError("\n  ".join([f"{source}:", *dict.fromkeys(problems)]))


def unknown_key(key: str, known: Sequence[str], namespace: str) -> str:
    """The problem of a key at the top of the `config:` block that no model has."""
    near = key if ":" in key else namespace + key
    return f"config > {key}: unknown key{hint(near, known)}; known: {', '.join(known)}"


def is_ours(key: str, known: Sequence[str], ours: str) -> bool:
    """Whether a key of the `config:` block is meant for Sunspot, if with a misspelt namespace.

    Keys of other namespaces are for Pulumi's providers.

    Args:
        key: the key, with its namespace.
        known: every key that Sunspot reads.
        ours: the namespace of which every key is Sunspot's.
    """
    namespaces = {one.partition(":")[0] for one in known}
    namespace, colon, _ = key.partition(":")
    if not colon or key.startswith(ours):
        return True
    near = difflib.get_close_matches(namespace, namespaces, n=1, cutoff=NEAR)
    return bool(near) and namespace not in namespaces


def of_rays_file(document: Any) -> str | None:
    """The problem of a file that describes a cluster for Ray's own launcher; None for others."""
    if not isinstance(document, dict) or not document.keys() >= _RAYS_KEYS:
        return None
    return (
        "is a file for `ray up`, whose keys are others: describe the same machines as a "
        "`head_node:` and `scaling_groups:`"
    )


def beside_config(document: Mapping[Any, Any]) -> list[str]:
    """The problems of keys at the top of a stack file, which is Pulumi's but for `config`."""
    keys = [str(key) for key in document]
    problems = [
        f"{key}: stands beside `config:` and not in it: indent it by two spaces"
        for key in keys
        if ":" in key
    ]
    if "config" not in document:
        near = difflib.get_close_matches("config", keys, n=1)
        problems += [f"{key}: unknown key: did you mean config?" for key in near]
    return problems


def of_validation(
    error: ValidationError, model: type[BaseModel], keys: Mapping[str, str]
) -> list[str]:
    """The problems that pydantic found.

    Args:
        error: what pydantic raised.
        model: the model that was validated.
        keys: the stack file's keys, each with the field of the model that it fills.
    """
    # Pydantic's links lead to its manual, not to a fix.
    return [
        f"{_key_path(problem['loc'], keys)}: {_message(problem, model)}"
        for problem in error.errors(include_url=False)
    ]


def of_yaml(error: yaml.MarkedYAMLError) -> str:
    """The problem that the YAML reader found, with its line."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    said = error.problem or error.context or "is not YAML"
    fix = next((f": {fix}" for slip, fix in _FIXES.items() if slip in said), "")
    return f"{where}{said}{fix}"


def _key_path(location: tuple[int | str, ...], keys: Mapping[str, str]) -> str:
    """`config > sunspot:cluster > scaling_groups[0] > max_workers`."""
    of_field = {field: key for key, field in keys.items()}
    path = "config"
    for depth, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f" > {of_field.get(part, part) if depth == 0 else part}"
    return path


def _message(problem: Any, model: type[BaseModel]) -> str:
    location, value = problem["loc"], problem["input"]
    if isinstance(value, dict) and "secure" in value and len(location) == 1:
        return "is encrypted, but is not a secret: set it again without --secret"
    return message(problem, model, FILE)


def trusted(folder: Path, files: Sequence[str]) -> Path:
    """The folder, if these files in it, above the one that a command runs in, may be used.

    Raises:
        UntrustedError: another user could have put one there for whoever works below, as in /tmp.
    """
    for path in (folder / file for file in files):
        # A link's own owner too: anyone may put one to a file of yours into /tmp.
        if not {path.stat().st_uid, path.lstat().st_uid} <= {os.getuid(), ROOT}:
            raise UntrustedError(
                f"{path} belongs to another user, and is above this folder: to use it, "
                f"change to {folder}",
                folder,
            )
    return folder


def no_such_stack(name: str, folder: Path, known: Sequence[str]) -> str:
    """That the project in `folder` has other stacks, and which, or none."""
    if not known:
        return f"There is no stack {name!r}: {folder} has no Pulumi.<name>.yaml"
    return f"There is no stack {name!r} in {folder}: it has {', '.join(known)}{hint(name, known)}"
