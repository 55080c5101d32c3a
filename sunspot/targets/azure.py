"""The azure target: a stack on virtual machines, brought up by Pulumi and reached through SSH.

What this machine keeps of a cluster is only a memory: Pulumi's state says what there is. The
memory lies in the user's state directory, one folder a stack:

    <folder>/stack.json     Record
    <folder>/token          the cluster's token, mode 0600
    <folder>/known_hosts    the head's host key
    <folder>/tunnel.json    the tunnel's process and port
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import platformdirs
from pydantic import ValidationError

from sunspot import ports
from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError
from sunspot.node.local import locked, write_private
from sunspot.spec import HEAD, ScalingGroup, size_for
from sunspot.stack import Stack
from sunspot.targets import UP_TIMEOUT_S, ClusterHandle, NodeStatus, Progress
from sunspot.targets.azure_left import remaining
from sunspot.tunnel import RemoteCommandError, Ssh, Tunnel, UnreachableError

if TYPE_CHECKING:
    from sunspot.targets.azure_stack import AzureStack, StackState

STATE_DIRECTORY_VARIABLE = "SUNSPOT_STATE_DIR"

# Where cloud_init/files puts it; only root and the container's user may read it.
TOKEN_ON_HEAD = "/run/sunspot/token"  # noqa: S105 - its place, not the token

# A machine of Azure's takes SSH within a minute or two of its creation.
SSH_TIMEOUT_S = 300.0
POLL_S = 3.0
GIB = 2**30

GROUP_LABEL, MARKET_LABEL = "ray.io/node-group", "ray.io/market-type"
# How Ray words the end of a node that was let go: drained, idle, or told to stop.
_LET_GO = ("expected termination", "drain", "idle")

Engine = Callable[[str, Path, Progress | None], "AzureStack"]
"""The stack of a name in a project's folder; with a progress, a missing `pulumi` is installed."""


def create() -> AzureTarget:
    """The azure target on the user's state directory, or on SUNSPOT_STATE_DIR."""
    chosen = os.environ.get(STATE_DIRECTORY_VARIABLE)
    root = Path(chosen).absolute() if chosen else platformdirs.user_state_path("sunspot")
    return AzureTarget(root / "azure")


