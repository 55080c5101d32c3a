"""The azure target: a stack on virtual machines, brought up by Pulumi and reached through SSH."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO
from urllib.parse import urlsplit

from pydantic import ValidationError

from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import write_private
from sunspot.ray import ports
from sunspot.ray.handle import ClusterHandle
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets import members
from sunspot.targets.azure import inventory, node_log, project, remaining, wait
from sunspot.targets.azure.records import Record, Records
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.protocol import UP_TIMEOUT_S, NodeStatus, Progress, Removal, Up, silent
from sunspot.targets.records import not_up, state_directory
from sunspot.targets.ssh import RemoteCommandError, Ssh, UnreachableError

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import AzureStack, StackState

# Where cloud_init/files puts it; only root and the container's user may read it.
TOKEN_ON_HEAD = "/run/sunspot/token"  # noqa: S105 - its place, not the token

# What the head serves on its loopback address beside Ray's dashboard; names of sunspot.ray.ports.
MONITORING = ("grafana", "prometheus")

# And Ray's server for drivers that are not on a node (Ray Client).
CLIENT = "client"


class Engine(Protocol):
    """Gives the stack of a name in a project's folder."""

    def __call__(
        self, name: str, folder: Path, progress: Progress, *, install: bool = False
    ) -> AzureStack:
        """With `install`, a missing `pulumi` command is installed; else EngineMissingError."""
        ...


def create() -> AzureTarget:
    """The azure target, with its records in the user's state directory."""
    return AzureTarget(Records(state_directory() / "azure"))


def _pulumi(name: str, folder: Path, progress: Progress, *, install: bool = False) -> AzureStack:
    from sunspot.targets.azure import engine
    from sunspot.targets.azure.automation import AzureStack

    command = engine.install_engine(progress) if install else engine.find_engine(progress)
    return AzureStack(name, folder, command)


