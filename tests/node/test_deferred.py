"""A slow package that Ray's processes import without using it: it is imported when it is used."""

import os
import subprocess
import sys

import pytest

from sunspot.node.local.ray_start import DEFERRED

HELPERS = """
print("built the grammar")
RULES = ("iri", "iri_reference")
def is_valid_syntax(term, value):
    return term in RULES and " " not in value
"""


@pytest.fixture
def run(tmp_path):
    """Runs code in an environment that has the package, or has it not."""
    package = tmp_path / "site" / "rfc3987_syntax"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .syntax_helpers import *\n")
    (package / "syntax_helpers.py").write_text(HELPERS)

    def run(code, *, installed=True):
        folders = [str(DEFERRED), *([str(package.parent)] if installed else [])]
        return subprocess.run(
            [sys.executable, "-S", "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_its_import_costs_nothing(run):
    done = run("from rfc3987_syntax import is_valid_syntax as check; print(callable(check))")
    assert done.stdout.split() == ["True"], done.stderr


def test_it_works_when_it_is_used_and_is_then_imported_once(run):
    code = "from rfc3987_syntax import is_valid_syntax as check\n"
    code += "print(check('iri', 'a:b'), check('iri', 'a b'))"
    done = run(code)
    assert done.stdout.splitlines() == ["built the grammar", "True False"], done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import rfc3987_syntax; print(rfc3987_syntax.RULES[0])",
        "from rfc3987_syntax import RULES; print(RULES[0])",
        "from rfc3987_syntax.syntax_helpers import RULES; print(RULES[0])",
    ],
)
def test_everything_else_of_it_is_there_too(run, code):
    done = run(code)
    assert done.stdout.splitlines() == ["built the grammar", "iri"], done.stderr


def test_where_it_is_not_installed_it_is_missing_as_always(run):
    code = "try: import rfc3987_syntax\nexcept ImportError as error: print(error.name)"
    assert run(code, installed=False).stdout.split() == ["rfc3987_syntax"]


def test_a_name_that_it_lacks_is_an_import_error(run):
    done = run("from rfc3987_syntax import nothing")
    assert done.returncode == 1
    assert "ImportError" in done.stderr
