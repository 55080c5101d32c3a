"""The container image: whether its registry has the tag, as a machine without a login sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import requests

from sunspot.errors import SunspotError
from sunspot.targets.azure import images
from sunspot.targets.azure.doctor.findings import failure, not_checked, ok, unreachable
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.protocol import Finding

IMAGE = "image"
TIMEOUT_S = 20.0

# The host of Docker Hub's API, which is not the one in its images' names.
DOCKER_HUB = "registry-1.docker.io"

# What a tag may lead to: OCI's and Docker's indexes and manifests.
_KINDS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image reference in its parts; `version` is a tag or a digest."""

    host: str
    name: str
    version: str


def parse(text: str) -> Reference:
    """The parts of a reference, with Docker's defaults for those that it leaves out."""
    host, rest = images.host_and_rest(text)
    tagged, _, digest = rest.partition("@")
    name, _, tag = tagged.partition(":")
    if host == images.HUB:
        host, name = DOCKER_HUB, images.in_hub(name)
    return Reference(host=host, name=name, version=digest or tag or "latest")


def exists(plan: AzurePlan) -> Iterator[Finding]:
    """Whether each image of the plan can be pulled without a login.

    Raises:
        SunspotError: a registry did not answer.
    """
    if plan.build is not None:
        yield ok(IMAGE, f"built from {plan.build.context} by `up`, which needs Docker")
        return
    machines = [plan.head, *(pool.machine for pool in plan.pools)]
    for text in dict.fromkeys(machine.image for machine in machines if machine.image):
        yield _checked(text)


def _checked(text: str) -> Finding:
    check, reference = f"{IMAGE} {text}", parse(text)
    try:
        status = _ask(reference)
    except requests.RequestException as error:
        raise SunspotError(f"{reference.host} did not answer ({unreachable(error)})") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SunspotError(f"{reference.host} is not a registry of images ({error!r})") from error
    match status:
        case 200:
            return ok(check, "can be pulled")
        case 404:
            return failure(
                check,
                f"{reference.host} has no {reference.version} of {reference.name}",
                "name one that exists in sunspot:image > reference",
            )
        case 401 | 403:
            return not_checked(
                check,
                "it is private, or does not exist; the machines have no login for it",
                "make it public, or build it in the stack's own registry (sunspot:image > context)",
            )
    return not_checked(check, f"{reference.host} answered {status}")


def _ask(reference: Reference) -> int:
    """The status of the manifest, with the token that the registry gives to anybody."""
    url = f"https://{reference.host}/v2/{reference.name}/manifests/{reference.version}"
    headers = {"Accept": _KINDS}
    # HEAD, which Docker Hub does not count as a pull.
    answer = _send("HEAD", url, headers)
    challenge = answer.headers.get("WWW-Authenticate", "")
    if answer.status_code != 401 or not challenge.lower().startswith("bearer "):
        return answer.status_code
    given = dict(_CHALLENGE.findall(challenge))
    if not given["realm"].startswith("https://"):
        # The registry chooses the address: it must not be one of this machine or its network.
        raise ValueError(f"it asks for tokens from {given['realm']}, which is not https://")
    asked = {name: given[name] for name in ("service", "scope") if name in given}
    login = _send("GET", given["realm"], {}, asked)
    if login.status_code != 200:
        return login.status_code
    body = login.json()
    headers["Authorization"] = f"Bearer {body.get('token') or body['access_token']}"
    return _send("HEAD", url, headers).status_code


def _send(
    method: str, url: str, headers: Mapping[str, str], asked: Mapping[str, str] | None = None
) -> requests.Response:
    return requests.request(
        method,
        url,
        params=asked,
        headers=headers,
        timeout=TIMEOUT_S,
        allow_redirects=True,
        # The machines have no .netrc file either, whose password would replace the token.
        auth=lambda request: request,
    )
