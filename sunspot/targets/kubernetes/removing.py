"""Taking a cluster down: its pods, what makes and holds them, then what this machine has of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from sunspot.errors import UsageError
from sunspot.signals import deferred
from sunspot.targets.kubernetes import job_clusters, placing
from sunspot.targets.kubernetes.api import POLICY, Object, path
from sunspot.targets.kubernetes.errors import NOT_FOUND, ApiError, RefusedError
from sunspot.targets.kubernetes.objects import Cluster, Pod
from sunspot.targets.kubernetes.outages import outlast
from sunspot.targets.kubernetes.raycluster import MANAGED_BY
from sunspot.targets.kubernetes.records import Record
from sunspot.targets.protocol import Progress, Removal

LOOKED_FOR = "RayCluster, RayJob, pod, Secret, claim of a volume or disruption budget"

POLL_S = 0.5

# What KubeRay's operator and the garbage collector need to let a RayCluster go.
FINALIZER_PATIENCE_S = 30.0
# What Ray needs to end its processes.
GRACE_S = 2
# Beside the pods' own grace period.
POD_PATIENCE_S = 60.0
CLAIM_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Removing:
    """The end of one cluster.

    Attributes:
        cluster: its objects.
        own_secret: whether the token's Secret goes too.
        own_claim: the claim of the GCS's state, if it is not the user's. It goes too if the
            RayCluster is its owner, and is kept otherwise.
        job: the path of the RayJob that the cluster is in, if it is in one.
        uid: of what owns the rest; what belongs to another one of its name stays. "" where it is
            not known, since a command was cut off: then what Sunspot made by these names goes.
        delete_kept: whether the claim goes, too, where it would be kept.
    """

    cluster: Cluster
    own_secret: bool
    own_claim: str | None = None
    job: str | None = None
    uid: str = ""
    delete_kept: bool = False

    @staticmethod
    def of(record: Record, *, delete_kept: bool) -> Removing:
        """The end of a recorded cluster."""
        job = job_clusters.where(record) if record.job else None
        own_secret, claim, uid = record.own_secret, record.own_claim, record.uid
        return Removing(record.cluster(), own_secret, claim, job, uid, delete_kept)

    def take_down(self, progress: Progress, *, patient: bool = False) -> Removal:
        """Deletes everything, waits until it is gone, and looks for what is left.

        An API server that cannot be reached at all is said at once, unless the caller is `patient`.
        """
        names = self.cluster.names
        progress(f"deleting {names.cluster} in namespace {names.namespace}")
        if not patient:
            self.cluster.found()
        return outlast(lambda: self._take_down(progress), progress)

    def _take_down(self, progress: Progress) -> Removal:
        """What may be begun anew where the API server did not answer."""
        names, api = self.cluster.names, self.cluster.api
        makers = [where for where, _ in self._found_makers()]
        for where in (*makers, *self._claims()):
            # Refused here to whoever may end the pods and not delete what makes them again.
            api.delete(where, dryRun=["All"])
        beside = self._beside()
        # An interrupt between the two would only have KubeRay make the pods again.
        with deferred():
            self._end_pods()
            for where, _ in self._found_makers():
                # It stays until what KubeRay made for it is gone: the next cluster of this name
                # would be given the service account of this one, which is about to go.
                api.delete(where, propagationPolicy="Foreground")
            for one in beside:
                api.delete(one)
        self._wait_for_pods(progress)
        self._wait_for_makers(progress)
        self._wait_for_claim(progress)
        left = self.left()
        remedy = (
            "see why: kubectl get raycluster,rayjob,pods,secrets,pvc,pdb "
            f"--namespace {names.namespace} --selector {'='.join(*MANAGED_BY.items())}"
        )
        return Removal(
            looked_for=LOOKED_FOR,
            kept=self._kept(),
            left=left,
            remedy=remedy if left else "",
        )

    def left(self) -> list[str]:
        """What still exists of it, one line each."""
        names = self.cluster.names
        found = [f"pod {pod.name}" for pod in self._pods()]
        for _, maker in self._found_makers():
            found.append(f"{maker['kind']} {maker['metadata']['name']}")
        if self.own_secret and self._is_ours_at(self.cluster.secret):
            found.append(f"Secret {names.token_secret}")
        if self._is_ours_at(self._budget_path):
            found.append(f"PodDisruptionBudget {names.cluster}-head")
        if self._claims():
            found.append(f"PersistentVolumeClaim {self.own_claim}")
        return found

    def _found_makers(self) -> Iterator[tuple[str, Object]]:
        """What makes all the others: the RayJob, if there is one, and the RayCluster, by path."""
        for where in filter(None, (self.job, self.cluster.where)):
            found = self.cluster.api.find(where)
            if found is not None and self._is_ours(found):
                yield where, found

    def _beside(self) -> list[str]:
        """The paths of what belongs to the RayCluster and would follow it."""
        secret = [self.cluster.secret] if self.own_secret else []
        named = filter(self._is_ours_at, (self._budget_path, *secret))
        return [*named, *self._claims()]

    @property
    def _budget_path(self) -> str:
        names = self.cluster.names
        return path(POLICY, "poddisruptionbudgets", names.namespace, f"{names.cluster}-head")

    def _claims(self) -> list[str]:
        """The path of the claim that goes too, while it exists."""
        found = self._found_claim()
        return [self._claim_path] if found is not None and self._goes(found) else []

    def _goes(self, claim: Object) -> bool:
        if self._owns(claim):
            return self._is_ours(claim)
        is_going = "deletionTimestamp" in claim["metadata"]
        return (self.delete_kept or is_going) and not self._is_anothers

    def _kept(self) -> list[str]:
        """The claim that stays, and how to delete it."""
        found, namespace = self._found_claim(), self.cluster.names.namespace
        if found is None or self._owns(found) or self._goes(found):
            return []
        delete = f"kubectl delete pvc {self.own_claim} --namespace {namespace}"
        return [f"kept: claim {self.own_claim} (delete it: {delete})"]

    @property
    def _claim_path(self) -> str:
        namespace = self.cluster.names.namespace
        return path("v1", "persistentvolumeclaims", namespace, self.own_claim)

    def _found_claim(self) -> Object | None:
        found = None if self.own_claim is None else self.cluster.api.find(self._claim_path)
        # One that is kept has no owner.
        return found if _is_sunspots(found) else None

    def _owns(self, found: Object) -> bool:
        """Whether what makes all the others is, or was, the owner of an object, by its name."""
        makers = {("RayCluster", self.cluster.names.cluster)}
        if self.job is not None:
            makers.add(("RayJob", self.job.rpartition("/")[2]))
        owners = found["metadata"].get("ownerReferences") or ()
        return any((one["kind"], one["name"]) in makers for one in owners)

    def _is_ours_at(self, where: str) -> bool:
        """Whether ours is at a path. What one may not read goes with the RayCluster, its owner."""
        with contextlib.suppress(RefusedError):
            return self._is_ours(self.cluster.api.find(where))
        return False

    def _is_ours(self, found: Object | None) -> bool:
        if found is None or not _is_sunspots(found):
            return False
        owners = found["metadata"].get("ownerReferences") or ()
        if self.uid:
            return self.uid in (found["metadata"]["uid"], *(one["uid"] for one in owners))
        return not owners or self._owns(found)

    def _wait_for_makers(self, progress: Progress) -> None:
        """Waits until what makes the others is gone; frees it where nothing else does."""
        deadline, told = time.monotonic() + FINALIZER_PATIENCE_S, False
        while left := list(self._found_makers()):
            if not told:
                kinds = " and ".join(found["kind"] for _, found in left)
                progress(f"waiting for the {kinds} to go")
                told = True
            if time.monotonic() > deadline:
                for where, found in left:
                    self._free(where, found, progress)
                return
            time.sleep(POLL_S)

    def _free(self, where: str, found: Object, progress: Progress) -> None:
        held_by = found["metadata"].get("finalizers") or []
        if not held_by:
            return
        progress(
            f"nothing lets the {found['kind']} go: removing its finalizers: {', '.join(held_by)}"
        )
        try:
            self.cluster.api.patch(where, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _pods(self) -> list[Pod]:
        """Its pods; none while a RayCluster of this name is somebody else's."""
        return [] if self._is_anothers else self.cluster.pods()

    @property
    def _is_anothers(self) -> bool:
        """Whether there is a RayCluster of this name that is somebody else's."""
        found = self.cluster.found()
        return found is not None and not self._is_ours(found)

    def _end_pods(self) -> None:
        """Gives the pods only a moment: there is no node left to which their tasks could go.

        Before the RayCluster, since after it the garbage collector deletes them, with their whole
        grace period, and to shorten that later does not end a preStop hook that runs (Kubernetes
        1.34). KubeRay makes no other pod while they end.

        It needs a right that an older Role does not give; the pods end without it, too.
        """
        for pod in self._pods():
            where = path("v1", "pods", self.cluster.names.namespace, pod.name)
            with contextlib.suppress(RefusedError):
                self.cluster.api.delete(where, gracePeriodSeconds=GRACE_S)

    def _wait_for_pods(self, progress: Progress) -> None:
        pods, told = self._pods(), 0
        grace = max((_grace(pod.object) for pod in pods), default=0)
        deadline = time.monotonic() + grace + POD_PATIENCE_S
        while pods and time.monotonic() < deadline:
            if len(pods) != told:
                told = len(pods)
                progress(f"waiting for {told} pod{'s' if told > 1 else ''} to end")
            time.sleep(POLL_S)
            pods = self._pods()

    def _wait_for_claim(self, progress: Progress) -> None:
        """It goes after the last pod that uses it (kubernetes.io, "Storage Object in Use")."""
        deadline, told = time.monotonic() + CLAIM_PATIENCE_S, False
        while self._claims() and time.monotonic() < deadline:
            if not told:
                progress(f"waiting for the claim {self.own_claim} to go")
                told = True
            time.sleep(POLL_S)


def of_kept(name: str, progress: Progress) -> Removal | None:
    """Deletes the claim that a cluster of that stack file has kept; None if there is none.

    Raises:
        UsageError: a RayCluster of that name stands, which `sunspot up` did not make.
    """
    if (there := placing.by_name(name)) is None:
        return None
    removing = Removing.of(there[1], delete_kept=True)
    if removing.cluster.found() is not None:
        names = removing.cluster.names
        raise UsageError(
            f"namespace {names.namespace} has a RayCluster {names.cluster!r}, which `sunspot up` "
            "did not make: nothing of it was deleted. Take it down with what applied it, or: "
            f"kubectl delete raycluster {names.cluster} --namespace {names.namespace}"
        )
    return removing.take_down(progress) if removing.left() else None


def _is_sunspots(found: Object | None) -> bool:
    labels = {} if found is None else found["metadata"].get("labels") or {}
    return MANAGED_BY.items() <= labels.items()


def _grace(pod: Object) -> int:
    return pod["spec"].get("terminationGracePeriodSeconds") or 30
