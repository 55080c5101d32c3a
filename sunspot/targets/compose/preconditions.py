"""What a stack needs of a host with Docker Compose, each precondition on its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from sunspot.errors import SunspotError
from sunspot.ray import images
from sunspot.stack import Stack
from sunspot.targets.compose import engine_findings, plan, removing
from sunspot.targets.compose import host as hosts
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.records import Records
from sunspot.targets.compose.settings import ComposeSettings
from sunspot.targets.protocol import Finding, Progress

GIB = 2**30
# Ray's image unpacks to some 3 GB, the one for GPUs to some 10, and the others to 1.
IMAGES_GIB, GPU_IMAGES_GIB = 5, 16


def check(stack: Stack, folder: Path, records: Records, progress: Progress) -> list[Finding]:
    """Everything that a stack needs of the host; what needs an engine, only if one answers."""
    try:
        engine = Engine.current()
    except SunspotError as error:
        return [_failure("docker", error)]
    progress("asking the Docker engine")
    found = [_tried("docker", lambda: _versions(engine)), _tried("host", lambda: _where(engine))]
    if any(one.level == "failure" for one in found):
        return found
    return [
        *found,
        *engine_findings.check(engine),
        _tried("GPUs", lambda: _gpus(stack, engine)),
        *_toolkit(stack, engine),
        *_fit(stack, engine, folder),
        _tried("image", lambda: _image(stack, engine, folder)),
        _disk(stack, engine),
        _tried("others' clusters", lambda: _foreign(stack, records, engine)),
    ]


def _versions(engine: Engine) -> str:
    engine.check()
    server = engine.read("version", "--format", "{{.Server.Version}}").strip()
    return f"engine {server}, Compose {engine.read('compose', 'version', '--short').strip()}"


def _where(engine: Engine) -> str:
    ssh = engine.ssh
    return "this machine" if ssh is None else f"{engine.address}, through a tunnel"


def _gpus(stack: Stack, engine: Engine) -> str:
    found = _found(stack, engine)
    if found.maker == "none":
        return "logical" if _needs_gpus(stack) else "the stack has none"
    return f"{len(found.devices)} of {found.maker}: {', '.join(found.devices)}"


def _toolkit(stack: Stack, engine: Engine) -> list[Finding]:
    """Whether Docker can give containers the GPUs that nodes get, where these are NVIDIA's."""
    try:
        if _found(stack, engine).maker != "nvidia" or hosts.has_toolkit(engine):
            return []
    except SunspotError:  # told as a finding of its own
        return []
    return [
        Finding(
            check="container toolkit",
            level="warning",
            detail="NVIDIA's container toolkit was not found, by which Docker gives containers "
            "GPUs",
            remedy="install it, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo "
            "systemctl restart docker",
        )
    ]


def _found(stack: Stack, engine: Engine) -> hosts.Gpus:
    wanted = ComposeSettings.of(stack).host.gpu
    return hosts.gpus(engine, wanted, needed=_needs_gpus(stack))


def _needs_gpus(stack: Stack) -> bool:
    return any(node.gpu_count for node in plan.node_configs(stack))


def _fit(stack: Stack, engine: Engine, folder: Path) -> list[Finding]:
    """Whether the nodes fit, and what does not as the user may have thought."""
    name = "nodes"
    try:
        made = plan.of(stack, engine, folder)
    except SunspotError as error:
        return [_failure(name, error)]
    first = sum(node.starts for node in made.nodes)
    detail = f"{first} to start with, {len(made.nodes)} at most; {made.host.cpus} CPUs, "
    detail += f"{made.host.memory / GIB:.1f} GiB"
    notes = [Finding(check=name, level="warning", detail=note) for note in made.notes]
    return [Finding(check=name, level="ok", detail=detail), *notes]


def _image(stack: Stack, engine: Engine, folder: Path) -> str:
    build = images.build(stack, folder)
    if build is not None:
        return f"is built from {build.dockerfile}"
    arm = hosts.find(engine, "none", needs_gpus=False).arm
    return images.reference(stack, gpus=False, arm=arm) or ""


def _disk(stack: Stack, engine: Engine) -> Finding:
    """The disk of the engine's images, if it is this machine's."""
    name = "disk"
    root = Path(engine.read("info", "--format", "{{.DockerRootDir}}").strip())
    if engine.ssh is not None or not root.exists():
        return Finding(
            check=name, level="ok", detail=f"{root} on the host, which was not looked at"
        )
    free = shutil.disk_usage(root).free / GIB
    needed = GPU_IMAGES_GIB if _needs_gpus(stack) else IMAGES_GIB
    detail = f"{free:.0f} GiB free in {root}"
    if free >= needed:
        return Finding(check=name, level="ok", detail=detail)
    return Finding(
        check=name,
        level="warning",
        detail=f"{detail}; images that are not there yet may need {needed}",
        remedy="docker system df, docker image prune",
    )


def _foreign(stack: Stack, records: Records, engine: Engine) -> str:
    if stack.name not in records.folders.names():
        removing.refuse_foreign(records, stack.name, engine)
    return "none of that name"


def _tried(name: str, attempt: Callable[[], str]) -> Finding:
    """What an attempt says, or the failure that it raises."""
    try:
        return Finding(check=name, level="ok", detail=attempt())
    except SunspotError as error:
        return _failure(name, error)


def _failure(name: str, error: SunspotError) -> Finding:
    return Finding(check=name, level="failure", detail=str(error))
