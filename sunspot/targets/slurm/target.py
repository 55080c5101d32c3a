"""The slurm target: a cluster is one job, and jobs that join it."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import write_private
from sunspot.node.slurm.plan import Published
from sunspot.ray import resources
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import deferred, uninterrupted
from sunspot.stack import Stack
from sunspot.stack_problems import wrong
from sunspot.targets import members
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    Finding,
    NodeStatus,
    Progress,
    Removal,
    Up,
    silent,
)
from sunspot.targets.records import Folders, state_directory
from sunspot.targets.scaling import Size
from sunspot.targets.slurm import (
    batch_run,
    checks,
    commands,
    node_log,
    plan,
    preconditions,
    scaling,
    script,
)
from sunspot.targets.slurm.commands import Slurm
from sunspot.targets.slurm.life import OUTPUT, POLL_S, Life, pauses
from sunspot.targets.slurm.records import JobRecord, Records, new_job
from sunspot.targets.slurm.script import Submission
from sunspot.targets.slurm.settings import TARGET
from sunspot.targets.tunnel import LOOPBACK, Tunnel

LOOKED_FOR = "job or file"


def create() -> SlurmTarget:
    """The slurm target, with its records in the user's state directory."""
    return SlurmTarget(Records(Folders(state_directory() / TARGET)))