def _pulumi(name: str, folder: Path, progress: Progress | None) -> AzureStack:
    from sunspot.targets import azure_stack as engine

    command = engine.install_engine(progress) if progress else engine.find_engine()
    return engine.AzureStack(name, folder, command)


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is remembered of a cluster. `machine` tells this head from one that replaced it."""

    folder: str
    stack: Mapping[str, Any]
    outputs: Mapping[str, Any]
    machine: str = ""


@dataclass(frozen=True)
class AzureTarget:
    """Clusters on Azure whose records lie in `records`.

    Unlike on this machine, an `up` that fails takes nothing away: to make it all again would cost
    minutes and money, and the next `up` goes on where this one stopped. The error says so.
    """

    records: Path
    engine: Engine = _pulumi
    remaining: Callable[[str], list[str]] = remaining

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
        project = _project_of(stack)
        _check(stack, project)
        with self._locked(stack.name, progress):
            engine = self.engine(stack.name, project, progress)
            # Before anything is made, so that `down` finds what an interrupted `up` made.
            record = self._read(stack.name) or Record(folder="", stack={}, outputs={})
            dumped = stack.model_dump(mode="json")
            self._write(stack.name, replace(record, folder=str(project), stack=dumped))
            try:
                state = engine.up(progress)
                self._remember(stack.name, project, stack, state)
                return self._wait(stack, progress, timeout_s, dashboard_port)
            except SunspotError as error:
                raise SunspotError(f"{error}\n{_stays(stack.name)}") from error

    def down(self, name: str, progress: Progress) -> bool:
        return self.take_down(name, progress) is not None

    def take_down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> list[str] | None:
        project = self._project(name)
        if project is None:
            return None
        with self._locked(name, progress):
            engine, before = self._ask(name, project)
            if engine is None or before is None or not before.resources:
                known = self._read(name) is not None
                self._forget(name)
                return [] if known else None
            self._tunnel(name).close()
            engine.destroy(progress, delete_storage=delete_storage)
            after = engine.state()
            self._forget(name)
        kept = [] if after is None else list(after.resources)
        if before.group_id:
            progress("asking Azure what still exists")
            self._check_gone(name, before.group_id, [one.id for one in kept])
        return _kept(name, kept)

    def names(self) -> list[str]:
        return sorted(path.parent.name for path in self.records.glob("*/stack.json"))

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
            return Stack.model_validate(self._known(name).stack)
        except ValidationError as error:
            raise _broken(self._folder(name), error) from error

    def handle(self, name: str) -> ClusterHandle:
        self._known(name)
        with self._locked(name):
            return self._connect(name)

    def nodes(self, name: str) -> list[NodeStatus]:
        from sunspot.jobs import JobClient

        members = JobClient(self.handle(name)).state("nodes")
        found = [_node(member) for member in members]
        nodes = [node for node in found if node is not None]
        for group in self.stack(name).cluster.scaling_groups:
            here = sum(node.group == group.name and node.state != "lost" for node in nodes)
            nodes += _awaited(group, group.min_workers - here)
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
        if groups[group].is_elastic():
            raise UsageError(
                f"group {group!r} is elastic: on azure Ray's autoscaler alone changes it, between "
                f"{groups[group].min_workers} and {groups[group].max_workers}, as the work needs. "
                f"To keep {count} at least, set its min_workers in {file}, then: sunspot up {name}"
            )
        raise UsageError(
            f"group {group!r} is fixed: set its min_workers and max_workers to {count} in {file} "
            f"and run: sunspot up {name}"
        )

    def outputs(self, name: str) -> Mapping[str, Any]:
        return self._known(name).outputs

    def ssh(self, name: str) -> Ssh:
        record = self._known(name)
        if self._tunnel(name).port() is None:
            with self._locked(name):
                record = self._refresh(name)
        return self._ssh(name, record)

    # What is remembered

    def _folder(self, name: str) -> Path:
        return self.records / stacks.check_name(name)

    def _tunnel(self, name: str) -> Tunnel:
        return Tunnel(self._folder(name))

    def _read(self, name: str) -> Record | None:
        file = self._folder(name) / "stack.json"
        try:
            return Record(**json.loads(file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise _broken(file, error) from error

    def _known(self, name: str) -> Record:
        record = self._read(name)
        if record is None:
            raise _not_up(name)
        return record

    def _write(self, name: str, record: Record) -> None:
        write_private(self._folder(name) / "stack.json", json.dumps(asdict(record)))

    def _forget(self, name: str) -> None:
        self._tunnel(name).close()
        shutil.rmtree(self._folder(name), ignore_errors=True)

    def _remember(self, name: str, project: Path, stack: Stack, state: StackState) -> Record:
        """Writes down what Pulumi's state says; a head that is not the last one loses its key."""
        before = self._read(name)
        head = state.head
        machine = "" if head is None else str(head.outputs.get("vmId") or head.id)
        if before is None or before.machine != machine:
            self._tunnel(name).close()
            (self._folder(name) / "known_hosts").unlink(missing_ok=True)
        record = Record(
            folder=str(project),
            stack=stack.model_dump(mode="json"),
            outputs=dict(state.outputs),
            machine=machine,
        )
        self._write(name, record)
        return record

    @contextlib.contextmanager
    def _locked(self, name: str, progress: Progress | None = None) -> Iterator[None]:
        lock = self.records / f".{stacks.check_name(name)}.lock"
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locked(lock, wait=False))
            except BlockingIOError:
                if progress:
                    progress(f"waiting for another command that is working on {name}")
                held.enter_context(locked(lock))
            yield

    # Pulumi

    def _project(self, name: str) -> Path | None:
        """The folder of the project that the stack belongs to, if it has one."""
        record = self._read(name)
        if record is not None and record.folder and (Path(record.folder) / "Pulumi.yaml").exists():
            return Path(record.folder)
        try:
            project = stacks.project_directory()
        except UsageError:
            project = None
        if project is not None and (project / f"Pulumi.{name}.yaml").exists():
            return project
        if record is not None:
            raise SunspotError(
                f"the project of stack {name!r} is no longer in {record.folder}; run this in the "
                f"folder where its Pulumi.{name}.yaml is"
            )
        return None

    def _engine(self, name: str, project: Path) -> AzureStack | None:
        """The stack; None if it was never used here and there is no `pulumi` to ask either."""
        from sunspot.targets.azure_stack import EngineMissingError

        try:
            return self.engine(name, project, None)
        except EngineMissingError:
            if self._read(name) is None:
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
            if self._read(name) is None and _runs_elsewhere(name, project):
                return None, None
            raise

    def _refresh(self, name: str) -> Record:
        """The record as Pulumi's state has it now, also after a plain `pulumi up`.

        Raises SunspotError, and forgets the cluster, where it was destroyed.
        """
        project = self._project(name)
        engine = None if project is None else self._engine(name, project)
        state = None if engine is None else engine.state()
        if project is None or state is None or state.head is None:
            if state is None or not state.resources:
                self._forget(name)
            raise _not_up(name)
        return self._remember(name, project, self._declared(name, project), state)

    def _declared(self, name: str, project: Path) -> Stack:
        """The stack as its file has it, after a plain `pulumi up` too; else as it was last seen."""
        try:
            return stacks.load(name, project).for_target("azure")
        except UsageError:
            return self.stack(name)

    def _check_gone(self, name: str, group_id: str, kept: list[str]) -> None:
        group = group_id.rpartition("/")[2]
        try:
            found = self.remaining(group_id)
        except SunspotError as error:
            raise SunspotError(
                f"Pulumi destroyed {name!r}, but whether anything is left could not be checked: "
                f"{error}. Look yourself: az resource list --resource-group {group} -o table"
            ) from error
        left = [one for one in found if not _belongs(one, kept)]
        if left:
            raise SunspotError(
                "\n  ".join(
                    [
                        f"Pulumi destroyed {name!r}, but this still exists (and may be billed):",
                        *left,
                        f"If none of it is needed: az group delete --name {group}",
                    ]
                )
            )

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
            known_hosts=self._folder(name) / "known_hosts",
        )

    def _connect(self, name: str, port: int | None = None) -> ClusterHandle:
        """The handle, through the tunnel that is alive or a new one."""
        tunnel, token = self._tunnel(name), self._folder(name) / "token"
        record = self._known(name)
        alive = tunnel.port()
        if alive is None or port not in (None, alive) or not token.exists():
            record = self._refresh(name)
            ssh = self._ssh(name, record)
            alive = tunnel.open(ssh, _dashboard_port(record), preferred=port)
            write_private(token, _fetch_token(ssh))
        gcs = ports.get("gcs").number
        return ClusterHandle(
            name=name,
            target="azure",
            head_address=f"{record.outputs.get('head_private_ip')}:{gcs}",
            job_address=f"http://127.0.0.1:{alive}",
            token_path=token,
        )

    def _wait(
        self, stack: Stack, progress: Progress, timeout_s: float, port: int | None
    ) -> ClusterHandle:
        """Waits until the head takes SSH, has its token, and counts every minimum worker."""
        started = time.monotonic()
        reached, told = False, ""
        while True:
            try:
                handle = self._connect(stack.name, port)
                reached = True
                missing = _missing(stack, handle)
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
                    f"the machines exist, but after {timeout_s:g} s: {missing}. See how they boot: "
                    f"sunspot ssh {stack.name} -- \"journalctl -u 'sunspot-*' -n 50\""
                )
            if missing != told:
                progress(f"waiting: {missing}")
                told = missing
            time.sleep(POLL_S)


