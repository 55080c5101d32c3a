"""The azure target: a stack on virtual machines, created by Pulumi and reached through SSH."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import ValidationError

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets import forwarding, head_notebook, members
from sunspot.targets.azure import (
    boots,
    costs,
    doctor,
    emptying,
    evicting,
    head,
    history,
    inventory,
    left_behind,
    node_log,
    project,
    remaining,
    replacing,
    scaling,
    suspending,
    updating,
    wait,
)
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.known import Engine, Known
from sunspot.targets.azure.reach import Reach
from sunspot.targets.azure.records import Record, Records
from sunspot.targets.azure.settings import TARGET, AzureSettings
from sunspot.targets.callers import Callers
from sunspot.targets.contacting import Contact
from sunspot.targets.forwarding import Forward
from sunspot.targets.head_notebook import HeadNotebook
from sunspot.targets.history import Recorded
from sunspot.targets.idling import no_policy
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    Finding,
    HourlyCost,
    NodeStatus,
    Progress,
    Removal,
    Up,
    silent,
)
from sunspot.targets.records import state_directory
from sunspot.targets.scaling import Size, least
from sunspot.targets.ssh import Ssh, UnreachableError
from sunspot.targets.suspending import suspended

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import AzureStack


def create() -> AzureTarget:
    """The azure target, with its records in the user's state directory."""
    records = Records(state_directory() / "azure")
    return AzureTarget(records, functools.partial(_pulumi, records))


def _pulumi(
    records: Records, name: str, folder: Path, progress: Progress, *, install: bool = False
) -> AzureStack:
    from sunspot.targets.azure import engine
    from sunspot.targets.azure.automation import AzureStack

    find = engine.install_engine if install else engine.find_engine
    return AzureStack(name, folder, find(progress, records.runs(name)))


