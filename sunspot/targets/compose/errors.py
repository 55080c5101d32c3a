"""What Docker and its Compose plugin complain of, with what mends it."""

from __future__ import annotations

from dataclasses import dataclass

from sunspot.errors import SunspotError, UsageError

INSTALL = "https://docs.docker.com/engine/install"


class EngineError(UsageError):
    """No Docker engine answers: none is installed or running, or this user may not use it."""


class MissingPluginError(UsageError):
    """The `docker` command has no Compose plugin."""


@dataclass(frozen=True)
class _Cause:
    """A cause, known by any of some `signs` in lower case; `{said}` is what Docker said."""

    signs: tuple[str, ...]
    message: str
    kind: type[SunspotError] = SunspotError


# The first whose sign is in the text. The signs are those of Docker 20 to 28 and Compose 2.
_CAUSES = (
    _Cause(
        (
            "is not a docker command",
            "unknown command: docker compose",
            "unknown shorthand flag: 'p' in -p",
            "unknown flag: --project-name",
        ),
        "this `docker` has no Compose plugin: install it (package docker-compose-plugin of Docker, "
        "or docker-compose-v2 of Ubuntu). docker-compose 1 is too old",
        MissingPluginError,
    ),
    _Cause(
        ("permission denied while trying to connect",),
        "this user may not use the Docker engine. Add the user to its group and log in again: "
        "sudo usermod -aG docker $USER (its members can become root on this host)",
        EngineError,
    ),
    _Cause(
        ("kex_exchange_identification", "connection closed by"),
        "the host's SSH server has closed a connection: {said}. If it takes only few at a time, "
        "share one (ControlMaster in ~/.ssh/config, see docs/one-host.md), or raise MaxStartups in "
        "its sshd_config",
        EngineError,
    ),
    _Cause(
        (
            "cannot connect to the docker daemon",
            "is the docker daemon running",
            "error during connect",
            "failed to connect to the docker api",
            "command [ssh",
        ),
        "no Docker engine answers ({said}). Start it: sudo systemctl start docker. Or name another "
        "with DOCKER_HOST",
        EngineError,
    ),
    _Cause(
        ("port is already allocated", "address already in use", "ports are not available"),
        "a port of the host is taken: {said}. Take down what uses it; only the dashboard's can be "
        "chosen, with --dashboard-port",
    ),
    _Cause(
        ("no space left on device", "disk quota exceeded"),
        "the disk that Docker stores images and volumes on is full: {said}. Free some space there: "
        "docker system df, docker image prune",
    ),
    _Cause(
        ("could not select device driver", "nvidia-container-cli", "unresolvable cdi devices"),
        "Docker cannot give containers NVIDIA GPUs: {said}. Install NVIDIA's container toolkit, "
        "then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    ),
    _Cause(
        ("error gathering device information", "no such file or directory: /dev/kfd"),
        "the host lacks a device that a worker gets: {said}. Is AMD's driver loaded? See: "
        "ls /dev/dri",
    ),
    _Cause(
        ("bind source path does not exist",),
        "the host lacks a folder that nodes get: {said}. Make it, or name another in "
        "sunspot:compose > data",
    ),
    _Cause(
        ("manifest unknown", "pull access denied", "repository does not exist", "manifest for "),
        "an image cannot be pulled: {said}. Name one that exists in sunspot:image, or log in to "
        "its registry: docker login",
    ),
    _Cause(
        ("toomanyrequests",),
        "Docker Hub allows no more pulls for now: {said}. Wait, or log in: docker login",
    ),
)

_LINES = 3


def explained(said: str, what: str) -> SunspotError:
    """The error for a command of Docker's that failed.

    Args:
        said: what it printed.
        what: what failed, as the beginning of a sentence, for causes that are not known.
    """
    text = said.lower()
    short = _short(said)
    for cause in _CAUSES:
        if any(sign in text for sign in cause.signs):
            return cause.kind(cause.message.replace("{said}", short))
    return SunspotError(f"{what}: {short or 'it printed no error'}")


def no_docker() -> EngineError:
    """The error where there is no `docker` command."""
    return EngineError(
        "there is no `docker` on this machine. Install Docker with its Compose plugin "
        f"({INSTALL}), or use another target"
    )


def _short(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    return "; ".join(lines[-_LINES:]).removesuffix(".")
