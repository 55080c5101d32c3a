"""Slow packages that Ray's processes import without using them are imported when they are used."""

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

PACKAGE = """
from . import part
print("imported")
__version__ = "1.2.3"
__all__ = ["width"]
def width(text):
    return len(text)
"""


@pytest.fixture
def run(tmp_path):
    """Runs code in an environment that has the package, or has it not."""
    package = tmp_path / "site" / "rfc3987_syntax"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .syntax_helpers import *\n")
    (package / "syntax_helpers.py").write_text(HELPERS)
    for name in ("arrow", "wcwidth"):
        (tmp_path / "site" / name).mkdir()
        (tmp_path / "site" / name / "__init__.py").write_text(PACKAGE)
        (tmp_path / "site" / name / "part.py").write_text("print('part')\n")

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


NAMES = pytest.mark.parametrize("name", ["arrow", "wcwidth"])


@NAMES
def test_an_import_of_the_others_costs_nothing(run, name):
    done = run(f"import {name}; print('nothing')")
    assert done.stdout.split() == ["nothing"], done.stderr


@NAMES
@pytest.mark.parametrize(
    "code",
    [
        "import {0}; print({0}.width('ab'), {0}.width('a'))",
        "from {0} import width; print(width('ab'), 1)",
        "from {0} import *; print(width('ab'), 1)",
        "import {0} as first, sys; first.width; import {0}; print({0}.width('ab'), 1)",
    ],
)
def test_the_others_are_imported_once_when_they_are_used(run, name, code):
    done = run(code.format(name))
    assert done.stdout.splitlines() == ["part", "imported", "2 1"], done.stderr


@NAMES
def test_their_versions_and_parts_are_the_packages_own(run, name):
    done = run(f"import {name}.part; print({name}.__version__)")
    assert done.stdout.splitlines() == ["part", "imported", "1.2.3"], done.stderr


def test_threads_that_use_one_at_once_wait_for_it(run):
    code = "import arrow\nfrom concurrent.futures import ThreadPoolExecutor as Pool\n"
    code += "with Pool(8) as pool: print(set(pool.map(lambda _: arrow.width('ab'), range(8))))"
    done = run(code)
    assert done.stdout.splitlines() == ["part", "imported", "{2}"], done.stderr


def test_where_it_is_not_installed_it_is_missing_as_always(run):
    code = "try: import rfc3987_syntax\nexcept ImportError as error: print(error.name)"
    assert run(code, installed=False).stdout.split() == ["rfc3987_syntax"]


def test_a_name_that_it_lacks_is_an_import_error(run):
    done = run("from rfc3987_syntax import nothing")
    assert done.returncode == 1
    assert "ImportError" in done.stderr