@dataclass(frozen=True)
class AzureTarget:
    """The clusters on Azure that have a record in `records`.

    Unlike on this machine, an `up` that fails removes nothing: to create it all again would cost
    minutes and money, and the next `up` continues where this one stopped. The error says so.

    Attributes:
        records: the records of the clusters.
        engine: returns a Pulumi stack.
        still_there: lists what is left in a resource group.
        addresses: lists the private addresses in a resource group.
        quick: the preconditions that `up` checks first.
        endpoints: the addresses of Azure.
        replaces_head: whether `up` may replace the head of a cluster that is up.
        removes_now: whether `up` deletes workers of removed groups, and older ones, undrained.
        updates: whether `up` updates a cluster that is up; otherwise it refuses.
        name: the target's name in the registry.
    """

    records: Records
    engine: Engine
    still_there: Callable[[str], list[str]] = remaining.remaining
    addresses: Callable[[str], dict[str, str]] = inventory.addresses
    quick: Callable[[Stack, Path], list[Finding]] = doctor.quick
    endpoints: Endpoints = field(default_factory=Endpoints)
    replaces_head: bool = False
    removes_now: bool = False
    updates: bool = True
    name: str = TARGET

    def check(self, stack: Stack) -> None:
        project.check(stack, project.declared_in(stack))

    def preconditions(self, stack: Stack, progress: Progress) -> list[Finding]:
        record = self.records.read(stack.name)
        subject = doctor.Subject(
            stack=stack,
            folder=project.declared_in(stack),
            group=None if record is None else record.group_id.rpartition("/")[2] or None,
            endpoints=self.endpoints,
        )
        return doctor.check(subject, progress)

    def replacing_head(self) -> AzureTarget:
        return replace(self, replaces_head=True)

    def removing_now(self) -> AzureTarget:
        return replace(self, removes_now=True)

    def for_caller(self) -> AzureTarget:
        return replace(self, updates=False)

    def first_contact(self, stack: Stack) -> AbstractContextManager[Contact]:
        from sunspot.targets.azure import first_contact

        return first_contact.prepared(self, stack)

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
        client: bool = False,  # noqa: ARG002 - its heads always have the server
    ) -> Up:
        """Runs the stack's program, then waits up to `timeout_s` until every worker has joined."""
        if port is not None:
            raise UsageError("--port is only for clusters on this machine; leave it out on azure")
        self.check(stack)
        name, folder = stack.name, project.declared_in(stack)
        progress("looking at the login to Azure")
        doctor.refuse(stack, self.quick(stack, folder))
        if self.is_suspended(name):
            raise suspended(name)
        with self.records.locked(name, progress):
            engine = self.engine(name, folder, progress, install=True)
            if not self.updates:
                updating.refuse_any(engine, name)
            # Before anything is created, so that `down` finds what an interrupted `up` created.
            dumped = stack.model_dump(mode="json")
            before = self.records.read(name)
            record = before or Record(folder="", stack=dumped, outputs={})
            update = self._update(stack, before, progress)
            if update.before is None:
                record = replace(record, stack=dumped)
            self.records.write(name, replace(record, folder=str(folder)))
            wanted = replacing.Wanted(name=name, now=dumped, before=before and before.stack)
            with updating.saying_what_remains(name):
                old = update.prepare(engine, wanted, replace_head=self.replaces_head)
                self.records.write(name, replace(record, folder=str(folder), stack=dumped))
                try:
                    state = engine.up(progress)
                except updating.BusyError:
                    if before is None:  # it is another machine's
                        self.records.forget(name)
                    raise
                self.records.remember(name, folder, stack, state)
                connect = functools.partial(self._reach.connect, name, progress, dashboard_port)
                handle = update.finish(old, connect, timeout_s)
        return Up(handle, was_up=False)

    def _update(self, stack: Stack, before: Record | None, progress: Progress) -> updating.Update:
        known = None
        if before is not None:
            # One of another version of Sunspot's schema is overwritten.
            with contextlib.suppress(ValidationError):
                known = Stack.model_validate(before.stack)
        return updating.Update(
            stack=stack,
            before=known,
            reach=functools.partial(self._reach.cluster, stack.name, progress),
            endpoints=self.endpoints,
            progress=progress,
            now=self.removes_now,
        )

    def down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> Removal | None:
        folder = project.to_take_down(name, self.records, progress)
        if folder is None:
            return None
        with self.records.locked(name, progress):
            engine, before = self._known.ask(name, folder, progress)
            if engine is None or before is None or not before.resources:
                return left_behind.check(name, self.records, self.still_there, progress)
            if before.is_aks:
                raise left_behind.to_pulumi(name)
            self.records.tunnel(name).close()
            try:
                emptying.empty(before, progress, self.endpoints)
                engine.unprotect(before.protected_head)
                engine.destroy(progress, delete_storage=delete_storage)
            except (KeyboardInterrupt, SunspotError) as error:
                error.add_note(emptying.to_go_on(name, before))
                raise
            after = engine.state()
            self.records.forget(name)
        kept = () if after is None else after.resources
        progress("asking Azure what still exists")
        return remaining.removal(name, before.group_id, kept, self.still_there)

    def delete_left_behind(self, name: str, progress: Progress) -> Removal:
        with self.records.locked(name, progress):
            return left_behind.delete(
                name, self.records, self.still_there, progress, self.endpoints
            )

    def names(self) -> list[str]:
        return self.records.names()

    def discover(self, name: str) -> bool:
        if (declared := project.declared_here(name)) is None:
            return False
        stack, folder = declared
        _, state = self._known.ask(name, folder, silent)
        if state is None or state.head is None:
            return False
        self.records.remember(name, folder, stack.for_target(self.name), state)
        return True

    def stack(self, name: str) -> Stack:
        return self._known.stack(name)

    def handle(self, name: str, progress: Progress = silent) -> ClusterHandle:
        self.records.known(name)
        if (live := self._reach.live(name)) is not None:
            return live
        try:
            with self.records.locked(name, progress):
                return self._reach.connect(name, progress)
        except UnreachableError as error:
            if self.is_suspended(name):
                raise suspended(name) from error
            raise

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:
        # The handle first: where it must look again, it brings the record up to date.
        handle = self.handle(name, progress)
        return members.nodes(self.stack(name), handle, least=lambda: self._least(name))

    def _least(self, name: str) -> Mapping[str, int]:
        """The minimum of each group that was scaled by hand, if Azure says it."""
        with contextlib.suppress(SunspotError):
            return least(self.sizes(name))
        return {}

    def hourly_cost(self, name: str, nodes: Sequence[NodeStatus]) -> HourlyCost | None:
        return costs.now(self.stack(name), Path(self.records.known(name).folder), nodes)

    def hourly_prices(self, name: str) -> Mapping[str, float]:
        return costs.of_each(self.stack(name), Path(self.records.known(name).folder))

    def scale(self, name: str, sizes: Mapping[str, Size], progress: Progress) -> None:
        scaling.check(self.stack(name), sizes)
        with self.records.locked(name, progress):
            scaling.scale(self._reach.cluster(name, progress), sizes, progress, self.endpoints)

    def sizes(self, name: str) -> Mapping[str, Size]:
        return scaling.sizes(self.stack(name), self._vm(name), self.endpoints)

    def outdated(self, name: str) -> Sequence[str]:
        handle = self.handle(name)
        return boots.outdated(self.stack(name), self._vm(name), handle, self.endpoints)

    def _vm(self, name: str) -> str:
        """The ARM id of the head's VM."""
        return head.vm_of(self._reach.group_id(name), self.records.known(name).head)

    def evict(self, name: str, node: str, notice_s: float | None, progress: Progress) -> str:
        if notice_s is not None:
            raise UsageError("on azure the platform sets the notice: leave --notice out")
        chosen = members.worker(name, node, self.nodes(name, progress))
        return evicting.evict(self._reach.group_id(name), chosen, progress, self.endpoints)

    def suspend(self, name: str, progress: Progress) -> Sequence[str]:
        with self.records.locked(name, progress):
            connect = functools.partial(self._reach.connect, name, progress)
            suspending.suspend(self._machines(name), connect, progress)
            self.records.tunnel(name).close()
        return (suspending.still_billed(self.hourly_cost(name, ())),)

    def start(self, name: str, progress: Progress, *, timeout_s: float = UP_TIMEOUT_S) -> Up:
        connect = functools.partial(self._reach.connect, name, progress)
        with self.records.locked(name, progress):
            folder = Path(self.records.known(name).folder)
            fixed = suspending.fixed_sizes(self.stack(name), folder, self._machines(name))
            suspending.start(self._machines(name), fixed, progress)
            self.records.tunnel(name).close()  # it may look alive for a while
            with suspending.noting_that_it_may_run(name):
                handle = wait.until_joined(self.stack(name), connect, progress, timeout_s)
        return Up(handle, was_up=False)

    def is_suspended(self, name: str) -> bool:
        """Asks Azure, unless a tunnel shows that the head runs; False where it does not answer."""
        record, tunnel = self.records.read(name), self.records.tunnel(name)
        if not (record and record.group_id and record.head) or tunnel.port() is not None:
            return False
        with contextlib.suppress(SunspotError):
            return suspending.is_suspended(self._machines(name))
        return False

    def keep_alive(self, name: str, seconds: float) -> float:
        """Asks the head, by SSH: whoever may log in there may keep it anyway."""
        if (stack := self.stack(name)).idle is None:
            raise no_policy(stack)
        return head.keep_alive(self.shell(name), seconds)

    def _machines(self, name: str) -> suspending.Machines:
        group, vm = self._reach.group_id(name), self.records.known(name).head
        return suspending.Machines(stack=name, group_id=group, head=vm, endpoints=self.endpoints)

    def outputs(self, name: str) -> Mapping[str, Any]:
        return self.records.known(name).outputs

    def shell(self, name: str) -> Ssh:
        return self._reach.ssh(name, self._reach.current(name))

    def recorded(self, name: str) -> Recorded:
        return history.recorded(self.shell(name))

    def node_log(
        self, name: str, node: str, out: TextIO, note: Progress, *, follow: bool = False
    ) -> int:
        """Prints boot phases and journal; `node` may also be a private address or any VM's name."""
        record = self._reach.current(name, note)
        addresses = (record.outputs.get(key) for key in ("head_address", "head_private_ip"))
        machines = node_log.Machines(
            stack=name,
            head=self._reach.ssh(name, record),
            head_name=record.head,
            head_addresses=frozenset(str(one) for one in addresses if one),
            group=str(record.outputs.get("resource_group") or record.group_id.rpartition("/")[2]),
            members=functools.partial(self._members, name),
            addresses=functools.partial(self._addresses, name),
        )
        return node_log.show(machines, node, out, note, follow=follow)

    def _members(self, name: str) -> Mapping[str, str]:
        """The private addresses of Ray's nodes, by their names; none if Ray does not answer."""
        has_token = (self.records.folder(name) / "token").exists()
        if self.records.tunnel(name).port() is not None and not has_token:
            return {}  # an `up` that waits for the head, and holds the lock
        return node_log.of_ray(functools.partial(self.handle, name))

    def _addresses(self, name: str) -> dict[str, str]:
        """The private addresses of all VMs, by their names, from Azure."""
        return self.addresses(self._reach.group_id(name))

    def forward(
        self, name: str, port: int, local: int | None, progress: Progress
    ) -> AbstractContextManager[Forward]:
        to = self._reach.ssh(name, self._reach.current(name, progress))
        return forwarding.through(to, name, port, local)

    def notebook(
        self, name: str, arguments: Sequence[str], progress: Progress
    ) -> AbstractContextManager[HeadNotebook]:
        to = self._reach.ssh(name, self._reach.current(name, progress))
        return head_notebook.through(to, name, head.PYTHON_OF_RAY, arguments, progress)

    def callers(self, name: str) -> Callers | None:
        sources = AzureSettings.of(self.stack(name)).access.serve_cidrs
        address = str(self.outputs(name).get("head_address"))
        return Callers(address=address, sources=sources) if sources else None

    @property
    def _known(self) -> Known:
        return Known(self.records, self.engine, self.name)

    @property
    def _reach(self) -> Reach:
        return Reach(self._known)
