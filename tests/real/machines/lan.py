"""Hosts on one machine: a network namespace each, and one that routes between their subnets."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

import psutil

PREFIX = "sunspot-fw"
ROUTER = "router"
DEADLINE_S = 240


@dataclass(frozen=True)
class Host:
    """A host of its own: `namespace` is its name for `ip netns`."""

    name: str
    namespace: str
    address: IPv4Interface

    @property
    def ip(self) -> str:
        return str(self.address.ip)

    def run(self, *command: str, text: str | None = None) -> str:
        """Runs a command on the host to its end; its output."""
        return _run("ip", "netns", "exec", self.namespace, *command, text=text)

    def command(self, *command: str) -> list[str]:
        """The words that run a command on the host, in mounts and with a name of its own.

        What it mounts, this machine does not see.
        """
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name]
        return ["ip", "netns", "exec", self.namespace, *named, *command]


@contextlib.contextmanager
def connected(hosts: Mapping[str, IPv4Interface]) -> Iterator[dict[str, Host]]:
    """Hosts by name, up and connected while the block runs; each reaches all others by routing.

    At the end everything that still runs in them is killed. What an earlier run of a process that
    died could not take away is taken away first.
    """
    _sweep()
    label = f"{PREFIX}-{os.getpid()}"
    taken = _namespaces()
    while any(name.startswith(f"{label}-") for name in taken):
        label += "x"
    made = {
        name: Host(name, f"{label}-{name}", address)
        for name, address in hosts.items()
        if name != ROUTER
    }
    router = Host(ROUTER, f"{label}-{ROUTER}", IPv4Interface("127.0.0.1/8"))
    try:
        for host in (router, *made.values()):
            _add(host)
        router.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        subnets = sorted({host.address.network for host in made.values()})
        for number, subnet in enumerate(subnets):
            _add_bridge(router, f"br{number}", subnet)
        for number, host in enumerate(made.values()):
            bridge = f"br{subnets.index(host.address.network)}"
            _plug_in(router, host, f"port{number}", bridge)
        yield made
    finally:
        _remove([name for name in _namespaces() if name.startswith(f"{label}-")])


@contextlib.contextmanager
def plugged_in(router: Host, bridge: str, host: Host) -> Iterator[None]:
    """The host is up and connected to a bridge of the router's while the block runs.

    At the end everything that still runs in it is killed.
    """
    try:
        _add(host)
        _plug_in(router, host, "port0", bridge)
        yield
    finally:
        _remove([name for name in _namespaces() if name == host.namespace])


def _add(host: Host) -> None:
    _run("ip", "netns", "add", host.namespace)
    host.run("ip", "link", "set", "lo", "up")
    # So that refusals are told at once, one for each packet.
    host.run("sh", "-c", "echo 0 >/proc/sys/net/ipv4/icmp_ratelimit")


def _add_bridge(router: Host, name: str, subnet: IPv4Network) -> None:
    router.run("ip", "link", "add", name, "type", "bridge")
    router.run("ip", "address", "add", f"{_gateway(subnet)}/{subnet.prefixlen}", "dev", name)
    router.run("ip", "link", "set", name, "up")


def _plug_in(router: Host, host: Host, port: str, bridge: str) -> None:
    cable = ("ip", "link", "add", port, "type", "veth", "peer", "eth0", "netns", host.namespace)
    router.run(*cable)
    router.run("ip", "link", "set", port, "master", bridge, "up")
    host.run("ip", "address", "add", str(host.address), "dev", "eth0")
    host.run("ip", "link", "set", "eth0", "up")
    host.run("ip", "route", "add", "default", "via", _gateway(host.address.network))


def _gateway(subnet: IPv4Network) -> str:
    # Where Azure has its own.
    return str(subnet[1])


def _sweep() -> None:
    """Takes away what runs left behind whose process is gone."""
    pattern = re.compile(rf"{PREFIX}-(\d+)x*-")
    old = [name for name in _namespaces() if (found := pattern.match(name)) and _gone(found[1])]
    _remove(old)


def _gone(pid: str) -> bool:
    return not psutil.pid_exists(int(pid))


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines()]


def _remove(namespaces: Sequence[str]) -> None:
    for name in namespaces:
        kill_all(name)
    for name in namespaces:
        _run("ip", "netns", "delete", name)


def kill_all(namespace: str) -> None:
    """Kills what runs in a namespace of ours, until nothing does."""
    while pids := [int(pid) for pid in _run("ip", "netns", "pids", namespace).split()]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A child of this process stays as a zombie until it is waited for.
        psutil.wait_procs([p for p in map(_process, pids) if p is not None], timeout=DEADLINE_S)


def _process(pid: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid)
    return None


def _run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def why_not() -> str | None:
    """Why no hosts can be made here; None where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    folders = "/usr/sbin:/usr/bin:/sbin:/bin"
    for program, package in (("ip", "iproute2"), ("nft", "nftables"), ("unshare", "util-linux")):
        if not any(Path(folder, program).exists() for folder in folders.split(":")):
            return f"there is no {program} here (package {package})"
    return None
