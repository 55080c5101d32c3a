"""The compose target: a stack's cluster and what belongs to it, as containers on one host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from sunspot import stack as stacks
from sunspot.errors import HeadLostError, SunspotError, UsageError
from sunspot.node.files import locked
from sunspot.node.free_ports import PortClaims
from sunspot.ray import ports as ray_ports
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.compose import (
    containers,
    manifest,
    plan,
    preconditions,
    published,
    removing,
    scaling,
    secret_files,
    services,
    starting,
)
from sunspot.targets.compose import host as hosts
from sunspot.targets.compose.engine import COMPOSE_FILE, Engine, end_recorded
from sunspot.targets.compose.head_ports import HeadPorts
from sunspot.targets.compose.plan import ComposePlan
from sunspot.targets.compose.records import Record, Records, nodes_of
from sunspot.targets.compose.settings import TARGET, ComposeSettings, again, maker
from sunspot.targets.compose.shell import HeadShell
from sunspot.targets.forwarding import Forward
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    Finding,
    NodeStatus,
    Progress,
    Removal,
    Up,
    silent,
)
from sunspot.targets.records import state_directory
from sunspot.targets.scaling import Size


def create() -> ComposeTarget:
    """The compose target, with its records in the user's state directory."""
    return ComposeTarget(Records(state_directory() / "compose"))


