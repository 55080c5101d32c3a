"""The kubernetes target: a stack's cluster as a RayCluster, which KubeRay's operator runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.feasibility import NodeType
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import deferred, uninterrupted
from sunspot.stack import Stack
from sunspot.targets.forwarding import Forward
from sunspot.targets.kubernetes import (
    adopting,
    capacity,
    checks,
    job_clusters,
    manifest,
    members,
    placing,
    raycluster,
    rayjob,
    removing,
    scaling,
    starting,
    way_in,
)
from sunspot.targets.kubernetes.api import Object
from sunspot.targets.kubernetes.outages import outlast
from sunspot.targets.kubernetes.records import Record, Records
from sunspot.targets.kubernetes.removing import LOOKED_FOR, Removing
from sunspot.targets.kubernetes.settings import TARGET
from sunspot.targets.kubernetes.shell import HeadShell
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    Finding,
    NodeStatus,
    Progress,
    Removal,
    Up,
    silent,
)
from sunspot.targets.records import BrokenRecordsError, Folders, state_directory
from sunspot.targets.scaling import Size
from sunspot.targets.starting import of_others


def create() -> KubernetesTarget:
    """The kubernetes target, with its records in the user's state directory."""
    return KubernetesTarget(Records(Folders(state_directory() / TARGET)))


