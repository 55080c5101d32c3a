"""What a stack on Azure needs of this machine: Python, Pulumi, an SSH key, a clock, a way out."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import requests

from sunspot.errors import SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.targets.azure import ssh_key, stack_file
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.doctor.findings import (
    failure,
    not_checked,
    ok,
    short,
    unreachable,
    warning,
)
from sunspot.targets.protocol import Finding

IMAGE_PYTHON = (3, 11)
PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
PULUMI_LOGIN, SECRETS, CLOCK = "pulumi login", "secrets", "clock"
TIMEOUT_S = 10.0

# Pulumi's own installer for Linux (its page "Download & install").
TO_GET_PULUMI = 'curl -fsSL https://get.pulumi.com | sh; export PATH="$HOME/.pulumi/bin:$PATH"'

# The Azure CLI renews a token five minutes before its end. A login by certificate, which is not
# tried here, fails at once with a wrong clock (AADSTS700024).
CLOCK_LIMIT_S = 300.0


def python() -> Finding:
    """Ray Client wants the same Python here as in the image."""
    version = platform.python_version()
    if sys.version_info[:2] == IMAGE_PYTHON:
        return ok("Python", version)
    wanted = ".".join(map(str, IMAGE_PYTHON))
    return warning(
        "Python",
        f"{version}, and Ray's image has {wanted}: `sunspot submit` works, RayCluster does not",
        f"make PYTHON=python{wanted} setup",
    )


def pulumi(stack: str, folder: Path) -> Iterator[Finding]:
    """The `pulumi` command, where it keeps its state, and the passphrase of its secrets."""
    from pulumi import automation as auto

    from sunspot.targets.azure import engine, errors

    try:
        command = engine.find_engine()
    except engine.EngineMissingError:
        yield warning("pulumi", "there is none; the first `sunspot up` installs one", TO_GET_PULUMI)
        yield from _of_engine("there is no pulumi")
        return
    except SunspotError as error:
        yield failure("pulumi", short(error), TO_GET_PULUMI)
        yield from _of_engine("this pulumi cannot be used")
        return
    yield ok("pulumi", f"{command.version}")
    try:
        asked = command.run(["whoami", "--json"], str(folder), {"PULUMI_SKIP_UPDATE_CHECK": "true"})
        backend = json.loads(asked.stdout)["url"]
    except auto.CommandError as error:
        said = errors.said(error)
        yield failure(PULUMI_LOGIN, errors.explain(said) or short(said), "pulumi login --local")
        yield not_checked(SECRETS, "what encrypts them depends on pulumi's login")
        return
    except (ValueError, KeyError, TypeError) as error:
        yield from _of_engine(f"pulumi whoami did not answer as expected ({error!r})")
        return
    yield ok(PULUMI_LOGIN, backend)
    yield _passphrase(stack, folder, backend)


def _of_engine(reason: str) -> Iterator[Finding]:
    """What could not be checked without a pulumi that answers."""
    for name in (PULUMI_LOGIN, SECRETS):
        yield not_checked(name, reason)


def _passphrase(stack: str, folder: Path, backend: str) -> Finding:
    provider = stack_file.top(stack_file.of(stack, folder)).get("secretsprovider")
    if provider:
        return ok(SECRETS, f"encrypted by {provider}")
    if backend.startswith("https:"):
        return ok(SECRETS, "encrypted by Pulumi's service")
    if given := [name for name in PASSPHRASES if name in os.environ]:
        return ok(SECRETS, f"encrypted with {given[0]}")
    return failure(
        SECRETS, "there is no passphrase to encrypt them with", f"export {PASSPHRASES[0]}=..."
    )


def key(stack: Stack, folder: Path) -> Finding:
    """The SSH key that may log in."""
    if shutil.which("ssh") is None:
        return failure("SSH", "there is no `ssh` command", "sudo apt-get install openssh-client")
    try:
        kind = ssh_key.of(stack, folder).partition(" ")[0]
    except UsageError as error:
        return failure("SSH key", short(error), "ssh-keygen -t ed25519")
    return ok("SSH key", kind)


def way_out(endpoints: Endpoints) -> Iterator[Finding]:
    """Whether Azure can be reached from here, and whether this clock agrees with Azure's."""
    name, dates = "outbound ports", []
    for url in (endpoints.login, endpoints.management):
        try:
            answer = requests.head(url, timeout=TIMEOUT_S, allow_redirects=False)
        except requests.RequestException as error:
            yield failure(
                name,
                f"{url} cannot be reached ({unreachable(error)})",
                "open port 443 to it, or name your proxy: export HTTPS_PROXY=http://HOST:PORT",
            )
            yield not_checked(CLOCK, "Azure cannot be reached")
            return
        dates.append(answer.headers.get("Date", ""))
    yield ok(name, "443 is open; 22, for SSH, can be tried only when there is a head")
    yield _clock(dates[-1])


def _clock(date: str) -> Finding:
    try:
        skew = time.time() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return not_checked(CLOCK, "Azure's answer has no time")
    detail = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} Azure's"
    if abs(skew) > CLOCK_LIMIT_S:
        consequence = f"beyond {CLOCK_LIMIT_S:g} a login may be used after it has expired"
        return warning(CLOCK, f"{detail}; {consequence}", "sudo timedatectl set-ntp true")
    return ok(CLOCK, detail)