@dataclass(frozen=True)
class AzureTarget:
    """Clusters on Azure that `records` remembers.

    Unlike on this machine, an `up` that fails takes nothing away: to make it all again would cost
    minutes and money, and the next `up` goes on where this one stopped. The error says so.
    """

    records: Records
    engine: Engine = _pulumi
    still_there: Callable[[str], list[str]] = remaining.remaining
    addresses: Callable[[str], dict[str, str]] = inventory.addresses
    name: str = "azure"

    def check(self, stack: Stack) -> None:
        project.check(stack, project.declared_in(stack))

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
    ) -> Up:
        """Runs the stack's program, then waits `timeout_s` at most until every worker joined."""
        if port is not None:
            raise UsageError("--port is only for clusters on this machine; leave it out on azure")
        self.check(stack)
        folder = project.declared_in(stack)
        with self.records.locked(stack.name, progress):
            engine = self.engine(stack.name, folder, progress, install=True)
            # Before anything is made, so that `down` finds what an interrupted `up` made.
            record = self.records.read(stack.name) or Record(folder="", stack={}, outputs={})
            dumped = stack.model_dump(mode="json")
            self.records.write(stack.name, replace(record, folder=str(folder), stack=dumped))
            try:
                state = engine.up(progress)
                self._remember(stack.name, folder, stack, state)
                connect = functools.partial(self._connect, stack.name, progress, dashboard_port)
                handle = wait.until_joined(stack, connect, progress, timeout_s)
            except KeyboardInterrupt as interrupt:
                interrupt.add_note(_stays(stack.name))
                raise
            except SunspotError as error:
                raise SunspotError(f"{error}\n{_stays(stack.name)}") from error
        return Up(handle, was_up=False)

    def down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> Removal | None:
        folder = project.to_take_down(name, self.records, progress)
        if folder is None:
            return None
        with self.records.locked(name, progress):
            engine, before = self._ask(name, folder, progress)
            if engine is None or before is None or not before.resources:
                known = name in self.names()
                self.records.forget(name)
                return Removal(looked_for=remaining.LOOKED_FOR) if known else None
            self.records.tunnel(name).close()
            engine.destroy(progress, delete_storage=delete_storage)
            after = engine.state()
            self.records.forget(name)
        kept = () if after is None else after.resources
        progress("asking Azure what still exists")
        return remaining.removal(name, before.group_id, kept, self.still_there)

    def names(self) -> list[str]:
        return self.records.names()

    def discover(self, name: str) -> bool:
        try:
            folder = stacks.project_directory()
            stack = stacks.load(name, folder)
        except UsageError:
            return False
        _, state = self._ask(name, folder, silent)
        if state is None or state.head is None:
            return False
        self._remember(name, folder, stack.for_target(self.name), state)
        return True

    def stack(self, name: str) -> Stack:
        try:
            return Stack.model_validate(self.records.known(name).stack)
        except ValidationError as error:
            file = self.records.folder(name) / "stack.json"
            raise self.records.folders.broken(name, file, error) from error

    def handle(self, name: str, progress: Progress = silent) -> ClusterHandle:
        self.records.known(name)
        with self.records.locked(name, progress):
            return self._connect(name, progress)

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:
        return members.nodes(self.stack(name), self.handle(name, progress))

    def scale(
        self,
        name: str,
        counts: Mapping[str, int],
        progress: Progress,  # noqa: ARG002 - the protocol's
    ) -> None:
        """Always refuses: on Azure only the autoscaler and Pulumi change a group."""
        groups = {one.name: one for one in self.stack(name).cluster.scaling_groups}
        if unknown := counts.keys() - groups.keys():
            known = ", ".join(groups) or "none"
            raise UsageError(f"stack {name!r} has no group {min(unknown)!r}; it has: {known}")
        raise UsageError(
            "\n".join(_refusal_to_scale(name, groups[one], count) for one, count in counts.items())
        )

    def outputs(self, name: str) -> Mapping[str, Any]:
        return self.records.known(name).outputs

    def shell(self, name: str) -> Ssh:
        return self._ssh(name, self._current(name))

    def node_log(
        self, name: str, node: str, out: TextIO, tell: Progress, *, follow: bool = False
    ) -> int:
        """Boot phases and journal; `node` may be a private address as well, or any VM's name."""
        record = self._current(name, tell)
        addresses = (record.outputs.get(key) for key in ("head_address", "head_private_ip"))
        machines = node_log.Machines(
            head=self._ssh(name, record),
            head_name=record.head,
            head_addresses=frozenset(str(one) for one in addresses if one),
            group=str(record.outputs.get("resource_group") or record.group_id.rpartition("/")[2]),
            members=functools.partial(self._members, name),
            addresses=functools.partial(self._addresses, name),
        )
        return node_log.show(machines, node, out, tell, follow=follow)

    # Which nodes there are

    def _members(self, name: str) -> dict[str, str]:
        """The private addresses of Ray's nodes, by their names; none where Ray does not answer."""
        from sunspot.ray.jobs import JobClient

        # An `up` that waits for a node, maybe the very one that is asked for, holds the lock.
        connect: Callable[[], ClusterHandle] = functools.partial(self.handle, name)
        if self.records.tunnel(name).port() is not None:
            if not (self.records.folder(name) / "token").exists():
                return {}
            connect = functools.partial(self._connect, name, silent)
        try:
            return members.addresses(JobClient(connect()).state("nodes"))
        except UnreachableError:
            raise
        except SunspotError:
            return {}

    def _addresses(self, name: str) -> dict[str, str]:
        """The private addresses of all VMs, by their names, as Azure has them."""
        record = self.records.known(name)
        if not record.group_id:
            with self.records.locked(name):
                record = self._refresh(name, silent)
        return self.addresses(record.group_id)

    # What is remembered

    def _current(self, name: str, progress: Progress = silent) -> Record:
        """The record, which a live tunnel says is right; else as Pulumi's state has it now."""
        record = self.records.known(name)
        if self.records.tunnel(name).port() is None:
            with self.records.locked(name, progress):
                record = self._refresh(name, progress)
        return record

    def _remember(self, name: str, folder: Path, stack: Stack, state: StackState) -> Record:
        """Writes down what Pulumi's state says; a head that is not the last one loses its key."""
        before = self.records.read(name)
        head = state.head
        machine = "" if head is None else str(head.outputs.get("vmId") or head.id)
        if before is None or before.machine != machine:
            self.records.tunnel(name).close()
            (self.records.folder(name) / "known_hosts").unlink(missing_ok=True)
        record = Record(
            folder=str(folder),
            stack=stack.model_dump(mode="json"),
            outputs=dict(state.outputs),
            machine=machine,
            head="" if head is None else head.id.rpartition("/")[2],
            group_id=state.group_id or "",
        )
        self.records.write(name, record)
        return record

    # Pulumi

    def _engine(self, name: str, folder: Path, progress: Progress) -> AzureStack | None:
        """The stack; None if it was never used here and there is no `pulumi` to ask either."""
        from sunspot.targets.azure.engine import EngineMissingError

        try:
            return self.engine(name, folder, progress)
        except EngineMissingError:
            if self.records.read(name) is None:
                return None
            raise

    def _ask(
        self, name: str, folder: Path, progress: Progress
    ) -> tuple[AzureStack | None, StackState | None]:
        """The stack and what Pulumi has of it; None for what it has not.

        Where Pulumi does not work, that is an error only to those who need it: not to a stack of
        another target that was never on Azure.
        """
        try:
            engine = self._engine(name, folder, progress)
            return engine, None if engine is None else engine.state()
        except SunspotError:
            if self.records.read(name) is None and project.runs_elsewhere(name, folder, self.name):
                return None, None
            raise

    def _refresh(self, name: str, progress: Progress) -> Record:
        """The record as Pulumi's state has it now, also after a plain `pulumi up`.

        Raises SunspotError, and forgets the cluster, where it was destroyed.
        """
        folder = project.find(name, self.records.read(name))
        engine = None if folder is None else self._engine(name, folder, progress)
        state = None if engine is None else engine.state()
        if folder is None or state is None or state.head is None:
            if state is None or not state.resources:
                self.records.forget(name)
            raise not_up(name)
        return self._remember(name, folder, self._declared(name, folder), state)

    def _declared(self, name: str, folder: Path) -> Stack:
        """The stack as its file has it, after a plain `pulumi up` too; else as it was last seen."""
        try:
            return stacks.load(name, folder).for_target(self.name)
        except UsageError:
            return self.stack(name)

    # The head

    def _ssh(self, name: str, record: Record) -> Ssh:
        access = AzureSettings.of(self.stack(name)).access
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

    def _connect(self, name: str, progress: Progress, port: int | None = None) -> ClusterHandle:
        """The handle, through the tunnel that is alive or a new one."""
        tunnel, token = self.records.tunnel(name), self.records.folder(name) / "token"
        record = self.records.known(name)
        alive = tunnel.port()
        if alive is None or port not in (None, alive) or not token.exists():
            record = self._refresh(name, progress)
            ssh = self._ssh(name, record)
            also = [ports.get(one).number for one in (CLIENT, *MONITORING)]
            alive = tunnel.open(ssh, _dashboard_port(record), preferred=port, also=also)
            write_private(token, _fetch_token(ssh))
        forwarded = tunnel.also()
        client = forwarded.get(ports.get(CLIENT).number)
        return ClusterHandle(
            name=name,
            target=self.name,
            head_address=f"{record.outputs.get('head_private_ip')}:{ports.get('gcs').number}",
            driver_address=None if client is None else f"ray://127.0.0.1:{client}",
            job_address=f"http://127.0.0.1:{alive}",
            token_path=token,
            monitoring=_monitoring(forwarded),
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


def _refusal_to_scale(name: str, group: ScalingGroup, count: int) -> str:
    file = f"Pulumi.{name}.yaml"
    if group.is_autoscaled():
        return (
            f"group {group.name!r} is Ray's autoscaler's: on azure only it changes the group, "
            f"between {group.min_workers} and {group.max_workers}, as the work needs. To keep "
            f"{count} at least, set its min_workers in {file}, then: sunspot up {name}"
        )
    return (
        f"group {group.name!r} is fixed: set its min_workers and max_workers to {count} in {file} "
        f"and run: sunspot up {name}"
    )


def _stays(name: str) -> str:
    return (
        f"What was made stays, and is billed. Go on: sunspot up {name} · "
        f"take it away: sunspot down {name}"
    )