@dataclass(frozen=True)
class ComposeTarget:
    """The clusters in Docker Compose that have a record in `records`."""

    records: Records
    name: str = TARGET

    def check(self, stack: Stack) -> None:
        engine = Engine.current()
        engine.check()
        _plan(stack, engine)

    def manifest(self, stack: Stack) -> str:
        """The file; of the host, only what its nodes' shares depend on is asked.

        The ports are those of the stack's cluster, if it is up.
        """
        engine = Engine.current_or_here()
        made = _plan(stack, engine)
        with PortClaims() as claims:
            here = claims if engine.ssh is None else None
            chosen = published.choose(made, dashboard=None, taken=set(), claims=here)
        if record := self.records.read(stack.name):
            chosen = {name: record.ports.get(name, port) for name, port in chosen.items()}
        return manifest.text(made, chosen, self.records.owner)

    def with_gpus(self, stack: Stack, maker_name: str) -> Stack:
        settings = ComposeSettings.of(stack)
        host = settings.host.model_copy(update={"gpu": maker(maker_name)})
        return stack.with_settings(settings.model_copy(update={"host": host}))

    def preconditions(self, stack: Stack, progress: Progress) -> list[Finding]:
        return preconditions.check(stack, _project_folder(), self.records, progress)

    def up(
        self,
        stack: Stack,
        progress: Progress,
        *,
        timeout_s: float = UP_TIMEOUT_S,
        port: int | None = None,
        dashboard_port: int | None = None,
        client: bool = False,  # noqa: ARG002 - the head always has a Ray Client server
    ) -> Up:
        """Builds and pulls what images are missing, then takes up to `timeout_s` to start."""
        if port is not None:
            raise UsageError("--port is not for compose, where the GCS has no port on the host")
        with self.records.folders.locked(stack.name, progress), PortClaims() as claims:
            record = self.records.read(stack.name)
            if record is not None and record.ready:
                return self._up_again(stack, record, progress, timeout_s)
            engine = Engine.current()
            engine.check()
            made = _plan(stack, engine)
            removing.refuse_foreign(self.records, stack.name, engine)
            if record is not None:
                progress("removing what an interrupted start left")
                removing.remove(self.records, stack.name, progress)
            try:
                here = claims if engine.ssh is None else None
                record = self._write(stack, made, engine, dashboard_port, here)
                self._start(stack.name, record, progress, timeout_s)
                self.records.change(stack.name, ready=True)
            except BaseException as error:
                with uninterrupted():
                    removing.clean_up(self.records, stack.name, error)
                raise
        return Up(self.handle(stack.name), was_up=False, notes=made.notes)

    def down(
        self, name: str, progress: Progress, *, delete_storage: bool = False
    ) -> Removal | None:
        known = name in self.names()
        if not known and not removing.exists(self.records, name, volumes=delete_storage):
            return None
        with self.records.folders.locked(name, progress):
            return removing.take_down(self.records, name, progress, volumes=delete_storage)

    def names(self) -> list[str]:
        return self.records.folders.names()

    def discover(self, name: str) -> bool:
        return name in self.names()

    def stack(self, name: str) -> Stack:
        try:
            return Stack.model_validate(self.records.known(name).stack)
        except ValidationError as error:
            file = self.records.folder(name) / "cluster.json"
            raise self.records.folders.broken(name, file, error) from error

    def handle(self, name: str, progress: Progress = silent) -> ClusterHandle:
        record = self.records.known(name)
        engine = Engine(record.engine)
        if not record.ready:
            raise SunspotError(
                f"stack {name!r} is still starting, or its start was interrupted. "
                f"Wait, or run: {again(name)}"
            )
        found = containers.by_service(engine.containers(record.project))
        containers.check_head(name, engine, found)
        return self._handle(name, record, engine, progress)

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:
        record = self.records.known(name)
        engine = Engine(record.engine)
        found = containers.by_service(engine.containers(record.project))
        alive = []
        with contextlib.suppress(HeadLostError):
            containers.check_head(name, engine, found)
            alive = containers.members(self._handle(name, record, engine, progress))
        edited = self.records.is_edited(name, record)
        notes = (*record.notes, *(["compose.yaml was edited by hand"] if edited else []))
        nodes = containers.nodes(record, engine, found, alive)
        return [replace(node, notes=notes) if node.is_head else node for node in nodes]

    def scale(self, name: str, sizes: Mapping[str, Size], progress: Progress) -> None:
        handle, stack = self.handle(name), self.stack(name)
        scaling.check(stack, self.records.known(name), sizes)
        with self.records.folders.locked(name, progress):
            for group, size in sizes.items():
                scaling.scale(self.records, handle, group, size, progress)

    def sizes(self, name: str) -> Mapping[str, Size]:
        return scaling.sizes(self.stack(name), self.records.known(name))

    def node_log(
        self, name: str, node: str, out: TextIO, note: Progress, *, follow: bool = False
    ) -> int:
        """Prints a container's log; `node` may also be a service beside Ray, such as grafana."""
        record = self.records.known(name)
        engine = Engine(record.engine)
        return containers.show_log(name, record, engine, node, out, note, follow=follow)

    def shell(self, name: str) -> HeadShell:
        return HeadShell(*self._head(name))

    def forward(
        self,
        name: str,
        port: int,
        local: int | None,
        progress: Progress,  # noqa: ARG002 - none of it takes long
    ) -> contextlib.AbstractContextManager[Forward]:
        return HeadPorts(*self._head(name)).lead(name, port, local)

    def _head(self, name: str) -> tuple[Engine, str]:
        """The engine of a cluster, and the container of its head, which runs."""
        record = self.records.known(name)
        engine = Engine(record.engine)
        found = containers.by_service(engine.containers(record.project))
        containers.check_head(name, engine, found)
        return engine, found[HEAD].id

    def _up_again(self, stack: Stack, record: Record, progress: Progress, timeout_s: float) -> Up:
        """Starts what is not running of a cluster that was up, with the file that it has."""
        edited = self.records.is_edited(stack.name, record)
        folder = self.records.folder(stack.name)
        file = folder / COMPOSE_FILE
        kept = f"{file} was edited by hand: it is kept, and used as it is"
        if edited or not self._is_up(stack.name, record):
            end_recorded(folder, progress)
            starting.remove_if_headless(Engine(record.engine), record, folder, progress)
            self._start(stack.name, record, progress, timeout_s, again=True, recreate=edited)
        return Up(self.handle(stack.name), was_up=True, notes=(kept,) if edited else ())

    def _is_up(self, name: str, record: Record) -> bool:
        """Whether every wanted node is a member, and every service runs."""
        engine = Engine(record.engine)
        found = containers.by_service(engine.containers(record.project))
        running = {service for service, one in found.items() if one.state == "running"}
        if not {*record.wanted, *record.services} <= running:
            return False
        handle = self._handle(name, record, engine, silent)
        return not starting.not_joined(handle, record.wanted)

    def _write(
        self,
        stack: Stack,
        made: ComposePlan,
        engine: Engine,
        dashboard_port: int | None,
        claims: PortClaims | None,
    ) -> Record:
        """Writes the record and the files of a cluster, before any of it exists."""
        with locked(self.records.root / ".ports.lock"):
            taken = self.records.taken_ports()
            if claims is None:  # another host
                taken |= engine.published_ports() | hosts.listening_ports(engine)
            chosen = published.choose(made, dashboard=dashboard_port, taken=taken, claims=claims)
            record = Record(
                stack=stack.model_dump(mode="json"),
                engine=engine.address,
                project=made.project,
                ports=chosen,
                nodes=nodes_of(made),
                wanted=tuple(node.name for node in made.nodes if node.starts),
                services=tuple(services.names(made)),
                builds=tuple(services.builds(made)),
                notes=made.notes,
            )
            self.records.write(stack.name, record)
        secret_files.create(self.records.folder(stack.name))
        text = manifest.text(made, chosen, self.records.owner)
        return self.records.write_compose_file(stack.name, text)

    def _start(
        self,
        name: str,
        record: Record,
        progress: Progress,
        timeout_s: float,
        *,
        again: bool = False,
        recreate: bool = False,
    ) -> None:
        """Fetches the images and starts the containers; `again` of a cluster that was up."""
        engine, folder = Engine(record.engine), self.records.folder(name)
        starting.fetch_images(engine, record, folder, progress, build=not again)
        # That took minutes, in which somebody else may have started one of that name.
        removing.refuse_foreign(self.records, name, engine)
        deadline = time.monotonic() + timeout_s
        starting.start(engine, record, folder, progress, timeout_s, recreate=recreate)
        handle = self._handle(name, record, engine, progress)
        starting.wait_until_joined(handle, record.wanted, deadline)

    def _handle(
        self, name: str, record: Record, engine: Engine, progress: Progress
    ) -> ClusterHandle:
        local = self._local_ports(name, record, engine, progress)
        folder = self.records.folder(name)
        token = secret_files.read(folder, secret_files.JUPYTER_TOKEN)
        return ClusterHandle(
            name=name,
            target=self.name,
            head_address=f"{HEAD}:{ray_ports.get('gcs').number}",
            driver_address=f"ray://127.0.0.1:{local['client']}",
            job_address=f"http://127.0.0.1:{local['dashboard']}",
            token_path=folder / secret_files.RAY_TOKEN,
            monitoring=published.addresses(local, token),
        )

    def _local_ports(
        self, name: str, record: Record, engine: Engine, progress: Progress
    ) -> Mapping[str, int]:
        """This machine's port for each published one: the host's own, or those of a tunnel."""
        if (ssh := engine.ssh) is None:
            return record.ports
        tunnel = self.records.tunnel(name)
        others = {key: port for key, port in record.ports.items() if key != published.DASHBOARD}
        if tunnel.port() is None:
            progress("opening the tunnel")
        dashboard = record.ports[published.DASHBOARD]
        opened = tunnel.open(ssh, dashboard, preferred=None, also=list(others.values()))
        local = tunnel.local(list(others.values()))
        return {published.DASHBOARD: opened} | {k: local[port] for k, port in others.items()}


def _plan(stack: Stack, engine: Engine) -> ComposePlan:
    return plan.of(stack, engine, _project_folder())


def _project_folder() -> Path:
    """The project's folder, or the working directory for a stack that has none (RayCluster)."""
    try:
        return stacks.project_directory()
    except UsageError:
        return Path.cwd()
