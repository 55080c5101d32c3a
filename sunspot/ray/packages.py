"""The packages that a job brings along, and which one is missing where a job ended without it.

Ray installs them on each node that the job uses, in an environment of the job's own (docs.ray.io,
"Environment Dependencies").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sunspot import yaml_files
from sunspot.errors import UsageError

# What pip would read from a folder or file beside the requirements, which the nodes do not have.
_LOCAL = re.compile(r"-[rce]|--requirement|--constraint|--editable|\.{0,2}/")

_MISSING = re.compile(r"ModuleNotFoundError: No module named ['\"]([\w.]+)['\"]")

# Modules that come from a package of another name.
_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


@dataclass(frozen=True, kw_only=True)
class Packages:
    """What --pip, --requirements and --conda of `sunspot submit` give."""

    pip: Sequence[str] = ()
    requirements: Path | None = None
    conda: Path | None = None

    def added_to(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """The runtime environment with these packages; those of its own `pip` stay.

        Raises:
            UsageError: a file is missing or wrong, or pip and conda are both asked for.
        """
        wanted = [*self._requirements(), *map(_package, self.pip)]
        managers = {name for name in ("pip", "uv", "conda") if env.get(name)}
        managers |= {"pip"} if wanted else set()
        managers |= {"conda"} if self.conda else set()
        if len(managers) > 1:
            raise UsageError(
                f"{' and '.join(sorted(managers))} are both asked for, and Ray installs packages "
                "by one of them: keep one (a conda file may list pip packages itself)"
            )
        if self.conda:
            return {**env, "conda": _mapping(self.conda)}
        if not wanted:
            return dict(env)
        given = env.get("pip") or {"packages": []}
        return {**env, "pip": {**given, "packages": [*given["packages"], *wanted]}}

    def _requirements(self) -> list[str]:
        if self.requirements is None:
            return []
        lines = [line.strip() for line in _text(self.requirements).splitlines()]
        for number, line in enumerate(lines, start=1):
            if _LOCAL.match(line):
                raise UsageError(
                    f"{self.requirements}, line {number}: {line!r} names a file or folder of this "
                    "machine, which the nodes do not have: write the packages themselves"
                )
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise UsageError(f"{self.requirements} names no package: add one, or leave it out")
        return found


# How a package is added to what runs.
OF_JOB = "to the job: sunspot submit --pip {package} ..., or --requirements FILE"
OF_APPLICATION = "to the application: runtime_env: {{pip: [{package}]}} in Serve's config"


def missing_module(log: str, how: str = OF_JOB) -> str | None:
    """What to say of what failed because a module was missing; None if none was.

    Args:
        log: the end of its log.
        how: how a package is added to it, with the place of the package's name.
    """
    found = _MISSING.findall(log)
    if not found:
        return None
    module = found[-1]
    top = module.partition(".")[0]
    return (
        f"module {module!r} is not on the cluster. If it is a package's, add that "
        f"{how.format(package=_PACKAGES.get(top, top))}. If it is a file of yours, it must be in "
        "the working directory, and not be excluded by .gitignore or .rayignore"
    )


def _package(name: str) -> str:
    if not name.strip() or name.startswith("-") or _LOCAL.match(name):
        raise UsageError(
            f"--pip {name!r} is not a package: give one as pip knows it, such as numpy or "
            "'numpy>=2'; a list of them with --requirements FILE"
        )
    return name.strip()


def _mapping(file: Path) -> dict[str, Any]:
    try:
        found = yaml_files.load(file)
    except OSError as error:
        raise _unreadable(file, error) from error
    except yaml_files.TooLargeError as error:
        raise UsageError(f"{file}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(
            f"{file} must hold a mapping such as {{dependencies: [numpy]}}, not {found!r}"
        )
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise _unreadable(file, error) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not text: {error}") from error


def _unreadable(file: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot read {file}: {error.strerror}")
