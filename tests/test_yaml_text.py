"""YAML that other programs read: the same values for them as for us."""

import pytest
import yaml

from sunspot import yaml_text


@pytest.mark.parametrize(
    "text", ["1e3", "-1.5E-2", "0o17", "y", "N", "on", "true", "1:30", "null", "12", "0x1f"]
)
def test_a_text_that_some_reader_takes_for_something_else_is_quoted(text):
    dumped = yaml_text.dump({"key": text, text: 1})
    assert dumped == f"key: '{text}'\n'{text}': 1\n"


def test_what_is_repeated_is_written_twice():
    inner = {"a": 1}
    assert yaml_text.dump({"x": inner, "y2": inner}) == "x:\n  a: 1\ny2:\n  a: 1\n"


def test_lists_are_indented_or_in_one_line_and_texts_of_several_lines_are_blocks():
    value = {"short": ["a", "b"], "long": ["a" * 80], "maps": [{"a": 1}], "text": "a\nb\n"}
    dumped = yaml_text.dump(value)
    assert "short: [a, b]\n" in dumped
    assert f"long:\n  - {'a' * 80}\n" in dumped
    assert "maps:\n  - a: 1\n" in dumped
    assert "text: |\n  a\n  b\n" in dumped
    assert yaml.safe_load(dumped) == value
