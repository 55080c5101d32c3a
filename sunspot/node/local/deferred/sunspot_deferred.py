"""What the modules beside it share: each stands on the path before the package of its name.

Each Python process that Ray starts on a head imports these packages without using them.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

_FOLDER = Path(__file__).resolve().parent
_lock = Lock()


def folders_of(name: str) -> list[str]:
    """Where a package itself is, so that its submodules are found without importing all of it.

    Raises:
        ModuleNotFoundError: it is not installed in this environment.
    """
    spec = PathFinder.find_spec(name, _path_without_ours())
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return list(spec.submodule_search_locations or ())


def attributes_of(name: str) -> Callable[[str], Any]:
    """A `__getattr__` for the module of this name, which imports the package.

    Python's import asks a module for other dunder names, without a use of the package behind it.
    """

    def attribute(wanted: str) -> Any:
        if wanted.startswith("__") and wanted not in ("__all__", "__version__"):
            raise AttributeError(wanted)
        return getattr(package(name), wanted)

    return attribute


def package(name: str) -> ModuleType:
    """The package itself. From here on, this process imports those of all these names."""
    with _lock:
        sys.path[:] = _path_without_ours()
        module = sys.modules.get(name)
        if module is not None and Path(module.__file__ or "").resolve().parent == _FOLDER:
            del sys.modules[name]
    return import_module(name)


def _path_without_ours() -> list[str]:
    return [folder for folder in sys.path if Path(folder or ".").resolve() != _FOLDER]