def _project_of(stack: Stack) -> Path:
    """The project's folder. Raises UsageError unless its stack file says what `stack` says."""
    project = stacks.project_directory()
    if stacks.load(stack.name, project).for_target("azure") != stack.for_target("azure"):
        raise UsageError(
            f"on azure a cluster is what Pulumi.{stack.name}.yaml in {project} says, and that is "
            "another one; write it there"
        )
    return project


def _runs_elsewhere(name: str, project: Path) -> bool:
    try:
        return stacks.load(name, project).target != "azure"
    except UsageError:
        return False  # a file that is wrong says nothing


def _check(stack: Stack, project: Path) -> None:
    """Raises UsageError with all that the program would refuse, before the engine starts."""
    from sunspot.azure_plan import plan

    plan(stack, project)


def _dashboard_port(record: Record) -> int:
    usual = ports.get("dashboard").number
    return urlsplit(str(record.outputs.get("job_address", ""))).port or usual


def _fetch_token(ssh: Ssh) -> str:
    token = ssh.read("sudo", "-n", "cat", TOKEN_ON_HEAD).strip()
    if not token:
        raise RemoteCommandError(f"{TOKEN_ON_HEAD} on the head is empty")
    return token


def _missing(stack: Stack, handle: ClusterHandle) -> str:
    """What is not there yet, in words; "" if everything is."""
    from sunspot.jobs import JobClient

    try:
        alive = [one for one in JobClient(handle).state("nodes") if one["state"] == "ALIVE"]
    except SunspotError:
        return "the head's job API does not answer yet"
    groups = [(one.get("labels") or {}).get(GROUP_LABEL) for one in alive]
    short = [
        f"{groups.count(group.name)} of {group.min_workers} workers of {group.name} joined"
        for group in stack.cluster.scaling_groups
        if groups.count(group.name) < group.min_workers
    ]
    return ", ".join(short) if alive else "the head has not joined its own cluster yet"