@dataclass(frozen=True)
class KubernetesTarget:
    """The clusters on Kubernetes that have a record in `records`.

    With `for_job` those that it brings up are for one job each, and KubeRay ends them after it.
    With `patient` its `down` outlasts an API server that is away.
    """

    records: Records
    name: str = TARGET
    for_job: bool = False
    patient: bool = False

    # What is printed

    def manifest(self, stack: Stack) -> str:
        return manifest.text(stack)

    def served_manifest(self, stack: Stack, source: str) -> str:
        return manifest.served_text(stack, source)

    def job_manifest(
        self, stack: Stack, command: Sequence[str], environment: Mapping[str, Any] | None
    ) -> str:
        return manifest.job_text(stack, command, environment)

    def rights(self, stack: Stack) -> str:
        return manifest.rights_text(stack)

    def at_place(self, stack: Stack, context: str | None, namespace: str | None) -> Stack:
        return placing.at_place(stack, context, namespace)

    def node_types(self, stack: Stack) -> list[NodeType]:
        return capacity.node_types(stack)

    def preconditions(self, stack: Stack, progress: Progress) -> list[Finding]:
        return checks.preconditions(stack.for_target(self.name), progress)

    # A cluster's life

    def check(self, stack: Stack) -> None:
        raycluster.make(stack)
        placing.placed(stack)

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
        if port is not None:
            raise UsageError(
                f"--port is only for clusters on this machine; leave it out on {TARGET}"
            )
        raycluster.make(stack)
        stack = job_clusters.fitted(stack) if self.for_job else stack

        def before(step: str) -> None:  # what is there is another command's: nobody's to take down
            progress(of_others(step))

        with self.records.folders.locked(stack.name, progress):
            before("looking for a cluster of this name")
            adopting.refuse_another_place(self.records, stack)
            if self._is_here(stack.name, before):
                return self._up_again(stack.name, before, timeout_s, dashboard_port)
            wanted, record = placing.placed(stack)
            known = adopting.adopt_visible(self.records, wanted.name, record)
            if known and self._is_here(stack.name, before):
                return self._up_again(stack.name, before, timeout_s, dashboard_port)
            notes = checks.refuse(record.cluster().api, wanted, before, job=self.for_job)
            made = raycluster.make(wanted)
            if self.for_job:
                made, record = rayjob.waiting(wanted), job_clusters.unnamed(record)
            handle = self._start(stack, made, record, progress, timeout_s, dashboard_port)
        return Up(handle, was_up=False, notes=tuple(notes))

    def down(
        self,
        name: str,
        progress: Progress,
        *,
        delete_storage: bool = False,
    ) -> Removal | None:
        if not self.discover(name):
            self.records.forget_stray(name, progress)
            return removing.of_kept(name, progress) if delete_storage else None
        here = self.records
        with here.folders.locked(name, progress), here.without_its_kubernetes(name):
            recorded = self.records.readable(name)
            if self.for_job and recorded is not None and not recorded.job:
                return None  # somebody has ended this command's, and brought another one up
            removal = self._remove(name, progress, delete_kept=delete_storage)
        if recorded is not None and recorded.by_pulumi:
            raise adopting.made_by_pulumi(name, is_closed=True)
        return removal or Removal(looked_for=LOOKED_FOR)

    def names(self) -> list[str]:
        return self.records.names()

    def discover(self, name: str) -> bool:
        if name in self.names():
            return True
        there = placing.by_name(name)
        return there is not None and adopting.adopt(self.records, *there)

    def stack(self, name: str) -> Stack:
        adopting.renew(self.records, name)
        return self.records.stack(name)

    def handle(self, name: str, progress: Progress = silent) -> ClusterHandle:
        record = self._standing(name)
        self.records.stack(name)  # says so if that record is broken
        cluster = record.cluster()
        if cluster.head() is None:
            why = "; ".join(pod.state() for pod in cluster.pods() if pod.is_head)
            raise SunspotError(
                f"the head of {name!r} does not run now ({why or 'it has no pod'}); KubeRay starts "
                f"it. Wait for it with: sunspot up {name}"
            )
        return self._handle(name, record, progress)

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:
        record, stack = self._read(name), self.stack(name)
        cluster = record.cluster()
        if cluster.standing() is None:
            return []
        handle = self._handle(name, record, progress) if cluster.head() else None
        return members.nodes(stack, cluster, handle)

    # What is done with one

    def for_one_job(self) -> KubernetesTarget:
        return replace(self, for_job=True)

    def for_caller(self) -> KubernetesTarget:
        return replace(self, patient=True)

    def submitted(self, name: str, job_id: str) -> None:
        job_clusters.submitted(self.records.read(name), job_id)

    def is_gone(self, name: str) -> bool:
        return job_clusters.is_gone(name, self.records.readable(name))

    def scale(self, name: str, sizes: Mapping[str, Size], progress: Progress) -> None:
        stack = self.stack(name)
        scaling.check(stack, sizes, by_pulumi=self.records.read(name).by_pulumi)
        with self.records.folders.locked(name, progress):
            handle = self.handle(name, progress)
            for group, size in sizes.items():
                scaling.scale(self._read(name).cluster(), handle, stack, group, size, progress)

    def sizes(self, name: str) -> Mapping[str, Size]:
        return scaling.sizes(self.stack(name), self._read(name).cluster().found())

    def node_log(
        self, name: str, node: str, out: TextIO, note: Progress, *, follow: bool = False
    ) -> int:
        return members.show_log(name, self._read(name).cluster(), node, out, note, follow=follow)

    def shell(self, name: str) -> HeadShell:
        return HeadShell(self._standing(name).cluster(), name)

    def forward(
        self,
        name: str,
        port: int,
        local: int | None,
        progress: Progress,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[Forward]:
        return way_in.lead(self._standing(name).cluster(), name, port, local)

    # Parts

    def _read(self, name: str) -> Record:
        """The record of a cluster, by the name that KubeRay may have given it since."""
        return job_clusters.named(self.records.read(name))

    def _standing(self, name: str) -> Record:
        """As `_read`. Raises HeadLostError if the cluster is gone."""
        if (record := self._read(name)).cluster().standing() is None:
            raise job_clusters.lost(name, record)
        return record

    def _is_here(self, name: str, progress: Progress) -> bool:
        """Whether the recorded cluster exists. Removes what is left of one that does not."""
        if name not in self.names():
            return False
        record = self.records.read(name)
        if job_clusters.is_anothers(record):
            self.records.forget(name)
            return False
        cluster = record.cluster()
        job_clusters.refuse_one_at_work(name, record)
        if not record.job and cluster.standing() is not None:
            if not adopting.was_cut_off(self.records, name, record, progress):
                return True
        elif record.by_pulumi and cluster.found() is not None:
            raise adopting.made_by_pulumi(name)
        progress("removing what an earlier command left")
        self._remove(name, progress)
        return False

    def _start(
        self,
        stack: Stack,
        made: list[Object],
        record: Record,
        progress: Progress,
        timeout_s: float,
        dashboard_port: int | None,
    ) -> ClusterHandle:
        """Creates a cluster's objects and waits for it; what fails is taken away."""
        name, cluster, (first, *others) = stack.name, record.cluster(), made
        deadline, uid = time.monotonic() + timeout_s, ""
        try:
            # Before it exists, so that `down` finds what an interrupted `up` created.
            self.records.write(record, stack)
            own = starting.new_token() if record.own_secret else None
            token = starting.users_token(cluster) if own is None else own
            with deferred():
                owner = starting.create(stack, first, cluster)
                uid = owner["metadata"]["uid"]
                self.records.write(record := replace(record, uid=uid), stack)
                starting.create_beside(stack, others, owner, cluster, own)
                self.records.write_token(name, token)
            progress(
                f"created the {owner['kind']} {record.job or record.names.cluster} in "
                f"{record.names.namespace}"
            )
            if record.job:
                record = job_clusters.wait_for_cluster(record, progress)
                self.records.write(record, stack)
            waiting = starting.Waiting(record.cluster(), progress)
            return self._wait(stack, record, waiting, deadline, dashboard_port)
        except starting.TakenError:
            self.records.forget(name)
            raise
        except BaseException as error:
            with uninterrupted():
                self._remove_after(error, name, uid, progress)
            raise

    def _wait(
        self,
        stack: Stack,
        record: Record,
        waiting: starting.Waiting,
        deadline: float,
        dashboard_port: int | None,
    ) -> ClusterHandle:
        waiting.head(deadline)
        # The way in opens while Ray starts.
        handle = self._handle(stack.name, record, waiting.progress, dashboard_port)
        waiting.members(stack, handle, deadline)
        job_clusters.wait_until_seen(record, waiting.progress)
        waiting.progress("ready")
        return handle

    def _up_again(
        self, name: str, progress: Progress, timeout_s: float, dashboard_port: int | None
    ) -> Up:
        """A cluster that was up: it is waited for, and stays as it is."""
        record, stack = self.records.read(name), self.records.stack(name)
        deadline = time.monotonic() + timeout_s
        if self._is_whole(record, stack, progress):
            handle = self._handle(name, record, progress, dashboard_port)
        else:
            waiting = starting.Waiting.again(record.cluster(), progress)
            handle = self._wait(stack, record, waiting, deadline, dashboard_port)
        return Up(handle, was_up=True)

    def _is_whole(self, record: Record, stack: Stack, progress: Progress) -> bool:
        cluster = record.cluster()
        if cluster.head() is None:
            return False
        handle = self._handle(stack.name, record, progress)
        return not members.missing(stack, cluster, handle)

    def _handle(
        self,
        name: str,
        record: Record,
        progress: Progress,
        dashboard_port: int | None = None,
    ) -> ClusterHandle:
        adopting.keep_token(self.records, name, record)
        tunnel = self.records.tunnel(name)
        if not record.place.is_inside and not tunnel.is_open():
            progress("opening the port-forward")
        found = way_in.of(record.place, record.names, tunnel, dashboard_port)
        return way_in.handle(name, record.names, found, self.records.token(name))

    def _remove_after(self, error: BaseException, name: str, uid: str, progress: Progress) -> None:
        """Removes what a failed `up` created; the error says what is kept, and what remains.

        Another command's RayCluster of that name stays; `uid` is that of ours, "" if unknown.
        """
        again = f"sunspot down {name}"
        try:
            found = outlast(lambda: job_clusters.owner(self.records.readable(name)), progress)
            removal = Removal(looked_for=LOOKED_FOR)
            if found is None or found["metadata"]["uid"] == uid:
                removal = self._remove(name, progress) or removal
            elif uid:
                self.records.forget(name)
            else:
                removal = replace(removal, left=[f"a {found['kind']}, perhaps another command's"])
            for sentence in removal.kept:
                error.add_note(sentence)
        except SunspotError as failure:
            error.add_note(f"in addition, it was not taken down: {failure}; try again: {again}")
            return
        if left := ", ".join(removal.left):
            error.add_note(f"this remains: {left}; remove it with: {again}")

    def _remove(
        self, name: str, progress: Progress, *, delete_kept: bool = False
    ) -> Removal | None:
        """Removes a cluster and, if nothing of it is left, its record. The caller has the lock."""
        if name not in self.names():  # an `up` that was waited for has taken it back
            self.records.forget(name)
            return None
        self.records.tunnel(name).close()
        try:
            record = self.records.read(name)
        except BrokenRecordsError:
            record = placing.by_file(self.records, name)
        if record.by_pulumi:  # also when its Kubernetes is gone
            self.records.forget(name)
            return None
        record = job_clusters.named(record)
        going = Removing.of(record, delete_kept=delete_kept)
        removal = going.take_down(progress, patient=self.patient)
        if not removal.left:
            self.records.forget(name)  # another command may have opened a port-forward meanwhile
        return replace(removal, kept=[*removal.kept, *job_clusters.stays(name, record)])
