"""What is left of a Python module for a node."""

import ast
import textwrap

import pytest

from cloud_init.render import NODE_MODULES, NODE_SOURCES
from cloud_init.spare import without_documentation


def test_docstrings_and_comments_go_and_lines_stay() -> None:
    source = textwrap.dedent('''
        """A module.

        More of it.
        """
        LIMIT = 3  # machines
        """What an attribute is."""

        class Full(Exception):
            """Nothing else is in it."""

        def told() -> str:
            """Tells."""
            # A remark.
            return "# not a comment"
        ''')
    left = without_documentation(source)
    assert left.splitlines() == [
        "",
        '""',
        "",
        "",
        "",
        "LIMIT = 3",
        '""',
        "",
        "class Full(Exception):",
        '    ""',
        "",
        "def told() -> str:",
        '    ""',
        "",
        '    return "# not a comment"',
    ]


@pytest.mark.parametrize("name", NODE_MODULES)
def test_what_a_node_runs_is_the_same_program(name: str) -> None:
    source = (NODE_SOURCES / name).read_text()
    left = without_documentation(source)
    assert len(left) < len(source)
    assert _program(left) == _program(source)


def _program(source: str) -> list[tuple[int, str]]:
    """Every statement that does something, with its line."""
    return [
        (node.lineno, type(node).__name__)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and not _is_text(node)
    ]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
