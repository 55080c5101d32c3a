"""YAML files of a user, read within bounds: a small file must not fill the memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from sunspot.errors import UsageError

# PyYAML reads some 100 KiB a second. A stack of 100 groups has 30 KiB and 2,000 values.
LIMIT_BYTES = 256 * 2**10
LIMIT_VALUES = 20_000

# YAML 1.2's floats that are written with an exponent.
FLOATS = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")
FLOAT_TAG = "tag:yaml.org,2002:float"


class TooLargeError(ValueError):
    """The file is larger than LIMIT_BYTES, or has more than LIMIT_VALUES values."""


def load(file: Path) -> Any:
    """The content of a YAML file as plain values. A duplicate key is an error, as in Pulumi.

    A value that aliases repeat (`*name`) counts each time.

    Raises:
        OSError: the file cannot be read.
        TooLargeError: it is too large to be read.
        yaml.YAMLError: it is not YAML.
        ValueError: it is not text, or a value is impossible, such as the 13th month.
        RecursionError: it is nested too deeply.
    """
    with file.open("rb") as stream:
        content = stream.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise TooLargeError(
            f"the file has more than {LIMIT_BYTES // 2**10} KiB, the limit: keep data elsewhere"
        )
    # A subclass of SafeLoader builds only plain values.
    return yaml.load(content, Loader=_Loader)  # noqa: S506


def load_given(file: Path, what: str = "") -> Any:
    """The content of a YAML or JSON file that the user named; `what` it is, for the message.

    Raises:
        UsageError: it cannot be read, is too large, or is neither YAML nor JSON.
    """
    try:
        return load(file)  # JSON is YAML
    except OSError as error:
        raise UsageError(f"cannot read {what}{file}: {error.strerror}") from error
    except TooLargeError as error:
        raise UsageError(f"{file}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} is neither YAML nor JSON: {error}") from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's floats, within LIMIT_VALUES, without duplicate keys."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and (count := _count(node, {})) > LIMIT_VALUES:
            raise TooLargeError(
                f"the file has {count:,} values, with all that aliases (*name) repeat; at most "
                f"{LIMIT_VALUES:,} are read: leave some out"
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is given twice: remove one",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return node


# PyYAML follows YAML 1.1, in which 1e3 and 1.0e3 are text; in 1.2 and for Pulumi they are numbers.
_Loader.add_implicit_resolver(FLOAT_TAG, FLOATS, list("-+.0123456789"))


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """The values below a node and the node itself; `known` holds the counts of nodes by id."""
    if id(node) not in known:
        known[id(node)] = 1  # for a cycle, which is refused where it is used
        known[id(node)] += sum(_count(inner, known) for inner in _inner(node))
    return known[id(node)]


def _inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [inner for pair in node.value for inner in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
