"""The wording of a stack file's problems: the key, the value, the limit and the fix."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from sunspot.errors import UsageError

_LONGEST_VALUE = 60

# Pydantic's types of error, each with the value, the limit and the fix.
_MESSAGES = {
    "greater_than": "{value} is too small: give a number greater than {gt:g}",
    "greater_than_equal": "{value} is too small: give {ge:g} or more",
    "less_than_equal": "{value} is too large: give {le:g} or less",
    "bool_type": "{value} is neither true nor false: write one of them, without quotes",
    "dict_type": "{value} is not a mapping: put its keys below it, indented",
    "float_type": "{value} is not a number: write one, without quotes",
    "int_type": "{value} is not a whole number: write one, without quotes",
    "int_from_float": "{value} is not a whole number: write one, without quotes",
    "finite_number": "{value} is not finite: write a number",
    "string_type": "{value} is not text: write it in quotes",
    "model_type": "{value} is not a mapping: put its keys below it, indented",
    "tuple_type": "{value} is not a list: start each item with `- `",
}


def wrong(source: str, problems: Iterable[str]) -> UsageError:
    """The error for a file (or another source) with these problems, one per line."""
    return UsageError("\n  ".join([f"{source}:", *dict.fromkeys(problems)]))


def unknown_key(key: str, known: Sequence[str], namespace: str) -> str:
    """The problem of a key at the top of the `config:` block that no model has."""
    near = key if ":" in key else namespace + key
    return f"config > {key}: unknown key{hint(near, known)}; known: {', '.join(known)}"


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
    return f"{where}{error.problem or error.context or 'is not YAML'}"


def hint(word: str, known: Sequence[str]) -> str:
    """ " (did you mean WORD?)" with the nearest known word, or ""."""
    # `gpu` is nearer to `cpu` by letters, but means `gpu_count`.
    longer = [name for name in known if word and name.startswith(word)]
    near = longer or difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def one_of(choices: Sequence[str]) -> str:
    """The choices as text: "a, b or c"."""
    *first, last = choices
    return f"{', '.join(first)} or {last}"


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
    kind, location, value = problem["type"], problem["loc"], problem["input"]
    context = problem.get("ctx", {})
    if isinstance(value, dict) and "secure" in value and len(location) == 1:
        return "is encrypted, but is not a secret: set it again without --secret"
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        known = tuple(_model_at(model, location[:-1]).model_fields)
        return f"unknown key{hint(str(location[-1]), known)}; known: {', '.join(known)}"
    if kind == "missing":
        field = _model_at(model, location[:-1]).model_fields[str(location[-1])]
        return f"missing: give {field.description}"
    if kind == "literal_error":
        field = _model_at(model, location[:-1]).model_fields[str(location[-1])]
        choices = get_args(field.annotation)
        return f"{_shown(value)} is unknown: choose {one_of(choices)}{hint(str(value), choices)}"
    if template := _MESSAGES.get(kind):
        return template.format(value=_shown(value), **context)
    return f"{_shown(value)}: {problem['msg']}"


def _model_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    """The config class that the path leads to."""
    found: Any = model
    for part in location:
        inner = found.model_fields[part].annotation if isinstance(part, str) else found
        # Steps into `tuple[X, ...]` and `X | None`.
        found = inner if isinstance(inner, type) and not get_args(inner) else get_args(inner)[0]
    return found


def _shown(value: Any) -> str:
    """The value as the stack file would spell it, shortened if it is long."""
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError):  # YAML allows keys that are not text, and cycles
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
