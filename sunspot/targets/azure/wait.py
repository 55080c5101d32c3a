"""Waiting for a cluster on Azure that Pulumi has made: its head's SSH, its token, its workers."""

from __future__ import annotations

import time
from collections.abc import Callable

from sunspot.errors import SunspotError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets import members
from sunspot.targets.azure.access import no_way_in
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.protocol import Progress
from sunspot.targets.ssh import RemoteCommandError, UnreachableError

# A machine of Azure's takes SSH within a minute or two of its creation.
SSH_TIMEOUT_S = 300.0
POLL_S = 3.0


def until_joined(
    stack: Stack, connect: Callable[[], ClusterHandle], progress: Progress, timeout_s: float
) -> ClusterHandle:
    """Waits until the head takes SSH, has its token, and counts every minimum worker.

    Raises SunspotError after `timeout_s`, or where no way leads to the head; it says what to do.
    """
    started = time.monotonic()
    reached, told = False, ""
    while True:
        try:
            handle = connect()
            reached = True
            missing = members.missing(stack, handle)
            if not missing:
                progress("every node is a member")
                return handle
        except UnreachableError as error:
            missing = str(error)
            if not reached and time.monotonic() - started > min(SSH_TIMEOUT_S, timeout_s):
                raise SunspotError(f"{error}. {_way_in(stack)}") from error
        except RemoteCommandError:
            reached, missing = True, "the head is still booting: it has no token yet"
        if time.monotonic() - started > timeout_s:
            raise SunspotError(
                f"the machines exist, but after {timeout_s:g} s: {missing}. See how one boots: "
                f"sunspot logs --stack {stack.name} --node head, or the name of a worker's VM (a "
                "wrong one lists them)"
            )
        if missing != told:
            progress(f"waiting: {missing}")
            told = missing
        time.sleep(POLL_S)


def _way_in(stack: Stack) -> str:
    azure = AzureSettings.of(stack)
    access = azure.access
    if (unreachable := no_way_in(access, azure.network.subnet_ids)) is not None:
        return unreachable
    if access.bastion:
        return "It is reached by Azure Bastion, through `az`; are you logged in (az login)?"
    if access.public_ip:
        return (
            "Only sunspot:access > ssh_cidrs may come in: "
            f"{', '.join(access.ssh_cidrs)}; is your address among them "
            "(curl -4 https://ifconfig.me)?"
        )
    return (
        "It has only a private address, which a VPN reaches; or give sunspot:access "
        "public_ip: true and ssh_cidrs with your address, or bastion: true"
    )
