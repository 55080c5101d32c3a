"""A cluster's first minutes: its objects are created, and it is waited for."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets import members as ray_members
from sunspot.targets.kubernetes import members, raycluster, records
from sunspot.targets.kubernetes.api import POLICY, RAY, Object, path
from sunspot.targets.kubernetes.errors import CONFLICT, ApiError, UnreachableError
from sunspot.targets.kubernetes.gcs_state import CLAIM
from sunspot.targets.kubernetes.objects import CRASH_REASON, Cluster, Pod, pull_patience_s
from sunspot.targets.kubernetes.outages import outlast
from sunspot.targets.kubernetes.pods import RAY_CONTAINER, TOKEN_KEY
from sunspot.targets.protocol import Lasting, Progress

POLL_S = 0.5
TAIL_LINES = 20

JOB = "RayJob"

# A container waits for its Secret, which is created right after the RayCluster.
CONFIG_ERROR, CONFIG_PATIENCE_S = "CreateContainerConfigError", 20.0

# KubeRay makes the autoscaler's service account anew where the one that it saw was of an earlier
# cluster of this name, and went with it.
ACCOUNT_PATIENCE_S = 20.0

# KubeRay's reasons that are over when the head has a pod.
HEAD_REASONS = ("FailedToCreateHeadPod", "AutoscalerServiceAccountNotFound")

# KubeRay makes the head's pod within a second or two of the RayCluster.
OPERATOR_PATIENCE_S = 60.0
# How often it is asked why a worker has no pod.
REFUSALS_POLL_S = 5.0


def create(stack: Stack, made: Object, cluster: Cluster) -> Object:
    """Creates the RayCluster of a stack, or its RayJob; returns what the API server made of it.

    Raises:
        TakenError: there is one of that name.
    """
    made["metadata"]["annotations"] = {records.STACK_ANNOTATION: records.as_annotation(stack)}
    try:
        return cluster.api.create(path(*_KINDS[made["kind"]], cluster.names.namespace), made)
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        if made["kind"] == JOB:
            raise _job_is_taken(made) from error
        raise taken(stack.name, cluster) from error


def create_beside(
    stack: Stack, others: list[Object], owner: Object, cluster: Cluster, token: str | None
) -> None:
    """Creates what belongs to a RayCluster or RayJob, and goes with it, whoever deletes it.

    But for a claim that is kept. The Secret comes last: where it is, an `up` was not cut off here.

    Args:
        stack: the stack as it was given.
        others: the objects.
        owner: the RayCluster, or the RayJob.
        cluster: where they are to be.
        token: what the Secret is to have; None for one of the user's.
    """
    volume = raycluster.state_volume(stack)
    secret = [] if token is None else [_secret(cluster, token)]
    for one in (*others, *secret):
        # There may be one already.
        is_kept = one["kind"] == CLAIM and volume is not None and volume.keep
        if not is_kept:
            one["metadata"]["ownerReferences"] = [_reference(owner)]
        try:
            cluster.api.create(path(*_KINDS[one["kind"]], cluster.names.namespace), one)
        except ApiError as error:
            if not (is_kept and error.status == CONFLICT):
                raise


# The path's parts by the object's kind.
_KINDS = {
    "RayCluster": (RAY, "rayclusters"),
    JOB: (RAY, "rayjobs"),
    "Secret": ("v1", "secrets"),
    "PodDisruptionBudget": (POLICY, "poddisruptionbudgets"),
    CLAIM: ("v1", "persistentvolumeclaims"),
}


class TakenError(UsageError):
    """There is a RayCluster or a RayJob of that name, which this command did not make."""


def taken(name: str, cluster: Cluster) -> TakenError:
    """The error for a RayCluster of that name that this `up` did not make."""
    names = cluster.names
    made_from = records.stack_of(cluster.found())
    if made_from is not None and made_from.name == name:
        return TakenError(
            f"another command brings {name!r} up in namespace {names.namespace} at this moment: "
            f"wait for it with: sunspot up {name}"
        )
    return TakenError(
        f"namespace {names.namespace} has a RayCluster {names.cluster!r} already, which `sunspot "
        f"up` did not make: give this one another name (sunspot:kubernetes > name in "
        f"Pulumi.{name}.yaml), or delete that one: kubectl delete raycluster {names.cluster} "
        f"--namespace {names.namespace}"
    )


def _job_is_taken(made: Object) -> TakenError:
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    return TakenError(
        f"namespace {namespace} has a RayJob {name!r} already: another `sunspot run` may be at "
        f"work. Wait for it, or end it: kubectl delete rayjob {name} --namespace {namespace}"
    )


def new_token() -> str:
    """A random token."""
    return secrets.token_hex(32)


def find_token(cluster: Cluster) -> str | None:
    """The token in the cluster's Secret; None if there is none.

    Raises:
        UsageError: it is not text.
    """
    import base64

    found = cluster.api.find(cluster.secret)
    text = ((found or {}).get("data") or {}).get(TOKEN_KEY)
    try:
        return base64.b64decode(text).decode().strip() if text else None
    except ValueError as error:
        names = cluster.names
        raise UsageError(
            f"the key {TOKEN_KEY} of Secret {names.token_secret!r} in namespace {names.namespace} "
            "is not text: put another token there, such as the output of: openssl rand -hex 32"
        ) from error


def users_token(cluster: Cluster) -> str:
    """The token in a Secret of the user's.

    Raises:
        UsageError: there is none.
    """
    names = cluster.names
    if (token := find_token(cluster)) is not None:
        return token
    raise UsageError(
        f"namespace {names.namespace} has no Secret {names.token_secret!r} with the key "
        f"{TOKEN_KEY}, which sunspot:kubernetes > token_secret names: create it, or leave the "
        "setting out to have one made"
    )


def _secret(cluster: Cluster, token: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": cluster.names.metadata(cluster.names.token_secret),
        "stringData": {TOKEN_KEY: token},
    }


def _reference(owner: Object) -> Object:
    """Without `blockOwnerDeletion`, which needs a right of its own."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


