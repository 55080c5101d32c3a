"""Values on Pulumi's wire: how the engine writes what is secret, and what is not known yet.

The signatures are Pulumi's (sdk/proto in its repository): each SDK and each provider has them.
"""

from collections.abc import Mapping
from typing import Any

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"


def opened(value: Any) -> Any:
    """The value with every secret in it opened."""
    if isinstance(value, Mapping):
        if SIGNATURE in value:
            return opened(value.get("value"))
        return {key: opened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [opened(inner) for inner in value]
    return value


def has_secret(value: Any) -> bool:
    """Whether any part of the value is marked as a secret."""
    if isinstance(value, Mapping):
        return SIGNATURE in value or any(has_secret(inner) for inner in value.values())
    return isinstance(value, list) and any(has_secret(inner) for inner in value)


def is_known(value: Any) -> bool:
    """Whether the engine knows every part of the value."""
    if isinstance(value, Mapping):
        return all(is_known(inner) for inner in value.values())
    if isinstance(value, list):
        return all(is_known(inner) for inner in value)
    return value != UNKNOWN
