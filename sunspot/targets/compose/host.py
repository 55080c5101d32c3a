"""The host that Docker runs on: its CPUs, its memory, and the GPUs that containers can be given."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.settings import Gpu, Maker
from sunspot.targets.ssh import UnreachableError

ASK_TIMEOUT_S = 30.0

# Linux's word, and Docker Desktop's on macOS.
_ARM = ("aarch64", "arm64")

KFD = "/dev/kfd"
# How each maker's GPUs are known to be there. AMD's driver brings only the device: ROCm's tools are
# packages of their own, and rocm-smi is not among those of ROCm 10 any more.
_SIGNS: dict[Maker, str] = {
    "nvidia": "command -v nvidia-smi",
    "amd": f"test -e {KFD} || command -v amd-smi || command -v rocm-smi",
}
# Of Windows, which has no NVIDIA device files: the toolkit gives a container all GPUs at once.
_WSL = "test -e /dev/dxg"
# The kernel's own list of AMD's GPUs: each has the number of its /dev/dri/renderD (amdkfd,
# kfd_topology.c); what is no GPU has 0 there.
_TOPOLOGY = "cat /sys/class/kfd/kfd/topology/nodes/*/properties"
# A line of /proc/net/tcp: its number, the address and port, the other's, and the state; 0A is
# listening (the kernel's Documentation/networking/proc_net_tcp.rst).
_LISTENING = re.compile(r"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A ", re.MULTILINE)
_RENDER_NODE = re.compile(r"^drm_render_minor (\d+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The GPUs of a host.

    Attributes:
        maker: who made them; "none" for GPUs that are only numbers.
        devices: NVIDIA's indices ("0"), or AMD's device files ("/dev/dri/renderD128").
        groups: the ids of the groups that may open AMD's device files.
        divisible: whether a container can be given one of them without the others.
    """

    maker: Maker
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    divisible: bool = True


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host's CPUs, its memory in bytes, its GPUs, and whether it is an Arm machine."""

    cpus: int
    memory: int
    gpus: Gpus
    arm: bool = False


def find(engine: Engine, gpu: Gpu, *, needs_gpus: bool) -> Host:
    """The host of an engine, which need not answer if it is this machine.

    Args:
        engine: the engine.
        gpu: whose GPUs are to be used; "auto" for those that are there.
        needs_gpus: whether the stack has nodes with GPUs.

    Raises:
        UsageError: it does not have these GPUs.
        SunspotError: it cannot be asked.
    """
    cpus, memory, architecture = _size(engine)
    found = gpus(engine, gpu, needed=needs_gpus)
    return Host(cpus=cpus, memory=memory, gpus=found, arm=architecture in _ARM)


def gpus(engine: Engine, gpu: Gpu, *, needed: bool) -> Gpus:
    """The host's GPUs, of the given maker. Arguments and errors as for `find`."""
    if gpu == "none" or (gpu == "auto" and not needed):
        return Gpus(maker="none")
    maker = _present(engine) if gpu == "auto" else gpu
    if maker is None:
        raise UsageError(
            f"the stack has nodes with GPUs, but this host has neither nvidia-smi nor {KFD}: "
            "install the driver of its GPUs, or make them logical by sunspot:compose: {gpu: none}"
        )
    return _of_amd(engine) if maker == "amd" else _of_nvidia(engine)


def check_folders(engine: Engine, folders: Iterable[str]) -> None:
    """Checks that the host has these folders.

    Raises:
        UsageError: it lacks some; the message names them.
    """
    lacks = [one for one in folders if _ask(engine, f"test -d {shlex.quote(one)}") is None]
    if lacks:
        raise UsageError(
            f"config > sunspot:compose > data: this host has no folder {', '.join(lacks)}: make "
            "it, or name another"
        )


def has_toolkit(engine: Engine) -> bool:
    """Whether a host has NVIDIA's container toolkit.

    Docker gives containers NVIDIA's GPUs by its hook (daemon/devices_nvidia_linux.go, 28.5).
    """
    asked = "command -v nvidia-container-runtime-hook || command -v nvidia-ctk"
    return _ask(engine, asked) is not None


def listening_ports(engine: Engine) -> set[int]:
    """The host's TCP ports on which something listens; none where that cannot be read."""
    shown = _ask(engine, "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; true") or ""
    return {int(port, 16) for port in _LISTENING.findall(shown)}


def _size(engine: Engine) -> tuple[int, int, str]:
    # An engine that does not answer is not always told apart: Docker 20 fails in its template.
    with contextlib.suppress(SunspotError):
        asked = "{{.NCPU}} {{.MemTotal}} {{.Architecture}}"
        cpus, memory, architecture = engine.read("info", "--format", asked).split()
        return int(cpus), int(memory), architecture
    if engine.ssh is not None:
        engine.check()
    return os.cpu_count() or 1, psutil.virtual_memory().total, platform.machine()


def _present(engine: Engine) -> Maker | None:
    for maker, sign in _SIGNS.items():
        if _ask(engine, sign) is not None:
            return maker
    return None


def _of_nvidia(engine: Engine) -> Gpus:
    found = _ask(engine, "nvidia-smi --query-gpu=index --format=csv,noheader") or ""
    devices = tuple(line.strip() for line in found.splitlines() if line.strip().isdecimal())
    if not devices:
        raise _none_of("NVIDIA", "nvidia-smi")
    return Gpus(maker="nvidia", devices=devices, divisible=_ask(engine, _WSL) is None)


def _of_amd(engine: Engine) -> Gpus:
    numbers = sorted(set(map(int, _RENDER_NODE.findall(_ask(engine, _TOPOLOGY) or ""))) - {0})
    devices = tuple(f"/dev/dri/renderD{number}" for number in numbers)
    if not devices:
        raise _none_of("AMD", f"ls {KFD} /dev/dri")
    groups = (_ask(engine, f"stat --format=%g {KFD} {' '.join(devices)}") or "").split()
    return Gpus(maker="amd", devices=devices, groups=tuple(dict.fromkeys(groups)))


def _none_of(maker: str, tool: str) -> UsageError:
    return UsageError(
        f"this host shows no GPU of {maker}: see what `{tool}` says there, choose another --gpu, "
        "or make GPUs logical by sunspot:compose: {gpu: none}"
    )


def _ask(engine: Engine, line: str) -> str | None:
    """What a line for the host's shell prints; None if it fails."""
    if (ssh := engine.ssh) is not None:
        try:
            return ssh.read("sh", "-c", line)
        except UnreachableError:
            raise
        except SunspotError:
            return None
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=ASK_TIMEOUT_S,
    )
    return done.stdout if done.returncode == 0 else None