@dataclass(frozen=True)
class SlurmTarget:
    """The clusters on Slurm that have a record in `records`."""

    records: Records
    name: str = TARGET

    def check(self, stack: Stack) -> None:
        self._check(stack, silent)

    def manifest(self, stack: Stack) -> str:
        _refuse(stack, checks.of_settings(stack))
        return script.manifest(stack)

    def preconditions(self, stack: Stack, progress: Progress) -> list[Finding]:
        fitted = stack.for_target(self.name)
        return preconditions.check(fitted, self._slurm_of(fitted, progress), progress)

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
        """Submits the cluster's job and waits for it; `timeout_s` begins when the job does."""
        if port is not None:
            raise UsageError("--port is only for clusters on this machine; leave it out on slurm")
        self._check(stack, progress)
        with self.records.folders.locked(stack.name, progress):
            wait = functools.partial(self._wait, stack, progress, timeout_s, dashboard_port)
            if (life := self._running(stack.name, progress)) is not None:
                was_up = life.published() is not None
                return Up(wait(life, was_up), was_up=was_up)
            try:
                return Up(wait(self._submit(stack, progress), False), was_up=False)
            except BaseException as error:
                with uninterrupted():
                    self._remove_after(error, stack.name, progress)
                raise

    def down(
        self,
        name: str,
        progress: Progress,
        *,
        delete_storage: bool = False,  # noqa: ARG002 - checkpoints are the user's files
    ) -> Removal | None:
        if name not in self.names():
            return None
        with self.records.folders.locked(name, progress):
            left = self._remove(name, progress)
        return Removal(looked_for=LOOKED_FOR, left=left, remedy="see it with: squeue --me")

    def run(
        self,
        stack: Stack,
        command: Sequence[str],
        out: TextIO,
        progress: Progress,
        *,
        follow: bool = True,
    ) -> int:
        self._check(stack, progress)
        return batch_run.run(
            self._slurm_of(stack, progress), stack, command, out, progress, follow=follow
        )

    def names(self) -> list[str]:
        return self.records.folders.names()

    def discover(self, name: str) -> bool:
        return name in self.names()

    def stack(self, name: str) -> Stack:
        return self.records.stack(name)

    def handle(
        self,
        name: str,
        progress: Progress = silent,
    ) -> ClusterHandle:
        life = self._life(name, progress)
        self.records.stack(name)  # says so if that record is broken
        job = life.main()
        if job is None or not job.is_there:
            raise life.lost(name)
        if job.waits:
            raise SunspotError(
                f"stack {name!r} is not up yet: job {job.id} waits in Slurm's queue "
                f"({job.why}). Wait for it with: sunspot up {name}"
            )
        published = life.published()
        if published is None:
            raise SunspotError(
                f"stack {name!r} is still starting: job {job.id} is {job.state}. Wait for it with: "
                f"sunspot up {name}"
            )
        return self._handle(name, life.record, published)

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:
        return members.nodes(self.stack(name), self.handle(name, progress), resources.of)

    def scale(self, name: str, sizes: Mapping[str, Size], progress: Progress) -> None:
        stack = self.stack(name)
        groups = {group: scaling.check(stack, group, size) for group, size in sizes.items()}
        connect = functools.partial(self.handle, name)
        with self.records.folders.locked(name, progress):
            for group, size in sizes.items():
                scaling.scale(
                    self._life(name, progress), stack, groups[group], size, connect, progress
                )

    def sizes(self, name: str) -> Mapping[str, Size]:
        return scaling.sizes(self._life(name, silent), self.stack(name))

    def node_log(
        self, name: str, node: str, out: TextIO, note: Progress, *, follow: bool = False
    ) -> int:
        return node_log.show(self._life(name, note), name, node, out, note, follow=follow)

    # Parts

    def _check(self, stack: Stack, progress: Progress) -> None:
        problems = checks.of_settings(stack)
        if not problems:
            offered = checks.offers(self._slurm_of(stack, progress))
            problems = checks.of_partitions(stack, offered)
        _refuse(stack, problems)

    def _slurm_of(self, stack: Stack, progress: Progress) -> Slurm:
        return self._slurm(plan.settings(stack).login_host, progress)

    def _slurm(self, login_host: str | None, progress: Progress = silent) -> Slurm:
        return commands.of(login_host, self.records.folders.root / "known_hosts", progress)

    def _life(self, name: str, progress: Progress) -> Life:
        record = self.records.job(name)
        return Life(self._slurm(record.login_host, progress), record)

    def _running(self, name: str, progress: Progress) -> Life | None:
        """The cluster's job, if it waits or runs. Removes what another one left."""
        if name not in self.names():
            return None
        life = self._life(name, progress)
        job = life.main()
        if job is not None and job.is_there:
            self.records.stack(name)
            return life
        progress("removing what an earlier job left")
        self._remove(name, progress)
        return None

    def _submit(self, stack: Stack, progress: Progress) -> Life:
        slurm, job = self._slurm_of(stack, progress), plan.settings(stack)
        record = new_job(stack, slurm.expand(job.folder), job.login_host)
        # Before the job exists, so that `down` finds what an interrupted `up` submitted.
        self.records.write(record, stack)
        submission = Submission(
            name=record.name,
            folder=record.folder,
            output=f"{record.folder}/{OUTPUT}",
            # Without arguments, the cluster stays until its time limit.
            command=(),
            requeue=job.requeue,
        )
        with deferred():
            slurm.make_folder(record.folder)
            number = slurm.submit(script.batch(stack, submission))
        progress(f"submitted job {number}")
        return Life(slurm, record)

    def _wait(
        self,
        stack: Stack,
        progress: Progress,
        timeout_s: float,
        dashboard_port: int | None,
        life: Life,
        was_up: bool,
    ) -> ClusterHandle:
        """Waits until the cluster is whole; if it was up, also if it has lost a node since."""
        job = life.wait_in_queue(progress, plan.settings(stack).queue_timeout_s)
        deadline = time.monotonic() + timeout_s
        progress(f"job {job.id} runs: its nodes start Ray")
        published = life.wait_until_published(deadline)
        progress(f"the head is up on {published.node}")
        handle = self._handle(stack.name, life.record, published, dashboard_port)
        pause = pauses(POLL_S / 4)
        while missing := members.missing(stack, handle):
            job = life.main()
            if job is None or not job.is_there:
                raise life.failure(job)
            if failed := life.failed():
                if was_up:
                    break
                raise SunspotError(f"Ray ended on {', '.join(failed)}. {life.said()}")
            if time.monotonic() > deadline:
                raise SunspotError(f"timed out after {timeout_s:g} s: {missing}. {life.said()}")
            time.sleep(next(pause))
        progress("ready")
        return handle

    def _handle(
        self,
        name: str,
        record: JobRecord,
        published: Published,
        dashboard_port: int | None = None,
    ) -> ClusterHandle:
        dashboard, client = published.dashboard, published.client
        token = f"{record.folder}/token"
        folder = self.records.folders.path(name)
        slurm = self._slurm(record.login_host)
        if slurm.login is not None:
            text = slurm.read(token)
            if text is None:
                raise SunspotError(f"cannot read {token} on {slurm.login.called}")
            write_private(folder / "token", text)
            token = str(folder / "token")
            tunnel = Tunnel(folder)
            host, _, first = dashboard.rpartition(":")
            wanted = int(client.rpartition(":")[2])
            local = tunnel.open(
                slurm.login, int(first), preferred=dashboard_port, also=(wanted,), host=host
            )
            dashboard = f"{LOOPBACK}:{local}"
            client = f"{LOOPBACK}:{tunnel.local([wanted])[wanted]}"
        elif dashboard_port is not None:
            raise UsageError(
                "--dashboard-port is the local end of a tunnel, which a login node does not need; "
                "leave it out"
            )
        return ClusterHandle(
            name=name,
            target=self.name,
            head_address=published.gcs,
            driver_address=f"ray://{client}",
            job_address=f"http://{dashboard}",
            token_path=Path(token),
        )

    def _remove_after(self, error: BaseException, name: str, progress: Progress) -> None:
        """Removes what a failed `up` submitted; if it cannot, the error says what remains."""
        try:
            left = self._remove(name, progress)
        except SunspotError as failure:
            left = [str(failure)]
        if left:
            error.add_note(f"this remains: {', '.join(left)}; remove it with: sunspot down {name}")

    def _remove(self, name: str, progress: Progress) -> list[str]:
        """Cancels the cluster's jobs and deletes its files; returns what is left, a line each."""
        folders = self.records.folders
        if name not in folders.names():  # an `up` that was waited for has taken it back
            return []
        Tunnel(folders.path(name)).close()
        life = self._life(name, progress)
        left = life.cancel(progress)
        if not left:
            life.slurm.remove(life.record.folder)
            if life.slurm.exists(life.record.folder):
                left.append(life.record.folder)
            root = life.record.folder.rpartition("/")[0]
            life.slurm.remove_empty(f"{root}/storage/{name}", f"{root}/storage", root)
            with Tunnel(folders.path(name)).closed():  # another command may have opened it again
                folders.remove(name)
        return left


def _refuse(stack: Stack, problems: Sequence[checks.Problem]) -> None:
    if problems:
        raise wrong(f"stack {stack.name} on {TARGET}", list(map(str, problems)))
