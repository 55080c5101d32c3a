"""Waiting for a cluster that Pulumi has created: its head's SSH, its token, its workers."""

from __future__ import annotations

import functools
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

# An Azure VM accepts SSH a minute or two after its creation.
SSH_TIMEOUT_S = 300.0
POLL_S = 3.0


def until_joined(
    stack: Stack, connect: Callable[[], ClusterHandle], progress: Progress, timeout_s: float
) -> ClusterHandle:
    """Waits until the head accepts SSH, has its token, and every minimum worker has joined.

    The arguments, and what it raises, are those of `until_there`.
    """
    lacks = functools.partial(members.missing, stack)
    handle = until_there(stack, connect, progress, timeout_s, lacks)
    progress("every node is a member")
    return handle


def until_there(
    stack: Stack,
    connect: Callable[[], ClusterHandle],
    progress: Progress,
    timeout_s: float,
    lacks: Callable[[ClusterHandle], str],
) -> ClusterHandle:
    """Waits until the head accepts SSH, has its token, and the cluster lacks nothing.

    Args:
        stack: the stack that was brought up.
        connect: returns the cluster's handle, or raises as `Ssh.read` does.
        progress: called each time that something else is missing.
        timeout_s: how many seconds it may take.
        lacks: says what a cluster lacks; "" for nothing.

    Raises:
        SunspotError: it took longer, or the head cannot be reached; the message says what to do.
    """
    started = time.monotonic()
    reached, reported = False, ""
    while True:
        try:
            handle = connect()
            reached = True
            missing = lacks(handle)
            if not missing:
                return handle
        except UnreachableError as error:
            missing = str(error)
            if not reached and time.monotonic() - started > min(SSH_TIMEOUT_S, timeout_s):
                raise SunspotError(f"{error}. {_way_in(stack)}") from error
        except RemoteCommandError:
            reached, missing = True, "the head is still booting: it has no token yet"
        if time.monotonic() - started > timeout_s:
            raise SunspotError(
                f"the machines exist, but after {timeout_s:g} s: {missing}. To see how one boots: "
                f"sunspot logs --stack {stack.name} --node head, or --node with the name of a "
                "worker's VM (a wrong name lists them)"
            )
        if missing != reported:
            progress(f"waiting: {missing}")
            reported = missing
        time.sleep(POLL_S)


def _way_in(stack: Stack) -> str:
    azure = AzureSettings.of(stack)
    access = azure.access
    if (unreachable := no_way_in(access, azure.network.subnet_ids)) is not None:
        return unreachable
    if access.bastion:
        return "It is reached through Azure Bastion with `az`; are you logged in (az login)?"
    if access.public_ip:
        return (
            "It accepts SSH only from sunspot:access > ssh_cidrs: "
            f"{', '.join(access.ssh_cidrs)}; is your address among them "
            "(curl -4 https://ifconfig.me)?"
        )
    return (
        "It has only a private address: connect through a VPN, or set in sunspot:access "
        "public_ip: true and ssh_cidrs with your address, or bastion: true"
    )
