"""Stands on the path before the package of the same name, and imports that when it is called.

The package builds a grammar when it is imported, 1.7 s of CPU (1.1.0). It comes with Jupyter;
jsonschema imports it wherever it is installed (jsonschema/_format.py), and each of Ray's Python
processes imports jsonschema: the dozen that a head starts took 17 to 28 s instead of 6.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any


def _found() -> ModuleSpec:
    """Where the package itself is.

    Raises:
        ModuleNotFoundError: it is not installed in this environment.
    """
    own = Path(__file__).resolve().parent
    others = [folder for folder in sys.path if Path(folder or ".").resolve() != own]
    spec = PathFinder.find_spec(__name__, others)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
    return spec


# So that `rfc3987_syntax.syntax_helpers` is the package's own.
__path__ = list(_found().submodule_search_locations or ())


def is_valid_syntax(term: str, value: str) -> bool:
    """Whether a value is of a term of RFC 3987: the one function that jsonschema imports."""
    return __getattr__("is_valid_syntax")(term, value)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.syntax_helpers"), name)
