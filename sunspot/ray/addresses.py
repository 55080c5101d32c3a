"""Where a job's program connects to, and what to say if that is not the job's own cluster.

Ray tries such an address for minutes before it gives up (gcs_rpc_client.h, 2.60).
"""

from __future__ import annotations

import ast
import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sunspot.ray.driver import RAY_CLIENT
from sunspot.ray.handle import ClusterHandle

# What Ray prints when it begins to connect (ray/_private/worker.py, 2.60), and later, when nothing
# has answered (gcs_rpc_client.h).
_CONNECTS = re.compile(r"Connecting to existing Ray cluster at address: (\S+?)\.\.\.")
_FAILS = re.compile(r"Failed to connect to GCS at address (\S+)")

_ADDRESS = re.compile(r"(ray://)?[^\s/:]+:\d+|(ray://)?\[[0-9A-Fa-f:.]+\]:\d+")

# A log without line breaks is not kept in memory.
_LONGEST_LINE = 10_000


class AddressWatch:
    """Tells once of each address that a job's program names and that is not its cluster's."""

    def __init__(self, handle: ClusterHandle, tell: Callable[[str], None]) -> None:
        self._handle, self._tell = handle, tell
        self._told: set[str] = set()
        self._line = ""

    def program(self, entrypoint: Sequence[str], directory: Path) -> None:
        """Looks at the Python files of a command line for addresses that stand in their code."""
        for word in entrypoint:
            if word.endswith(".py"):
                for address in _in_code(directory / word):
                    if self._is_foreign(address):
                        self._say(address)

    def printed(self, text: str) -> None:
        """Looks at the next piece of what the job prints."""
        *lines, self._line = (self._line + text).split("\n")
        self._line = self._line[-_LONGEST_LINE:]
        for line in lines:
            if (found := _CONNECTS.search(line)) and self._is_foreign(found[1]):
                self._say(found[1])
            if (found := _FAILS.search(line)) and not self._is_own(found[1]):
                self._say(found[1])

    def _say(self, address: str) -> None:
        where = _where(address)
        if where in self._told:
            return
        self._told.add(where)
        own = self._handle.head_address
        if address.startswith(RAY_CLIENT):
            why = f"{self._handle.name!r} has no Ray Client server, so Ray waits 30 s and fails"
        else:
            why = f"that is not {self._handle.name!r} ({own}), so Ray tries for minutes and fails"
        self._tell(
            f"the program connects to {address}: {why}. Write ray.init() in its place, which finds "
            f"the job's cluster{self._other_port(address)}"
        )

    def _other_port(self, address: str) -> str:
        """How the cluster gets the port of an address of this machine."""
        host, port = _parts(address)
        on_this_machine = _is_loopback(_parts(self._handle.head_address)[0])
        if address.startswith(RAY_CLIENT) or not (on_this_machine and _is_loopback(host)):
            return ""
        name = self._handle.name
        return f"; or give it that port: sunspot down {name} && sunspot up {name} --port {port}"

    def _is_foreign(self, address: str) -> bool:
        """Whether an address is surely another cluster's: a host's name may be the head's."""
        if address.startswith(RAY_CLIENT):
            return not (self._handle.driver_address or "").startswith(RAY_CLIENT)
        host, port = _parts(address)
        own_host, own_port = _parts(self._handle.head_address)
        if port != own_port:
            return True
        if _is_loopback(host):  # it depends on the node that the program runs on
            return False
        return _ip(host) is not None and _ip(host) != _ip(own_host)

    def _is_own(self, address: str) -> bool:
        return _where(address) == _where(self._handle.head_address)


def _in_code(file: Path) -> Iterator[str]:
    """The addresses that a program gives to `ray.init` as they are, or to `connect`."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return  # the job itself says what is wrong with it
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in ("init", "connect"):
            given = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "address")]
            for value in given:
                if isinstance(value, ast.Constant) and _ADDRESS.fullmatch(str(value.value)):
                    yield str(value.value)


def _name(function: ast.expr) -> str:
    """The last part of what is called: "init" for `ray.init` and for `init`."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _parts(address: str) -> tuple[str, str]:
    host, _, port = address.removeprefix(RAY_CLIENT).rpartition(":")
    return host.strip("[]"), re.sub(r"\D.*", "", port)


def _where(address: str) -> str:
    """One text for all the forms of one address."""
    host, port = _parts(address)
    return f"{'localhost' if _is_loopback(host) else _ip(host) or host}:{port}"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_loopback(host: str) -> bool:
    found = _ip(host)
    return host == "localhost" or (found is not None and found.is_loopback)
