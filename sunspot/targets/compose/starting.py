"""Starting a cluster's containers: their images, their health, and Ray's members."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from sunspot.errors import SunspotError
from sunspot.ray.handle import ClusterHandle
from sunspot.spec_values import HEAD
from sunspot.targets import members
from sunspot.targets.compose import containers, secret_files
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.records import Record
from sunspot.targets.protocol import Progress

POLL_S = 0.5

# What `ray start` says where a busy host's raylet took too long, or its agent, without which the
# raylet ends after 15 s (ray/_private/node.py and scripts.py, 2.60; ray-project/ray#65983).
TOO_SLOW = ("timed out during startup", "subprocesses exited unexpectedly")


def fetch_images(
    engine: Engine, record: Record, folder: Path, progress: Progress, *, build: bool
) -> None:
    """Builds the images that are built here, and pulls those that the host lacks.

    Args:
        engine: the engine.
        record: the cluster's record.
        folder: its folder.
        progress: called with each step.
        build: whether to build also what the host has: its Dockerfile may have changed.

    Raises:
        SunspotError: one of them is not to be had, or the disk is full.
    """
    lacking = [] if build else _lacking(engine, record, folder)
    builds = [service for service in record.builds if build or service in lacking]
    for service in builds:
        progress(f"building the image of {service}")
        engine.compose(record.project, "build", service, folder=folder, progress=progress)
    if build or builds:  # services may share an image
        lacking = _lacking(engine, record, folder)
    if lacking:
        progress("pulling the images that the host lacks")
        engine.compose(record.project, "pull", *lacking, folder=folder, progress=progress)


def _lacking(engine: Engine, record: Record, folder: Path) -> list[str]:
    """The services whose image the engine lacks.

    `docker compose pull --policy missing` also asks a registry for each image without a tag
    (pkg/compose/pull.go, 2.40), and no registry has those that were built here.
    """
    images = engine.images(record.project, _services(record), folder)
    lacks = {image: not engine.inspect(image, kind="image") for image in set(images.values())}
    return [service for service, image in images.items() if lacks[image]]


def start(
    engine: Engine,
    record: Record,
    folder: Path,
    progress: Progress,
    timeout_s: float,
    only: Collection[str] = (),
    *,
    recreate: bool = False,
) -> None:
    """Starts containers and returns when all are healthy; a node that was too slow, once more.

    Args:
        engine: the engine.
        record: the cluster's record.
        folder: its folder.
        progress: called with each step.
        timeout_s: seconds that it may take.
        only: the services to start; by default all that are wanted.
        recreate: whether those whose image or file has changed since are made anew; Compose would
            do so by itself, and a new head is a new cluster.

    Raises:
        SunspotError: one of them ended, or did not become healthy in time.
    """
    progress("starting the containers")
    deadline = time.monotonic() + timeout_s
    try:
        _up(engine, record, folder, progress, timeout_s, only, recreate=recreate)
    except SunspotError as error:
        ended = _ended(engine, record, set(only) or set(record.wanted))
        slow = [name for name, log in ended.items() if any(sign in log for sign in TOO_SLOW)]
        left = deadline - time.monotonic()
        if not slow or left < 1:
            raise _with_logs(error, ended) from error
        progress(f"Ray gave up starting {', '.join(slow)}, as on a busy host: once more")
        _up(engine, record, folder, progress, left, only)
    progress("the containers are healthy")


def _up(
    engine: Engine,
    record: Record,
    folder: Path,
    progress: Progress,
    timeout_s: float,
    only: Iterable[str],
    *,
    recreate: bool = False,
) -> None:
    engine.compose(
        record.project,
        *("up", "--detach", "--no-build", "--wait", "--wait-timeout", str(int(timeout_s))),
        *(() if recreate else ("--no-recreate",)),
        *(only or _services(record)),
        folder=folder,
        progress=progress,
        secrets=secret_files.variables(folder),
        timeout_s=timeout_s + POLL_S,
    )


def _ended(engine: Engine, record: Record, started: Collection[str]) -> dict[str, str]:
    """The ends of the logs of the nodes that have ended; none where Docker is silent."""
    try:
        found = containers.by_service(engine.containers(record.project))
        nodes = [found[name] for name in record.wanted if name in found and name in started]
        return {one.service: containers.tail(engine, one) for one in nodes if one.state == "exited"}
    except SunspotError:
        return {}


def _with_logs(error: SunspotError, ended: Mapping[str, str]) -> SunspotError:
    """The error with the logs: the containers, and these with them, may be removed next."""
    logs = "".join(f"\nThe end of the log of {name}:\n{log}" for name, log in ended.items())
    return type(error)(f"{error}{logs}")


def remove_if_headless(engine: Engine, record: Record, folder: Path, progress: Progress) -> None:
    """Removes all Ray nodes if the head has ended: they would belong to no cluster any more."""
    found = containers.by_service(engine.containers(record.project))
    if HEAD in found and found[HEAD].state == "running":
        return
    progress("the head has ended: starting all nodes anew")
    left = [name for name in record.wanted if name in found]
    if not left:  # without names, `rm` would mean all services
        return
    engine.compose(
        record.project, "rm", "--force", "--stop", *left, folder=folder, progress=progress
    )


def wait_until_joined(handle: ClusterHandle, names: Collection[str], deadline: float) -> None:
    """Returns when the job API answers and nodes are members.

    Args:
        handle: the cluster's handle.
        names: the nodes.
        deadline: by time.monotonic().

    Raises:
        SunspotError: that did not happen in time.
    """
    while missing := not_joined(handle, names):
        if time.monotonic() > deadline:
            raise SunspotError(f"timed out: {missing}")
        time.sleep(POLL_S)


def not_joined(handle: ClusterHandle, names: Collection[str]) -> str:
    """Which of these nodes are not members, in words; "" if all are."""
    listed = containers.members(handle)
    if not listed:
        return "the head's job API does not answer yet"
    missing = sorted(set(names) - members.addresses(listed).keys())
    return f"{', '.join(missing)} did not join" if missing else ""


def _services(record: Record) -> list[str]:
    return [*record.wanted, *record.services]
