"""Tests skip where a part is absent, or fail where nothing may be left out."""

import os
import shutil
from collections.abc import Mapping

import pytest

# What CI sets, so that a skip becomes a failure.
NEED_DOCKER = "SUNSPOT_TESTS_NEED_DOCKER"

# Programs that the engine and its images take -> Debian's package of it.
ENGINE_PROGRAMS = {
    "dockerd": "docker.io",
    "containerd": "containerd",
    "docker-init": "tini",
    "docker-registry": "docker-registry",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "curl": "curl",
    "strip": "binutils",
}

# Debian's own, ahead of whatever else is installed here.
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def need_engine() -> None:
    """Skips the test where no Docker engine can be started."""
    need(ENGINE_PROGRAMS, NEED_DOCKER)


def need(programs: Mapping[str, str], variable: str) -> None:
    """Skips the test where root or a program is missing; fails where `variable` is set."""
    reason = why_not(programs)
    if reason:
        pytest.fail(reason) if os.environ.get(variable) else pytest.skip(reason)


def why_not(programs: Mapping[str, str]) -> str | None:
    """What is missing here, None where nothing is."""
    if os.geteuid() != 0:
        return "needs root"
    missing = {p for name, p in programs.items() if shutil.which(name, path=SYSTEM_PATH) is None}
    return f"needs Debian's packages {', '.join(sorted(missing))}" if missing else None