@dataclass
class Waiting:
    """The wait for a cluster's pods, with what was said of it so far.

    `had_head` is when it had a head's pod last, or else when the wait began; `pulls` is when each
    pod's image could not be pulled first, `unmade` when its container could not be created first;
    `crashes` has the pods that crashed, by group, and `restarts` how often each pod that waits had
    been started again when that was first seen; `known` are the refusals of before.
    """

    cluster: Cluster
    progress: Progress
    said: dict[str, str] = field(default_factory=dict)
    had_head: float = field(default_factory=time.monotonic)
    pulls: dict[str, float] = field(default_factory=dict)
    unmade: dict[str, float] = field(default_factory=dict)
    crashes: dict[str, set[str]] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def again(cluster: Cluster, progress: Progress) -> Waiting:
        """The wait for a cluster that was up before; what KubeRay was refused then is not told."""
        waiting = Waiting(cluster, progress)
        waiting.known = outlast(waiting._refusals, progress)
        return waiting

    def head(self, deadline: float) -> None:
        """Waits until the head's Ray container runs; Ray itself is still to start.

        Raises:
            UsageError: an image cannot be pulled.
            SunspotError: it can never run, or did not in time.
        """
        while not any(pod.is_head and _ray_runs(pod) for pod in self.look()):
            self._check_time(deadline, "the head's pod does not run")
            time.sleep(POLL_S)

    def members(self, stack: Stack, handle: ClusterHandle, deadline: float) -> None:
        """Waits until Ray answers and every minimum worker is a member. Raises as `head` does.

        Ray's own answer comes up to 15 s before KubeRay's probe, of 10 s and then every 5, has one.
        """
        is_up, refusals_at = False, 0.0
        while (missing := self._missing(stack, handle)) or not is_up:
            if not is_up and missing != ray_members.UNANSWERED:
                is_up = True
                self.progress("the head is up")
                continue
            self.look()
            self._say("members", missing)
            if time.monotonic() >= refusals_at:
                refusals_at = time.monotonic() + REFUSALS_POLL_S
                outlast(self._tell_refusals, self.progress)
            self._check_time(deadline, missing)
            time.sleep(POLL_S)

    def _tell_refusals(self) -> None:
        """Says why KubeRay makes no pod, which may pass: a quota gets room, a policy changes."""
        for refused in self._refusals():
            if not refused.startswith(HEAD_REASONS):
                text = f"KubeRay cannot make a pod: {refused}"
                self._say(text, text, lasting=True)

    def _refusals(self) -> dict[str, str]:
        """What KubeRay has been refused in this wait, and when last."""
        found = self.cluster.found()
        refused = {} if found is None else self.cluster.refusals(found)
        return {text: at for text, at in refused.items() if self.known.get(text) != at}

    def _missing(self, stack: Stack, handle: ClusterHandle) -> str:
        return outlast(lambda: members.missing(stack, self.cluster, handle), self.progress)

    def look(self) -> list[Pod]:
        """The pods now; says what has changed, and raises for what never will."""
        return outlast(self._look, self.progress)

    def _look(self) -> list[Pod]:
        pods = self.cluster.pods()
        has_head = any(pod.is_head and pod.is_ready for pod in pods)
        for pod in pods:
            # Without a head, Ray ends on the workers, too: they wait for the next one.
            self._check(pod, may_crash=not (pod.is_head or has_head))
            if why := pod.why():
                # Each once: a pull that fails has two reasons by turns.
                text = f"{pod.name} waits: {why}"
                self._say(text, text, lasting=bool(pod.waits_for_node))
            else:
                self._say(pod.name, f"{pod.name} is {pod.phase.lower()}")
        if any(pod.is_head for pod in pods):
            self.had_head = time.monotonic()
        else:
            self._check_operator()
        return pods

    def _check(self, pod: Pod, *, may_crash: bool) -> None:
        """Raises for a pod that does not come to run by itself."""
        if not may_crash:
            self._check_crashes(pod)
        for container, reason, message in pod.waiting():
            if self._fails_to_pull(pod, reason, message):
                raise UsageError(
                    f"the image of {pod.name} cannot be pulled ({reason}): "
                    f"{message or _image(pod)}. Check the name in sunspot:image > reference, and "
                    "the registry's password in sunspot:kubernetes > image_pull_secrets"
                )
            if reason != CONFIG_ERROR:
                self.unmade.pop(pod.name, None)
            elif _since(self.unmade, pod) > CONFIG_PATIENCE_S:
                raise UsageError(
                    f"container {container} of {pod.name} cannot be created: {message}"
                )

    def _check_crashes(self, pod: Pod) -> None:
        """Raises for a pod that has crashed again since it was first seen."""
        if (container := pod.crashed_container()) is not None:
            # With an autoscaler, KubeRay makes another pod in place of one that crashed.
            crashed = self.crashes.setdefault(pod.group, set())
            crashed.add(pod.name)
            if len(crashed) > 1:
                raise self._crashes(pod, container, previous=False)
        for container, reason, _ in pod.waiting():
            before = self.restarts.setdefault(pod.name, pod.restarts)
            if reason == CRASH_REASON and pod.restarts > before:
                raise self._crashes(pod, container, previous=True)

    def _fails_to_pull(self, pod: Pod, reason: str, message: str) -> bool:
        """Whether a pod has waited for its image for too long."""
        patience_s = pull_patience_s(reason, message)
        if patience_s == math.inf:
            return False
        return _since(self.pulls, pod) >= patience_s

    def _crashes(self, pod: Pod, container: str, *, previous: bool) -> SunspotError:
        """The error for a container that crashed; `previous` if another has taken its place."""
        return SunspotError(
            f"container {container} of {pod.name} keeps crashing. The end of its log:\n"
            f"{self._last_words(pod, container, previous=previous)}"
        )

    def _last_words(self, pod: Pod, container: str, *, previous: bool) -> str:
        if container != RAY_CONTAINER:
            again = " --previous" if previous else ""
            return f"(kubectl logs {pod.name} --container {container}{again})"
        try:
            said = self.cluster.log(pod.name, lines=TAIL_LINES, previous=previous)
        except ApiError as error:
            return f"({error})"
        return said.strip() or "(empty)"

    def _check_operator(self) -> None:
        """Raises where KubeRay makes no head: it is refused, or there is no operator."""
        names = self.cluster.names
        found = self.cluster.standing()
        if found is None:
            raise SunspotError(f"the RayCluster {names.cluster} was deleted while it started")
        waited = time.monotonic() - self.had_head
        for refused in reversed(self._refusals()):
            if not (self._is_own_account(refused) and waited < ACCOUNT_PATIENCE_S):
                raise UsageError(f"KubeRay cannot make the head's pod: {refused}")
        if waited > OPERATOR_PATIENCE_S:
            if all_of_them := list(self.cluster.refusals(found)):  # it asks again ever more rarely
                raise UsageError(f"KubeRay cannot make the head's pod: {all_of_them[-1]}")
            raise SunspotError(
                f"KubeRay's operator has made no pod of {names.cluster} in "
                f"{OPERATOR_PATIENCE_S:g} s: does it run, and does it watch namespace "
                f"{names.namespace}? See: kubectl get pods --all-namespaces "
                "--selector app.kubernetes.io/component=kuberay-operator"
            )

    def _is_own_account(self, refused: str) -> bool:
        """Whether the missing account is the one that KubeRay makes, named like the RayCluster."""
        return f'serviceaccount "{self.cluster.names.cluster}" not found' in refused

    def _check_time(self, deadline: float, missing: str) -> None:
        if time.monotonic() > deadline:
            waits = "; ".join(self._reasons())
            raise SunspotError(f"timed out: {missing}" + (f". {waits}" if waits else ""))

    def _reasons(self) -> Iterator[str]:
        try:
            pods = self.cluster.pods()
        except (UnreachableError, ApiError):
            return  # the time-out is told all the same
        for pod in pods:
            if why := pod.why():
                yield f"{pod.name}: {why}"
        over = HEAD_REASONS if any(pod.is_head for pod in pods) else ()
        if found := self.cluster.found():
            yield from (one for one in self.cluster.refusals(found) if not one.startswith(over))

    def _say(self, about: str, text: str, *, lasting: bool = False) -> None:
        if self.said.get(about) != text:
            self.said[about] = text
            self.progress(Lasting(text) if lasting else text)


def _since(firsts: dict[str, float], pod: Pod) -> float:
    """For how long this has been seen of a pod."""
    now = time.monotonic()
    return now - firsts.setdefault(pod.name, now)


def _ray_runs(pod: Pod) -> bool:
    """Whether Ray's container runs; the autoscaler's may come later."""
    states = {one["name"]: one.get("state") or {} for one in pod.ray_and_beside()}
    return pod.runs and "running" in states.get(RAY_CONTAINER, {})


def _image(pod: Pod) -> str:
    return ", ".join(one["image"] for one in pod.object["spec"]["containers"])
