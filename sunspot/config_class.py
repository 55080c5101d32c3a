"""Config classes: frozen dataclasses of the standard library whose values are checked.

So `dataclasses.replace`, `asdict` and `fields` work on them, and a subclass is made as usual. The
checks are pydantic's; its models may have fields of these classes.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self, TypeVar, dataclass_transform

import pydantic.dataclasses
from pydantic import ConfigDict, Field, ValidationError
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from sunspot import problems
from sunspot.errors import UsageError

C = TypeVar("C", bound="ConfigBase")


class ConfigBase:
    """The base of every config class."""

    def __post_init__(self) -> None:
        # A subclass made by `dataclasses.dataclass` has an `__init__` that checks nothing.
        if "__pydantic_validator__" in vars(type(self)):
            return
        base: Any = next(one for one in type(self).__mro__ if "__pydantic_validator__" in vars(one))
        fields = dataclasses.fields(base)
        given = {field.name: getattr(self, field.name) for field in fields}
        # A VM size fills in what was not given: what is still the default.
        defaults = {field.name: field.default for field in fields}
        checked = base(**{name: one for name, one in given.items() if one is not defaults[name]})
        for name in given:
            object.__setattr__(self, name, getattr(checked, name))

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """A copy with other values, which are checked. Named as in pydantic's models."""
        return dataclasses.replace(self, **update)  # pyright: ignore[reportArgumentType]


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def config_class(
    *, json_schema_extra: Callable[[JsonDict], None] | None = None
) -> Callable[[type[C]], type[C]]:
    """Makes a class a frozen dataclass that raises UsageError for values that are wrong.

    Args:
        json_schema_extra: changes the class's JSON schema.
    """
    config = ConfigDict(extra="forbid", json_schema_extra=json_schema_extra)

    def decorate(cls: type[C]) -> type[C]:
        _move_fields(cls)
        made: Any = pydantic.dataclasses.dataclass(frozen=True, config=config)(cls)
        check, signature = made.__init__, inspect.signature(made)

        @functools.wraps(check)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            # By name, so that the errors name them; too many or doubled ones are a TypeError.
            named = signature.bind_partial(*args).arguments
            try:
                check(self, **named, **kwargs)
            except ValidationError as error:
                # Pydantic's own text has a preamble, and a link to its manual.
                raise UsageError(problems.of_arguments(error, type(self))) from None

        made.__init__ = __init__
        return made

    return decorate


def _move_fields(cls: type) -> None:
    """Moves each `Field` into its annotation: `dataclasses` takes it for the default."""
    for name, annotation in cls.__annotations__.items():
        field = vars(cls).get(name)
        if not isinstance(field, FieldInfo):
            continue
        cls.__annotations__[name] = Annotated[annotation, field]
        if field.is_required():
            delattr(cls, name)
        elif field.default_factory is None:
            setattr(cls, name, field.default)
        else:
            factory: Any = field.default_factory
            setattr(cls, name, dataclasses.field(default_factory=factory))
