"""The azure target: a stack on virtual machines, brought up by Pulumi and reached through SSH."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

import platformdirs
from pydantic import ValidationError

from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import write_private
from sunspot.ray import ports
from sunspot.spec import HEAD
from sunspot.stack import Stack
from sunspot.targets import members as azure_members
from sunspot.targets.azure import inventory as azure_ask
from sunspot.targets.azure import node_log as azure_node_log
from sunspot.targets.azure import project as azure_project
from sunspot.targets.azure import remaining as azure_left
from sunspot.targets.azure import wait as azure_wait
from sunspot.targets.azure.records import Record, Records, broken, not_up
from sunspot.targets.protocol import UP_TIMEOUT_S, ClusterHandle, NodeStatus, Progress
from sunspot.targets.ssh import RemoteCommandError, Ssh, UnreachableError

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import AzureStack, StackState

STATE_DIRECTORY_VARIABLE = "SUNSPOT_STATE_DIR"

# Where cloud_init/files puts it; only root and the container's user may read it.
TOKEN_ON_HEAD = "/run/sunspot/token"  # noqa: S105 - its place, not the token

# What the head serves on its loopback address beside Ray's dashboard; names of sunspot.ray.ports.
MONITORING = ("grafana", "prometheus")

Engine = Callable[[str, Path, Progress | None], "AzureStack"]
"""The stack of a name in a project's folder; with a progress, a missing `pulumi` is installed."""


def create() -> AzureTarget:
    """The azure target on the user's state directory, or on SUNSPOT_STATE_DIR."""
    chosen = os.environ.get(STATE_DIRECTORY_VARIABLE)
    root = Path(chosen).absolute() if chosen else platformdirs.user_state_path("sunspot")
    return AzureTarget(Records(root / "azure"))


def _pulumi(name: str, folder: Path, progress: Progress | None) -> AzureStack:
    from sunspot.targets.azure import engine
    from sunspot.targets.azure.automation import AzureStack

    command = engine.install_engine(progress) if progress else engine.find_engine()
    return AzureStack(name, folder, command)


