"""What the containers of a cluster say of its nodes: their states, and their logs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TextIO

from sunspot.errors import HeadLostError, SunspotError
from sunspot.ray.handle import ClusterHandle
from sunspot.spec_values import HEAD
from sunspot.targets import abilities
from sunspot.targets.compose.engine import Container, Engine
from sunspot.targets.compose.records import NodeRecord, Record
from sunspot.targets.compose.settings import again
from sunspot.targets.protocol import NodeStatus, Progress

TAIL_LINES = 30

State = Literal["starting", "up", "draining", "lost"]

# Docker's words for a container whose process has not begun, and for one whose process runs.
_COMING = frozenset({"created", "restarting"})
_RUNNING = frozenset({"running", "paused"})


def by_service(containers: Iterable[Container]) -> dict[str, Container]:
    """The containers by their services, each of which has one."""
    return {container.service: container for container in containers}


def check_head(name: str, engine: Engine, found: Mapping[str, Container]) -> None:
    """Checks that the head's container runs.

    Raises:
        HeadLostError: it does not; the message has the end of its log.
    """
    head = found.get(HEAD)
    if head is not None and head.state in _RUNNING:
        return
    remedy = f"Start all nodes anew: {again(name)}"
    log = "" if head is None else f"\nThe end of its log:\n{tail(engine, head)}"
    raise HeadLostError(f"the head of {name!r} is dead, and its cluster with it. {remedy}{log}")


def nodes(
    record: Record, engine: Engine, found: Mapping[str, Container], members: list[dict[str, Any]]
) -> list[NodeStatus]:
    """The wanted nodes, the head first and lost ones last; `members` is Ray's own list."""
    alive = {
        one["node_name"]: one.get("state_message") or ""
        for one in members
        if one["state"] == "ALIVE"
    }
    status = [
        _status(node, found.get(node.name), alive.get(node.name), engine)
        for node in record.nodes
        if node.name in record.wanted
    ]
    return sorted(status, key=lambda node: node.state == "lost")


def members(handle: ClusterHandle) -> list[dict[str, Any]]:
    """Ray's own list of nodes; empty where Ray does not answer."""
    from sunspot.ray.jobs import JobClient

    try:
        return JobClient(handle).state("nodes")
    except SunspotError:
        return []


def _status(
    node: NodeRecord, container: Container | None, message: str | None, engine: Engine
) -> NodeStatus:
    """A node's status; `message` is Ray's on a member that is alive, None for any other."""
    state: State
    if container is None or container.state in _COMING:
        state = "starting"
    elif container.state not in _RUNNING:
        state = "lost"
    elif message is None:
        state = "starting"
    else:
        state = "draining" if "drain" in message.lower() else "up"
    log = tail(engine, container) if state == "lost" and container is not None else ""
    return NodeStatus(
        name=node.name,
        group=node.group,
        market=node.market,
        state=state,
        cpus=node.cpus,
        gpus=node.gpus,
        memory_gb=node.memory_gb,
        log=log,
    )


def tail(engine: Engine, container: Container) -> str:
    """The end of a container's log."""
    return engine.run("logs", "--tail", str(TAIL_LINES), container.id).strip()


def show_log(
    name: str,
    record: Record,
    engine: Engine,
    service: str,
    out: TextIO,
    note: Progress,
    *,
    follow: bool = False,
) -> int:
    """Prints the log of a node, or of a service beside them; returns `docker logs`' exit code.

    Args:
        name: the stack's name.
        record: its record.
        engine: the engine.
        service: the node's name, or the service's.
        out: where the log is printed.
        note: called with notes for people.
        follow: whether to go on until the container ends.

    Raises:
        UsageError: there is no such node.
    """
    known = [node.name for node in record.nodes] + list(record.services)
    if service not in known:
        raise abilities.unknown(name, "node", service, known)
    container = by_service(engine.containers(record.project)).get(service)
    if container is None:
        note(f"{service} has no container yet")
        return 0
    command = ["docker", "logs", *(["--follow"] if follow else []), container.id]
    with subprocess.Popen(
        command,
        env=engine.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            for line in process.stdout:
                out.write(line)
                out.flush()
        except BaseException:
            process.terminate()
            raise
    return process.returncode
