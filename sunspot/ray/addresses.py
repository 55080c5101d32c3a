"""Where a job's program connects to, and what to say if that is not the job's own cluster.

Ray tries such an address for minutes before it gives up (gcs_rpc_client.h, 2.60).
"""

from __future__ import annotations

import ast
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sunspot.ray.driver import RAY_CLIENT
from sunspot.ray.handle import ClusterHandle

# What Ray prints when it begins to connect (ray/_private/worker.py, 2.60), and later, when nothing
# has answered (gcs_rpc_client.h).
_CONNECTS = re.compile(r"Connecting to existing Ray cluster at address: (\S+?)\.\.\.")
_FAILS = re.compile(r"Failed to connect to GCS at address (\S+)")

_ADDRESS = re.compile(r"(ray://)?[^\s/:]+:\d+|(ray://)?\[[0-9A-Fa-f:.]+\]:\d+")

# The functions that take an address, each with what Ray puts before one; and their arguments.
_PREFIXES = {"ray.init": "", "ray.util.connect": RAY_CLIENT}
_ARGUMENTS = ("address", "conn_str")

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
            server = self._handle.client_address
            has = "no Ray Client server" if server is None else f"that server at {server}"
            why = f"{self._handle.name!r} has {has}, so Ray waits 30 s and fails"
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
        if not (on_this_machine and _is_loopback(host)):
            return ""
        name, option = self._handle.name, f"--port {port}"
        if address.startswith(RAY_CLIENT):
            if self._handle.client_address is not None:
                return ""
            option = "--client"
        return f"; or take it down, sunspot down {name}, and bring it up again with {option}"

    def _is_foreign(self, address: str) -> bool:
        """Whether an address is surely another cluster's: a host's name may be the head's."""
        if address.startswith(RAY_CLIENT):
            return not self._may_be_own_client(address)
        host, port = _parts(address)
        own_host, own_port = _parts(self._handle.head_address)
        if port != own_port:
            return True
        if _is_loopback(host):  # it depends on the node that the program runs on
            return False
        if self._is_behind_name(host):
            return False
        return _ip(host) is not None and _ip(host) != _ip(own_host)

    def _is_behind_name(self, host: str) -> bool:
        """Whether a number may be the head's, which is known by a name only, as on Kubernetes."""
        own, number = _parts(self._handle.head_address)[0], _ip(host)
        if number is None or number.is_loopback:
            return False
        return _ip(own) is None and not _is_loopback(own)

    def _may_be_own_client(self, address: str) -> bool:
        if (own := self._handle.client_address) is not None:
            return _parts(address)[1] == _parts(own)[1]
        return (self._handle.driver_address or "").startswith(RAY_CLIENT)

    def _is_own(self, address: str) -> bool:
        own = self._handle.head_address
        if _parts(address)[1] == _parts(own)[1] and self._is_behind_name(_parts(address)[0]):
            return True
        return _where(address) == _where(own)


def _in_code(file: Path) -> Iterator[str]:
    """The addresses that stand in a program's calls of `ray.init` and `ray.util.connect`."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return  # the job itself says what is wrong with it
    nodes = list(ast.walk(tree))
    imported = dict(pair for node in nodes for pair in _imported(node))
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        prefix = _PREFIXES.get(_called(node.func, imported))
        if prefix is None:
            continue
        for value in (*node.args[:1], *(k.value for k in node.keywords if k.arg in _ARGUMENTS)):
            if isinstance(value, ast.Constant) and _ADDRESS.fullmatch(str(value.value)):
                yield prefix + str(value.value).removeprefix(prefix)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import gives: ("r", "ray") for `import ray as r`."""
    if isinstance(node, ast.Import):
        for one in node.names:
            root = one.name.partition(".")[0]
            yield (one.asname, one.name) if one.asname else (root, root)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        for one in node.names:
            yield one.asname or one.name, f"{node.module}.{one.name}"


def _called(function: ast.expr, imported: Mapping[str, str]) -> str:
    """What is called, by its full name: "ray.init" for `ray.init`, and for `init` from Ray."""
    if isinstance(function, ast.Attribute):
        return f"{_called(function.value, imported)}.{function.attr}"
    return imported.get(function.id, "") if isinstance(function, ast.Name) else ""


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
