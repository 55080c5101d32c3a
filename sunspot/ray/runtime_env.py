"""A job's runtime environment, from a file and from flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sunspot import yaml_files
from sunspot.errors import UsageError
from sunspot.ray.packages import Packages

# With "1", what a program's own ray.init(runtime_env=...) says wins over the job's; otherwise Ray
# refuses a program that names a working directory, since its job has one (worker.py, 2.60).
PROGRAM_WINS = "RAY_OVERRIDE_JOB_RUNTIME_ENV"


def load(
    file: Path | None,
    variables: Sequence[str],
    working_dir: str | None,
    packages: Packages | None = None,
) -> dict[str, Any]:
    """The job's runtime environment: a file, checked by Ray, and what the flags add to it.

    Flags override the file, except that packages of both are installed. Where neither says more
    than a working directory, the program's own environment wins over that. `working_dir` may still
    be a local path.

    Raises:
        UsageError: a file is missing or wrong, a variable is not of the form NAME=VALUE, or the
            packages are not what `Packages` takes.
    """
    env = read(file) if file else {}
    if packages is not None:
        env = packages.added_to(env)
    if modules := [m for m in env.get("py_modules", []) if "://" not in str(m)]:
        raise UsageError(
            f"py_modules {modules} are local paths; put them into the working directory"
        )
    pairs = dict(_pair(variable) for variable in variables)
    if pairs:
        env["env_vars"] = env.get("env_vars", {}) | pairs
    if not env.keys() - {"working_dir"}:  # otherwise Ray tells of a conflict, and nothing is lost
        env["env_vars"] = {PROGRAM_WINS: "1"}
    if working_dir is not None or "working_dir" not in env:
        env["working_dir"] = working_dir or "."
    return env


def read(file: Path) -> dict[str, Any]:
    """The runtime environment in a file, checked by Ray.

    Raises:
        UsageError: the file is missing or wrong.
    """
    env = yaml_files.load_given(file, "the runtime environment ")
    if not isinstance(env, dict):
        raise UsageError(f"{file} must hold a mapping such as {{pip: [numpy]}}, not {env!r}")
    from ray.runtime_env import RuntimeEnv  # late, since importing it takes half a second

    try:
        return dict(RuntimeEnv(**env).to_dict())
    except (TypeError, ValueError) as error:
        raise UsageError(f"{file}: {error}") from error


def _pair(variable: str) -> tuple[str, str]:
    name, equals, value = variable.partition("=")
    if not name or not equals:
        raise UsageError(f"--env {variable!r} is not of the form NAME=VALUE")
    return name, value
