"""YAML for people and for other programs: plain values as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from sunspot.yaml_files import FLOAT_TAG, FLOATS

# A list of short texts stands in one line up to this width.
_INLINE = 70


class Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, short lists in one line, no aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def dump(value: Mapping[str, Any], dumper: type[Dumper] = Dumper) -> str:
    """The value as YAML: the same text for the same value, in the order of its keys."""
    return yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1000)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    """In one line where that is short, as a person would write it."""
    short = all(isinstance(item, str) and "\n" not in item for item in items)
    inline = short and sum(len(item) + 2 for item in items) < _INLINE
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=inline)


Dumper.add_representer(str, _represent_text)
Dumper.add_representer(list, _represent_list)
# PyYAML writes these texts without quotes, which readers of YAML 1.2, or Go's, take for a number
# or a truth value.
Dumper.add_implicit_resolver(FLOAT_TAG, FLOATS, list("-+.0123456789"))
Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"0o[0-7]+$"), ["0"])
Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"[yYnN]$"), list("yYnN"))
