"""A stack file's settings for one host with Docker Compose: its GPUs, and what runs beside Ray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field

from sunspot.errors import UsageError
from sunspot.problems import one_of
from sunspot.settings import Settings
from sunspot.spec_values import Config, Number, Text

# This target's name in sunspot/registry.py.
TARGET = "compose"

Maker = Literal["nvidia", "amd", "none"]
Gpu = Literal["auto", "nvidia", "amd", "none"]

# The services beside Ray whose image may be another one.
SERVICES = ("s3", "prometheus", "grafana", "jupyter")

# What containers already have: Ray's files, secrets, Sunspot's own modules, notebooks.
OURS = ("/tmp/ray", "/run/secrets", "/usr/local/lib/sunspot", "/home/ray/notebooks")  # noqa: S108

# The user of Ray's own images, and of ours: `ray`, in the group `users`.
RAY_USER = "1000:100"


def _user(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}:[0-9]{1,9}", text):
        raise UsageError(f"{text!r} is not a user: write UID:GID in numbers, such as {RAY_USER}")
    return text


def _images(images: dict[str, str]) -> dict[str, str]:
    for name in images:
        if name not in SERVICES:
            raise UsageError(f"{name!r} is not a service: choose {one_of(SERVICES)}")
    return images


def _data(folders: dict[str, str]) -> dict[str, str]:
    for inside in folders.values():
        if any(_contains(*pair) for own in OURS for pair in ((own, inside), (inside, own))):
            raise UsageError(
                f"{inside!r} is a place of Sunspot's: mount it elsewhere, as /mnt/NAME"
            )
    if len(set(folders.values())) < len(folders):
        raise UsageError("two folders have the same place in the containers: choose another")
    return folders


def _contains(folder: str, path: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def _folder(text: str) -> str:
    if not text.startswith("/") or ".." in PurePosixPath(text).parts:
        raise UsageError(f"{text!r} is not an absolute path: write one as /srv/data")
    return str(PurePosixPath(text))


def maker(text: str) -> Maker:
    """The maker of that name.

    Raises:
        UsageError: there is no such maker.
    """
    for known in get_args(Maker):
        if text == known:
            return known
    raise UsageError(f"--gpu {text!r} is not a maker of GPUs: choose {one_of(get_args(Maker))}")


def again(name: str) -> str:
    """The command that starts a stack here, and not where its file says, which may be billed."""
    return f"sunspot up {name} --target {TARGET}"


Folder = Annotated[Text, AfterValidator(_folder)]


class Host(Config, frozen=True):
    """How the cluster uses the host, and what runs there beside Ray."""

    gpu: Gpu = Field(
        default="auto",
        description="the GPUs that workers get: nvidia, amd, or none, which makes them logical; "
        "auto takes what the host has",
    )
    user: Annotated[Text, AfterValidator(_user)] = Field(
        default=RAY_USER, description="UID:GID of the user of the nodes' image"
    )
    monitoring: bool = Field(
        default=True, strict=True, description="whether Prometheus and Grafana run"
    )
    storage: bool = Field(
        default=True,
        strict=True,
        description="whether an S3 server runs, whose bucket is the default of the workloads",
    )
    jupyter: bool = Field(
        default=True,
        strict=True,
        description="whether Jupyter runs; its image is built from docker/jupyter.Dockerfile",
    )
    images: Annotated[dict[Text, Text], AfterValidator(_images)] = Field(
        default={},
        description="other images than Sunspot's own, by the service's name; one of jupyter is "
        "not built",
    )
    data: Annotated[dict[Folder, Folder], AfterValidator(_data)] = Field(
        default={},
        description="folders of the host that nodes and Jupyter can read, each with its place in "
        "the containers",
    )
    usd_per_hour: Number = Field(
        default=0.0, ge=0, description="what the host costs, in USD an hour, for the dashboards"
    )


class ComposeSettings(Settings, frozen=True):
    """The settings that only a cluster in Docker Compose has."""

    KEYS: ClassVar[Mapping[str, str]] = {"sunspot:compose": "host"}

    host: Host = Field(default=Host(), description="one host with Docker Compose")