@dataclass(frozen=True)
class AzureTarget:
    """Clusters on Azure that `records` remembers.

    Unlike on this machine, an `up` that fails takes nothing away: to make it all again would cost
    minutes and money, and the next `up` goes on where this one stopped. The error says so.
    """

    records: Records
    engine: Engine = _pulumi
    remaining: Callable[[str], list[str]] = azure_left.remaining
    cards: Callable[[str], dict[str, str]] = azure_ask.addresses

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
    ) -> ClusterHandle:
        """Runs the stack's program, then waits `timeout_s` at most until every worker joined."""
        if port is not None:
            raise UsageError("--port is only for clusters on this machine; leave it out on azure")
        project = azure_project.declared_in(stack)
        azure_project.check(stack, project)
        with self.records.locked(stack.name, progress):
            engine = self.engine(stack.name, project, progress)
            # Before anything is made, so that `down` finds what an interrupted `up` made.
            record = self.records.read(stack.name) or Record(folder="", stack={}, outputs={})
            dumped = stack.model_dump(mode="json")
            self.records.write(stack.name, replace(record, folder=str(project), stack=dumped))
            try:
                state = engine.up(progress)
                self._remember(stack.name, project, stack, state)
                connect = functools.partial(self._connect, stack.name, dashboard_port)
                return azure_wait.until_joined(stack, connect, progress, timeout_s)
            except SunspotError as error:
                raise SunspotError(f"{error}\n{_stays(stack.name)}") from error

    def down(self, name: str, progress: Progress) -> bool:
        return self.take_down(name, progress) is not None

    def take_down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> list[str] | None:
        project = azure_project.find(name, self.records.read(name))
        if project is None:
            return None
        with self.records.locked(name, progress):
            engine, before = self._ask(name, project)
            if engine is None or before is None or not before.resources:
                known = self.records.read(name) is not None
                self.records.forget(name)
                return [] if known else None
            self.records.tunnel(name).close()
            engine.destroy(progress, delete_storage=delete_storage)
            after = engine.state()
            self.records.forget(name)
        kept = [] if after is None else list(after.resources)
        if before.group_id:
            progress("asking Azure what still exists")
            azure_left.check_gone(name, before.group_id, [one.id for one in kept], self.remaining)
        return azure_left.told(name, [one.id for one in kept if one.protected])

    def names(self) -> list[str]:
        return self.records.names()

    def adopt(self, name: str) -> bool:
        try:
            project = stacks.project_directory()
            stack = stacks.load(name, project)
        except UsageError:
            return False
        _, state = self._ask(name, project)
        if state is None or state.head is None:
            return False
        self._remember(name, project, stack.for_target("azure"), state)
        return True

    def stack(self, name: str) -> Stack:
        try:
            return Stack.model_validate(self.records.known(name).stack)
        except ValidationError as error:
            raise broken(self.records.folder(name), error) from error

    def handle(self, name: str) -> ClusterHandle:
        self.records.known(name)
        with self.records.locked(name):
            return self._connect(name)

    def nodes(self, name: str) -> list[NodeStatus]:
        from sunspot.ray.jobs import JobClient

        members = JobClient(self.handle(name)).state("nodes")
        found = [azure_members.node(member) for member in members]
        nodes = [node for node in found if node is not None]
        for group in self.stack(name).cluster.scaling_groups:
            types = group.node_types()
            here = sum(node.group in types and node.state != "lost" for node in nodes)
            nodes += azure_members.awaited(group, group.min_workers - here)
        order = {"up": 1, "draining": 1, "starting": 2, "lost": 3}
        return sorted(nodes, key=lambda node: (node.group != HEAD, order[node.state], node.name))

    def scale(
        self,
        name: str,
        group: str,
        count: int,
        progress: Progress,  # noqa: ARG002 - the protocol's
    ) -> None:
        """Always refuses: nobody but the autoscaler and Pulumi changes a group on Azure."""
        groups = {one.name: one for one in self.stack(name).cluster.scaling_groups}
        if group not in groups:
            known = ", ".join(groups) or "none"
            raise UsageError(f"stack {name!r} has no group {group!r}; it has: {known}")
        file = f"Pulumi.{name}.yaml"
        if groups[group].is_autoscaled():
            raise UsageError(
                f"group {group!r} is Ray's autoscaler's: on azure it alone changes it, between "
                f"{groups[group].min_workers} and {groups[group].max_workers}, as the work needs. "
                f"To keep {count} at least, set its min_workers in {file}, then: sunspot up {name}"
            )
        raise UsageError(
            f"group {group!r} is fixed: set its min_workers and max_workers to {count} in {file} "
            f"and run: sunspot up {name}"
        )

    def outputs(self, name: str) -> Mapping[str, Any]:
        return self.records.known(name).outputs

    def ssh(self, name: str) -> Ssh:
        return self._ssh(name, self._current(name))

    def node_log(
        self, name: str, node: str, out: TextIO, tell: Progress, *, follow: bool = False
    ) -> int:
        """Boot phases and journal; `node` may be a private address as well, or any VM's name."""
        record = self._current(name, tell)
        addresses = (record.outputs.get(key) for key in ("head_address", "head_private_ip"))
        machines = azure_node_log.Machines(
            head=self._ssh(name, record),
            head_name=record.head,
            head_addresses=frozenset(str(one) for one in addresses if one),
            group=str(record.outputs.get("resource_group") or record.group_id.rpartition("/")[2]),
            members=functools.partial(self._members, name),
            cards=functools.partial(self._cards, name),
        )
        return azure_node_log.show(machines, node, out, tell, follow=follow)

    # Which nodes there are

    def _members(self, name: str) -> dict[str, str]:
        """The private addresses of Ray's nodes, by their names; none where Ray does not answer."""
        from sunspot.ray.jobs import JobClient

        # An `up` that waits for a node, maybe the very one that is asked for, holds the lock.
        connect = self.handle
        if self.records.tunnel(name).port() is not None:
            if not (self.records.folder(name) / "token").exists():
                return {}
            connect = self._connect
        try:
            return azure_members.addresses(JobClient(connect(name)).state("nodes"))
        except UnreachableError:
            raise
        except SunspotError:
            return {}

    def _cards(self, name: str) -> dict[str, str]:
        """The private addresses of all VMs, by their names, as Azure has them."""
        record = self.records.known(name)
        if not record.group_id:
            with self.records.locked(name):
                record = self._refresh(name)
        return self.cards(record.group_id)

    # What is remembered

    def _current(self, name: str, progress: Progress | None = None) -> Record:
        """The record, which a live tunnel says is right; else as Pulumi's state has it now."""
        record = self.records.known(name)
        if self.records.tunnel(name).port() is None:
            with self.records.locked(name, progress):
                record = self._refresh(name)
        return record

    def _remember(self, name: str, project: Path, stack: Stack, state: StackState) -> Record:
        """Writes down what Pulumi's state says; a head that is not the last one loses its key."""
        before = self.records.read(name)
        head = state.head
        machine = "" if head is None else str(head.outputs.get("vmId") or head.id)
        if before is None or before.machine != machine:
            self.records.tunnel(name).close()
            (self.records.folder(name) / "known_hosts").unlink(missing_ok=True)
        record = Record(
            folder=str(project),
            stack=stack.model_dump(mode="json"),
            outputs=dict(state.outputs),
            machine=machine,
            head="" if head is None else head.id.rpartition("/")[2],
            group_id=state.group_id or "",
        )
        self.records.write(name, record)
        return record

    # Pulumi

    def _engine(self, name: str, project: Path) -> AzureStack | None:
        """The stack; None if it was never used here and there is no `pulumi` to ask either."""
        from sunspot.targets.azure.engine import EngineMissingError

        try:
            return self.engine(name, project, None)
        except EngineMissingError:
            if self.records.read(name) is None:
                return None
            raise

    def _ask(self, name: str, project: Path) -> tuple[AzureStack | None, StackState | None]:
        """The stack and what Pulumi has of it; None for what it has not.

        Where Pulumi does not work, that is an error only to those who need it: not to a stack of
        another target that was never on Azure.
        """
        try:
            engine = self._engine(name, project)
            return engine, None if engine is None else engine.state()
        except SunspotError:
            if self.records.read(name) is None and azure_project.runs_elsewhere(name, project):
                return None, None
            raise

    def _refresh(self, name: str) -> Record:
        """The record as Pulumi's state has it now, also after a plain `pulumi up`.

        Raises SunspotError, and forgets the cluster, where it was destroyed.
        """
        project = azure_project.find(name, self.records.read(name))
        engine = None if project is None else self._engine(name, project)
        state = None if engine is None else engine.state()
        if project is None or state is None or state.head is None:
            if state is None or not state.resources:
                self.records.forget(name)
            raise not_up(name)
        return self._remember(name, project, self._declared(name, project), state)

    def _declared(self, name: str, project: Path) -> Stack:
        """The stack as its file has it, after a plain `pulumi up` too; else as it was last seen."""
        try:
            return stacks.load(name, project).for_target("azure")
        except UsageError:
            return self.stack(name)

    # The head

    def _ssh(self, name: str, record: Record) -> Ssh:
        access = self.stack(name).access
        key = None
        if access.ssh_public_key is None:
            public = Path(record.folder) / Path(access.ssh_public_key_file).expanduser()
            private = public.with_suffix("") if public.suffix == ".pub" else public
            key = private if private.is_file() else None
        return Ssh.parse(
            str(record.outputs.get("ssh_command", "")),
            key=key,
            known_hosts=self.records.folder(name) / "known_hosts",
        )

    def _connect(self, name: str, port: int | None = None) -> ClusterHandle:
        """The handle, through the tunnel that is alive or a new one."""
        tunnel, token = self.records.tunnel(name), self.records.folder(name) / "token"
        record = self.records.known(name)
        alive = tunnel.port()
        if alive is None or port not in (None, alive) or not token.exists():
            record = self._refresh(name)
            ssh = self._ssh(name, record)
            also = [ports.get(name).number for name in MONITORING]
            alive = tunnel.open(ssh, _dashboard_port(record), preferred=port, also=also)
            write_private(token, _fetch_token(ssh))
        gcs = ports.get("gcs").number
        return ClusterHandle(
            name=name,
            target="azure",
            head_address=f"{record.outputs.get('head_private_ip')}:{gcs}",
            job_address=f"http://127.0.0.1:{alive}",
            token_path=token,
            monitoring=_monitoring(tunnel.also()),
        )


def _monitoring(forwarded: Mapping[int, int]) -> dict[str, str]:
    """Name -> URL of what the tunnel leads to besides the job API."""
    found = {name: forwarded.get(ports.get(name).number) for name in MONITORING}
    return {name.capitalize(): f"http://127.0.0.1:{port}" for name, port in found.items() if port}


def _dashboard_port(record: Record) -> int:
    usual = ports.get("dashboard").number
    return urlsplit(str(record.outputs.get("job_address", ""))).port or usual


def _fetch_token(ssh: Ssh) -> str:
    token = ssh.read("sudo", "-n", "cat", TOKEN_ON_HEAD).strip()
    if not token:
        raise RemoteCommandError(f"{TOKEN_ON_HEAD} on the head is empty")
    return token


def _stays(name: str) -> str:
    return (
        f"What was made stays, and is billed. Go on: sunspot up {name} · "
        f"take it away: sunspot down {name}"
    )
