"""The wording of values that are wrong: the value, the limit and the fix.

The same for a stack file's keys and for arguments in Python, except for how a value is written.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import ValidationError

_LONGEST_VALUE = 60

# Pydantic's types of error, each with the value, the limit and the fix.
_MESSAGES = {
    "greater_than": "{value} is too small: give a number greater than {gt:g}",
    "greater_than_equal": "{value} is too small: give {ge:g} or more",
    "less_than_equal": "{value} is too large: give {le:g} or less",
    "float_type": "{value} is not a number: write one, without quotes or a unit",
    "int_type": "{value} is not a whole number: write one, without quotes or a unit",
    "int_from_float": "{value} is not a whole number: write one, without quotes",
    "finite_number": "{value} is not finite: write a number",
    "string_type": "{value} is not text: write it in quotes",
}
_NOT_A_MAPPING = "{value} is not a mapping: put its keys below it, indented"
_IN_FILES = {
    "bool_type": "{value} is neither true nor false: write one of them, without quotes",
    "dict_type": _NOT_A_MAPPING,
    "model_type": _NOT_A_MAPPING,
    "dataclass_type": _NOT_A_MAPPING,
    "list_type": "{value} is not a list: start each item with `- `",
    "tuple_type": "{value} is not a list: start each item with `- `",
}
_IN_PYTHON = {
    "dataclass_type": "{value} is not a {class_name}: give one",
    "list_type": "{value} is not a list: give one",
}
_UNKNOWN = {"extra_forbidden", "unexpected_keyword_argument"}


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):  # YAML allows keys that are not text, and cycles
        return repr(value)


@dataclass(frozen=True, kw_only=True)
class Wording:
    """How a source of values names things.

    Attributes:
        thing: what the source calls a name with a value.
        show: the value as the source spells it.
        messages: pydantic's types of error -> template.
    """

    thing: str
    show: Callable[[Any], str]
    messages: Mapping[str, str]

    def shown(self, value: Any) -> str:
        """The value as the source spells it, shortened if it is long."""
        text = self.show(value)
        return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


FILE = Wording(thing="key", show=_as_json, messages=_MESSAGES | _IN_FILES)
PYTHON = Wording(thing="argument", show=repr, messages=_MESSAGES | _IN_PYTHON)


def of_arguments(error: ValidationError, model: type) -> str:
    """What is wrong with the arguments of a config class, as one sentence."""
    found = error.errors(include_url=False)
    told = [": ".join(filter(None, [_path(p["loc"]), message(p, model, PYTHON)])) for p in found]
    return f"{model.__name__}: {'; '.join(dict.fromkeys(told))}"


def message(problem: Any, model: type, wording: Wording) -> str:
    """One problem that pydantic found in `model`, without its place."""
    kind, location, value = problem["type"], problem["loc"], problem["input"]
    context = problem.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind in _UNKNOWN:
        known = tuple(_fields(_model_at(model, location[:-1])))
        return f"unknown {wording.thing}{hint(str(location[-1]), known)}; known: {', '.join(known)}"
    if kind == "missing":
        field = _fields(_model_at(model, location[:-1]))[str(location[-1])]
        return f"missing: give {field.description}"
    if kind == "literal_error":
        field = _fields(_model_at(model, location[:-1]))[str(location[-1])]
        choices = _choices(field.annotation)
        shown = wording.shown(value)
        return f"{shown} is unknown: choose {one_of(choices)}{hint(str(value), choices)}"
    if template := wording.messages.get(kind):
        return template.format(value=wording.shown(value), **context)
    return f"{wording.shown(value)}: {problem['msg']}"


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


def _path(location: tuple[int | str, ...]) -> str:
    """`scaling_groups[0] > max_workers`; "" for the object itself."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f" > {part}" if path else part
    return path


def _choices(literal: Any) -> list[str]:
    """The choices of a `Literal`, also of one or None."""
    parts = [get_args(part) or (part,) for part in get_args(literal)]
    return [choice for part in parts for choice in part if choice is not type(None)]


def _fields(model: Any) -> Mapping[str, Any]:
    """The fields of a model or of a config class, by name."""
    return model.__pydantic_fields__


def _model_at(model: type, location: tuple[int | str, ...]) -> type:
    """The config class that the path leads to."""
    found: Any = model
    for part in location:
        if get_origin(found) is dict:
            found = get_args(found)[1]
            continue
        inner = _fields(found)[part].annotation if isinstance(part, str) else found
        # Steps into `list[X]` and `X | None`; into `dict[str, X]` only with its key.
        plain = get_origin(inner) is dict or (isinstance(inner, type) and not get_args(inner))
        found = inner if plain else get_args(inner)[0]
    return found
