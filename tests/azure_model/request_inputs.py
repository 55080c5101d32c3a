"""Inputs on the wire, held against the types of Pulumi's own Azure SDK.

Not what request_bodies.py does: that one asks Microsoft's SDKs, needs every value, and makes the
body of the request; the engine needs every problem at once, of inputs that it knows in part.
"""

import enum
import importlib
import inspect
import threading
import typing
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin

import pulumi
from pulumi._types import (
    input_type_py_to_pulumi_names,
    input_type_types,
    is_input_type,
    resource_py_to_pulumi_names,
)

from azure_model.pulumi_wire import UNKNOWN, opened

# Lists of sizes that Azure itself calls incomplete: it takes others too.
OPEN_ENUMS = frozenset({"VirtualMachineSizeTypes"})
_LOADING = threading.Lock()
SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int, float),
    float: (int, float),
}


def problems(token: str, inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What Azure's SDK would not take of a resource's inputs: property, and what is wrong."""
    return list(_of_class(opened(inputs), _args_class(token), ""))


@cache
def output_names(token: str) -> frozenset[str]:
    """The outputs of a resource, by their names on the wire."""
    return frozenset(resource_py_to_pulumi_names(_resource_class(token)).values())


@cache
def _resource_class(token: str) -> type:
    _, module, kind = token.split(":")
    # The SDK's modules load themselves at the first use, which two threads must not do at once.
    with _LOADING:
        return getattr(importlib.import_module(f"pulumi_azure_native.{module}"), kind)


@cache
def _args_class(token: str) -> type:
    kind = token.rsplit(":", 1)[1]
    module = importlib.import_module(_resource_class(token).__module__)
    # The second name is for resources whose first is taken by the reference of another.
    return getattr(module, f"{kind}InitArgs", None) or getattr(module, f"{kind}Args")


@cache
def _known(model: type) -> dict[str, Any]:
    return input_type_types(model)


@cache
def _required(model: type) -> frozenset[str]:
    names = input_type_py_to_pulumi_names(model)
    parameters = list(inspect.signature(model.__init__).parameters.values())[1:]
    return frozenset(names[p.name] for p in parameters if p.default is inspect.Parameter.empty)


Problems = Iterator[tuple[str, str]]


def _of_class(value: Any, model: type, where: str) -> Problems:
    if value == UNKNOWN:
        return
    if not isinstance(value, Mapping):
        yield where, f"{value!r} is not an object"
        return
    known = _known(model)
    for key in sorted(_required(model) - set(value)):
        yield _join(where, key), "missing"
    for key, inner in value.items():
        if key.startswith("__"):
            continue  # the engine's own
        if key in known:
            yield from _of_type(inner, known[key], _join(where, key))
        else:
            yield _join(where, key), f"unknown to {model.__name__}"


def _of_type(value: Any, hint: Any, where: str) -> Problems:
    if value is None or value == UNKNOWN:
        return
    choices = list(_choices(hint))
    enums = [c for c in choices if isinstance(c, type) and issubclass(c, enum.Enum)]
    if enums and not any(choice.__name__ in OPEN_ENUMS for choice in enums):
        allowed = {member.value for choice in enums for member in choice}
        if value not in allowed:
            yield where, f"{value!r} is not one of {sorted(map(str, allowed))}"
        return
    answers = [list(_of_choice(value, c, where)) for c in choices if c not in enums]
    if answers and all(answers):
        yield from min(answers, key=len)


def _of_choice(value: Any, choice: Any, where: str) -> Problems:
    origin = get_origin(choice)
    if choice is Any:
        return
    if isinstance(choice, type) and is_input_type(choice):
        yield from _of_class(value, choice, where)
    elif origin is not None and issubclass(origin, Mapping):
        yield from _of_map(value, get_args(choice)[1], where)
    elif origin is not None and issubclass(origin, Sequence):
        yield from _of_list(value, get_args(choice)[0], where)
    elif type(value) not in SCALARS[choice]:
        yield where, f"{value!r} is not {choice.__name__}"


def _of_map(value: Any, item: Any, where: str) -> Problems:
    if not isinstance(value, Mapping):
        yield where, f"{value!r} is not a map"
        return
    for key, inner in value.items():
        yield from _of_type(inner, item, _join(where, key))


def _of_list(value: Any, item: Any, where: str) -> Problems:
    if not isinstance(value, list):
        yield where, f"{value!r} is not a list"
        return
    for index, inner in enumerate(value):
        yield from _of_type(inner, item, f"{where}[{index}]")


def _choices(hint: Any) -> Iterator[Any]:
    """The types that a hint allows, without what is only for programs (outputs, futures)."""
    if get_origin(hint) is typing.Union:
        for part in get_args(hint):
            yield from _choices(part)
    elif hint is not type(None) and get_origin(hint) not in (Awaitable, pulumi.Output):
        yield hint


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
