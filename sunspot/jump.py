"""SSH to a node that only the head reaches: through the head, by the head's own way in.

The connection to the node runs through `ssh HEAD -W NODE:22` as its ProxyCommand, so it takes
whatever way leads to the head, `az network bastion ssh` as well. User and key are the head's.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from sunspot.tunnel import Ssh

SSH_PORT = 22

# Two connections one after the other; through a Bastion, `az` starts and logs in first.
CONNECT_TIMEOUT_S = 45


def through(head: Ssh, address: str, name: str) -> Ssh:
    """The way to the node at this private address, by way of the head.

    Its host key is kept by `name`: an evicted node's address is soon another node's.
    """
    place = f"[{address}]" if ":" in address else address
    proxy = shlex.join(head.arguments("-W", f"{place}:{SSH_PORT}"))
    user = _user(head)
    return replace(
        head,
        command=(
            "ssh",
            "-p",
            str(SSH_PORT),
            "-o",
            # ssh would replace %h and the like in it.
            f"ProxyCommand={proxy.replace('%', '%%')}",
            f"{user}@{address}" if user else address,
        ),
        alias=name,
        called=name if name == address else f"{name} ({address})",
        connect_timeout_s=CONNECT_TIMEOUT_S,
    )


def _user(head: Ssh) -> str:
    """Who logs in to the head; "" where its command does not say."""
    if head.command[0] == "az":
        given = dict(zip(head.command, head.command[1:], strict=False))
        return given.get("--username", "")
    return head.command[-1].rpartition("@")[0]
