"""The nodes' container images, and which of them the stack's registry gets copies of.

All nodes of a stack have one public address, from which Docker Hub allows 100 anonymous pulls in
six hours (its page "Usage and limits"). So one run of a task of the registry copies the images,
and nodes pull the copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from sunspot.errors import UsageError
from sunspot.monitoring import GRAFANA, PROMETHEUS

ON_EVERY_HEAD = (PROMETHEUS, GRAFANA)

HUB_PULLS = 100
"""The anonymous pulls that Docker Hub allows one address in six hours."""

HUB = "docker.io"
_HUB_HOSTS = frozenset({HUB, "index.docker.io", "registry-1.docker.io"})

# The grammar of references (github.com/distribution/reference), after the registry's host.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IN_HUB = re.compile(
    rf"(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@sha256:(?P<digest>[0-9a-f]{64}))?",
    re.ASCII,
)
_OF_RAY = re.compile(r"(?:^|/)rayproject/ray(?:-ml)?:(?P<version>\d+\.\d+\.\d+)(?![\w.])")

# A tag has at most 128 characters, of which a digest's share takes these.
_DIGEST_SHOWN = 12
_TAG_KEPT = 100

# Seconds for one step, and for the whole run: Ray's image for GPUs unpacks to some 10 GB.
STEP_S = 1800
RUN_S = 7200
# A pull from an address that all customers of the region share may be refused for a while.
PULL_RETRIES = 4
PULL_RETRY_S = 60


@dataclass(frozen=True, kw_only=True)
class Copy:
    """An image of Docker Hub by its full name, and its name in the stack's registry.

    The second contains a part of the digest where the first has one, so that another digest is
    another name.
    """

    source: str
    name: str

    @property
    def repository(self) -> str:
        """The image's name on Docker Hub, without its tag: `rayproject/ray`."""
        return self.name.partition(":")[0]


def host_and_rest(reference: str) -> tuple[str, str]:
    """The host of a reference's registry, HUB for all of Docker Hub's, and what follows it.

    A reference without a host is one of Docker Hub (github.com/distribution/reference).
    """
    host, _, rest = reference.partition("/")
    if not rest or not ({".", ":"} & set(host) or host == "localhost"):
        return HUB, reference
    return (HUB if host in _HUB_HOSTS else host), rest


def in_hub(path: str) -> str:
    """The whole name of a repository on Docker Hub, where `ubuntu` is `library/ubuntu`."""
    return path if "/" in path else f"library/{path}"


def copy_of(reference: str) -> Copy | None:
    """The copy of an image; None if it is not on Docker Hub, where no limit is known.

    Raises:
        UsageError: an image on Docker Hub cannot have this name.
    """
    host, rest = host_and_rest(reference)
    if host != HUB:
        return None
    found = _IN_HUB.fullmatch(rest)
    if found is None:
        raise UsageError(
            f"{reference!r} is not an image on Docker Hub: write REPOSITORY:TAG, the repository in "
            "lower case, or put the host of another registry first"
        )
    path, tag, digest = in_hub(found["path"]), found["tag"], found["digest"]
    if digest is None:
        tag = tag or "latest"
        return Copy(source=f"{HUB}/{path}:{tag}", name=f"{path}:{tag}")
    shown = digest[:_DIGEST_SHOWN]
    ours = f"{tag[:_TAG_KEPT]}-{shown}" if tag else shown
    return Copy(source=f"{HUB}/{path}@sha256:{digest}", name=f"{path}:{ours}")


def check_ray(reference: str | None, ray_version: str) -> None:
    """Checks that an image of Ray's own, whose tag says which Ray it has, has the stack's.

    Raises:
        UsageError: it has another.
    """
    found, wanted = _OF_RAY.search(reference or ""), ray_version.removeprefix("v")
    if found is not None and found["version"] != wanted:
        raise UsageError(
            f"config > sunspot:image > reference: {reference!r} has Ray {found['version']}, and "
            f"the stack has Ray {wanted}: name a tag that begins with {wanted}, or leave reference "
            "out"
        )


def copies_of(references: Iterable[str]) -> tuple[Copy, ...]:
    """The copies of those images that are on Docker Hub, each once, in their order.

    Raises:
        UsageError: as `copy_of` does.
    """
    return tuple(dict.fromkeys(copy for one in references if (copy := copy_of(one)) is not None))


def pulled(reference: str, copies: Iterable[Copy], registry: str | None) -> str:
    """The name by which nodes pull an image: that of its copy where there is one."""
    copy = copy_of(reference)
    if copy is None or copy not in set(copies):
        return reference
    return f"{registry}/{copy.name}"


def task(copies: Iterable[Copy]) -> str:
    """The task that copies them, in the format of ACR Tasks ("ACR Tasks reference: YAML").

    Docker on the run's machine is logged in to the registry; `$Registry` is the registry's host.
    """
    steps = [step for copy in copies for step in _steps(copy)]
    document = {"version": "v1.1.0", "stepTimeout": STEP_S, "steps": steps}
    return yaml.safe_dump(document, sort_keys=False, width=1000)


def _steps(copy: Copy) -> list[dict[str, object]]:
    ours = f"$Registry/{copy.name}"
    return [
        {
            "cmd": f"docker pull --quiet {copy.source}",
            "retries": PULL_RETRIES,
            "retryDelay": PULL_RETRY_S,
        },
        {"cmd": f"docker tag {copy.source} {ours}"},
        {"push": [ours]},
    ]