def _node(member: Mapping[str, Any]) -> NodeStatus | None:
    """One member as Ray's state API tells of it; None for one that was let go."""
    message = member.get("state_message") or ""
    is_up = member["state"] == "ALIVE"
    if not is_up and any(sign in message.lower() for sign in _LET_GO):
        return None
    labels = member.get("labels") or {}
    has = member.get("resources_total") or {}
    is_head = member.get("is_head_node", False)
    draining = is_up and "drain" in message.lower()
    return NodeStatus(
        name=member["node_name"],
        group=HEAD if is_head else labels.get(GROUP_LABEL, ""),
        market=labels.get(MARKET_LABEL, ""),
        state="draining" if draining else "up" if is_up else "lost",
        cpus=has.get("CPU", 0.0),
        gpus=has.get("GPU", 0.0),
        memory_gb=round(has.get("memory", 0.0) / GIB, 1),
        log="" if is_up else message,
    )


def _awaited(group: ScalingGroup, count: int) -> list[NodeStatus]:
    """The workers of a group that should be members and are not."""
    size = size_for(group.worker_nodes)
    market = "spot" if group.market == "spot-with-fallback" else group.market
    return [
        NodeStatus(
            name=f"{group.name} (awaited {number})",
            group=group.name,
            market=market,
            state="starting",
            cpus=size.vcpus,
            gpus=size.gpu_count,
            memory_gb=size.memory_gib,
        )
        for number in range(1, count + 1)
    ]


def _belongs(found: str, kept: list[str]) -> bool:
    """Whether a resource is one of those that were kept, or holds or lies in one."""
    this = found.lower().rstrip("/")
    others = [one.lower().rstrip("/") for one in kept]
    return any(this == one or this.startswith(f"{one}/") for one in others if "/providers/" in one)


def _kept(name: str, kept: list[Any]) -> list[str]:
    protected = [one.id for one in kept if one.protected]
    if not protected:
        return []
    # The account; what lies in it goes without saying.
    outermost = [
        i for i in protected if not _belongs(i, [other for other in protected if other != i])
    ]
    ids = ", ".join(i.rpartition("/")[2] for i in outermost)
    what = f"kept, as sunspot:storage > protect says: the results ({ids}) in their resource group"
    how = f"they are billed by the GB; to delete them too: sunspot down {name} --delete-storage"
    return [what, how]


def _way_in(stack: Stack) -> str:
    access = stack.access
    if access.bastion:
        return "It is reached by Azure Bastion, through `az`; are you logged in (az login)?"
    if access.public_ip:
        return (
            "Only sunspot:access > ssh_cidrs may come in: "
            f"{', '.join(access.ssh_cidrs) or 'nobody'}; is your address among them "
            "(curl -4 https://ifconfig.me)?"
        )
    return (
        "It has a private address alone, which only a VPN reaches; or give sunspot:access "
        "public_ip: true and ssh_cidrs with your address, or bastion: true"
    )


def _stays(name: str) -> str:
    return (
        f"What was made stays, and is billed. Go on: sunspot up {name} · "
        f"take it away: sunspot down {name}"
    )


def _not_up(name: str) -> SunspotError:
    return SunspotError(f"stack {name!r} is not up on azure; start it with: sunspot up {name}")


def _broken(file: Path, error: Exception) -> SunspotError:
    what = " ".join(str(error).split())
    return SunspotError(f"{file} cannot be read ({what}); remove it, Pulumi's state is elsewhere")
