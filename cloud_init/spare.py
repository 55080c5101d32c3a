"""What a Python module can spare on its way to a node: Azure takes 64 KB, docstrings included.

Not `ast.unparse`: its text depends on Python's version, and another text replaces machines.
"""

from __future__ import annotations

import ast
import io
import tokenize

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def without_documentation(source: str) -> str:
    """The module without docstrings and comments, each statement in the line that it had.

    So a traceback on a node names the lines of the repository.
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for text in _documentation(ast.parse(source)):
        first = lines[text.lineno - 1]
        rest = lines[text.lineno : text.end_lineno]
        # A body may have nothing else.
        lines[text.lineno - 1] = first[: len(first) - len(first.lstrip())] + '""'
        lines[text.lineno : text.end_lineno] = [""] * len(rest)
    return "\n".join(lines) + "\n"


def _documentation(module: ast.Module) -> list[ast.Expr]:
    """The statements that are only a text: docstrings, and those of attributes."""
    return [
        statement
        for scope in ast.walk(module)
        if isinstance(scope, _DOCUMENTED)
        for statement in scope.body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ]
