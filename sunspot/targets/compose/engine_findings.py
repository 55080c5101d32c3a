"""What an engine is like that a user should know before a cluster runs on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sunspot.errors import SunspotError
from sunspot.targets.compose.engine import Engine
from sunspot.targets.protocol import Finding

# Its seccomp profile is the first to let the C library of newer images ask for clone3
# (moby/moby#42680).
OLDEST = (20, 10, 10)
# The first whose rules keep other hosts of the same network segment from ports on 127.0.0.1
# (docs.docker.com, engine/network/port-publishing), and the first where they outlast a reload of
# firewalld (CVE-2025-54388).
KEEPS_LOOPBACK, RECOMMENDED = (28, 0, 0), "28.3.3"

_SNAP = "/var/snap/"

# By the names in `docker info`'s SecurityOptions.
_OPTIONS = {
    "rootless": (
        (
            "the engine is rootless, and a user's processes have no limits of CPUs by default, so "
            "nodes may not start"
        ),
        (
            "delegate the controllers cpu, cpuset, io, memory and pids to users, as Docker's page "
            "on rootless mode says"
        ),
    ),
    "selinux": (
        "SELinux keeps containers from folders and devices that are not labelled for them",
        (
            "for folders of `data`: chcon -Rt container_file_t FOLDER; for AMD's GPUs: setsebool "
            "-P container_use_devices on"
        ),
    ),
    "userns": (
        (
            "the engine gives containers other users (userns-remap), who may not read folders of "
            "`data` or open AMD's GPUs"
        ),
        "let everyone read the folders of `data`; for AMD's GPUs switch it off",
    ),
}


def check(engine: Engine) -> Iterator[Finding]:
    """A warning for each, in no case a failure."""
    try:
        info = json.loads(engine.read("info", "--format", "{{json .}}"))
    except (SunspotError, ValueError):  # told as findings of their own
        return
    yield from _of_version(info.get("ServerVersion") or "")
    if str(info.get("DockerRootDir")).startswith(_SNAP):
        yield _warning(
            "Docker is a snap, which cannot read hidden folders, where Sunspot keeps compose.yaml",
            "install Docker's own packages, or set SUNSPOT_STATE_DIR to a folder of your home that "
            "is not hidden",
        )
    yield from _of_options(info)


def _of_version(version: str) -> Iterator[Finding]:
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if not numbers:  # of one that was built by hand
        return
    server = tuple(map(int, numbers.groups()))
    if server < OLDEST:
        yield _warning(
            f"the engine is {version}, whose seccomp profile newer images do not start with",
            f"install {RECOMMENDED} or newer",
        )
    if server < KEEPS_LOOPBACK:
        yield _warning(
            f"the engine is {version}: before 28 other hosts of the same network segment can reach "
            "ports that are published on 127.0.0.1",
            f"install {RECOMMENDED} or newer, or trust that segment",
        )


def _of_options(info: dict[str, Any]) -> Iterator[Finding]:
    given = {
        field.removeprefix("name=")
        for option in info.get("SecurityOptions") or ()
        for field in option.split(",")
    }
    for name, (detail, remedy) in _OPTIONS.items():
        if name in given:
            yield _warning(detail, remedy)


def _warning(detail: str, remedy: str) -> Finding:
    return Finding(check="engine", level="warning", detail=detail, remedy=remedy)
