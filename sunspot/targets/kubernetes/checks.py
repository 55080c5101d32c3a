"""Everything that a cluster needs of Kubernetes, asked before anything is created."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sunspot.errors import SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.stack_problems import wrong
from sunspot.targets.kubernetes import (
    capacity,
    placing,
    raycluster,
    records,
    rights,
    starting,
    state_checks,
)
from sunspot.targets.kubernetes.api import POLICY, RAY, Api, Object, path
from sunspot.targets.kubernetes.errors import (
    FORBIDDEN,
    GIVE_RIGHTS,
    NOT_FOUND,
    ApiError,
    UnreachableError,
)
from sunspot.targets.kubernetes.objects import Cluster
from sunspot.targets.kubernetes.settings import KEY, TARGET
from sunspot.targets.protocol import Finding, Level, Progress

INSTALL = (
    "an administrator installs it: helm repo add kuberay "
    "https://ray-project.github.io/kuberay-helm/ && helm install kuberay-operator "
    "kuberay/kuberay-operator --version {version}.0 --namespace ray-system --create-namespace "
    "(docs.ray.io, KubeRay Operator Installation)"
)
UPGRADE = (
    "an administrator upgrades KubeRay to {version}, with its CRDs, which helm does not upgrade "
    "(docs.ray.io, KubeRay upgrade guide)"
)
# How KubeRay's Helm chart labels the operator, and how its Kustomize files do
# (helm-chart/kuberay-operator and ray-operator/config/manager, 1.6).
_OPERATOR = "app.kubernetes.io/name in (kuberay-operator,kuberay)"

A = TypeVar("A")


def refuse(api: Api, stack: Stack, progress: Progress, *, job: bool = False) -> list[str]:
    """Checks everything; returns the warnings, one sentence each. `job` is as of `findings`.

    Without the one that the operator may not run, which only the cluster's pods can answer.

    Raises:
        UsageError: something is missing; the message has all of it.
        UnreachableError: the API server does not answer.
    """
    found = list(findings(api, stack, progress, job=job))
    problems = [
        f"{one.check}: {one.detail}" + (f". {one.remedy}" if one.remedy else "")
        for one in found
        if one.level == "failure"
    ]
    if problems:
        raise wrong(f"stack {stack.name} on {TARGET}", problems)
    told = [one for one in found if one.level == "warning" and one.check != "KubeRay"]
    return [f"{one.check}: {one.detail}" for one in told]


def preconditions(stack: Stack, progress: Progress) -> list[Finding]:
    """As `findings`; a Kubernetes that cannot be asked is one of them.

    Raises:
        UsageError: the stack itself is wrong, as for any other command.
    """
    raycluster.make(stack)
    found: list[Finding] = []
    try:
        wanted, record = placing.placed(stack)
        for one in findings(record.cluster().api, wanted, progress):
            found.append(one)  # noqa: PERF402 - kept also if the next one raises
    except SunspotError as error:
        found.append(_of_place(error))
    return found


def findings(api: Api, stack: Stack, progress: Progress, *, job: bool = False) -> Iterator[Finding]:
    """Each precondition; those after one that nothing works without are left out.

    With `job`, also the rights that a cluster for one job needs.

    Raises:
        UnreachableError: the API server does not answer.
    """
    oldest = raycluster.oldest_kuberay(raycluster.make(stack)[0]["spec"])
    progress(f"asking {api.place.called}")
    version = api.read("/version").get("gitVersion", "of an unknown version")
    yield _finding("API server", "ok", f"Kubernetes {version}, context {api.place.context or '-'}")
    served = api.find(f"/apis/{RAY}")
    kinds = {one["name"] for one in (served or {}).get("resources", ())}
    if "rayclusters" not in kinds:
        install = INSTALL.format(version=_version(oldest))
        yield _finding("KubeRay", "failure", f"this Kubernetes has no {RAY} RayCluster", install)
        return
    yield from _operator(api, oldest)
    missing = rights.missing(api, stack, job=job)
    if missing:
        namespace = raycluster.names(stack).namespace
        give = GIVE_RIGHTS.format(stack=placing.called(stack), namespace=namespace)
        yield _finding("rights", "failure", f"you may not {', '.join(missing)}", give)
        return
    yield _finding("rights", "ok", "you may bring the cluster up and take it down")
    accepted = list(_accepted(api, stack, oldest))
    yield from accepted
    yield from _account(api, stack)
    yield from _pull_secrets(api, stack)
    taken = list(_name(api, stack, job=job))
    called = raycluster.names(stack)
    stands = api.find(path(RAY, "rayclusters", called.namespace, called.cluster)) is not None
    yield from taken or _secret(api, stack, stands=stands)
    if not (job or stands):  # a RayJob has none
        yield from _budget(api, stack)
    yield from state_checks.findings(api, stack, stands=stands)
    if not any((one.check, one.level) == ("RayCluster", "failure") for one in accepted):
        yield from _nodes(api, stack)  # these read its pods, which a patch may have spoilt
        yield from _quotas(api, stack)


def _visible(ask: Callable[[], A]) -> A | None:
    """What is asked for; None where the user may not see it."""
    try:
        return ask()
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return None


def _is_absent(api: Api, where: str) -> bool:
    """Whether there is certainly no such object: the user may see it, and it is not there."""
    return _visible(lambda: api.find(where) is None) or False


def _finding(check: str, level: Level, detail: str, remedy: str = "") -> Finding:
    return Finding(check=check, level=level, detail=detail, remedy=remedy)


def _version(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))


def _operator(api: Api, oldest: tuple[int, int]) -> Iterator[Finding]:
    """The operator's deployment, where one may see it. Elsewhere its CRD says how old it is."""
    listed = _visible(lambda: api.list(path("apps/v1", "deployments"), labelSelector=_OPERATOR))
    if listed is None:
        detail = "whether KubeRay's operator runs is not visible to you; its RayCluster is there"
        yield _finding("KubeRay", "ok", detail)
        return
    if not listed:
        # Helm leaves CRDs where it takes an operator away (helm.sh, "Custom Resource Definitions").
        yield _finding(
            "KubeRay",
            "warning",
            "no deployment has the label app.kubernetes.io/name=kuberay-operator, or =kuberay, so "
            "KubeRay's operator may not run",
            f"if none does: {INSTALL.format(version=_version(oldest))}",
        )
    found = [_state_of(one, oldest) for one in listed]
    # Several may look after namespaces of their own (KubeRay's chart, singleNamespaceInstall).
    may_be_another = any(one.level == "ok" for one in found)
    for one in found:
        yield replace(one, level="warning") if may_be_another and one.level != "ok" else one


def _state_of(one: Object, oldest: tuple[int, int]) -> Finding:
    """Whether an operator runs, and is new enough."""
    image = one["spec"]["template"]["spec"]["containers"][0]["image"]
    called = f"{one['metadata']['namespace']}/{one['metadata']['name']} ({image})"
    numbers = re.search(r":v?(\d+)\.(\d+)", image)  # a digest or "nightly" says nothing
    if numbers and tuple(map(int, numbers.groups())) < oldest:
        wanted = _version(oldest)
        upgrade = UPGRADE.format(version=wanted)
        return _finding("KubeRay", "failure", f"{called} is older than {wanted}", upgrade)
    if not (one.get("status") or {}).get("readyReplicas"):
        return _finding(
            "KubeRay",
            "failure",
            f"{called} has no ready replica, so nothing would happen",
            f"see: kubectl describe deployment --namespace {one['metadata']['namespace']} "
            f"{one['metadata']['name']}",
        )
    return _finding("KubeRay", "ok", called)


def _accepted(api: Api, stack: Stack, oldest: tuple[int, int]) -> Iterator[Finding]:
    """Whether the API server would take the RayCluster: it tries, and creates nothing."""
    made, called = raycluster.make(stack)[0], raycluster.names(stack)
    where = path(RAY, "rayclusters", called.namespace)
    # Of a name that is certainly free: this asks for the rest.
    trial = {**made, "metadata": {**made["metadata"], "generateName": f"{called.cluster}-"}}
    trial["metadata"].pop("name")
    try:
        api.create(where, trial, dryRun="All")
    except ApiError as error:
        said = str(error)
        if error.status == NOT_FOUND:
            yield _finding(
                "namespace",
                "failure",
                f"there is no namespace {called.namespace!r}",
                f"create it: kubectl create namespace {called.namespace}, or give another with "
                "--namespace",
            )
        elif unknown := re.findall(r'unknown field "([^"]+)"', said):
            wanted = _version(oldest)
            yield _finding(
                "KubeRay",
                "failure",
                f"its RayCluster has no {', '.join(unknown)}: it is older than {wanted}, or "
                f"{KEY} > patch has a field that does not exist",
                UPGRADE.format(version=wanted),
            )
        else:
            yield _finding("RayCluster", "failure", said)
    else:
        may_be = f"{called.cluster} in namespace {called.namespace} would be accepted"
        yield _finding("RayCluster", "ok", may_be)


def _account(api: Api, stack: Stack) -> Iterator[Finding]:
    """Whether the pods' service account exists, where one may look."""
    name, namespace = raycluster.settings(stack).service_account, raycluster.names(stack).namespace
    if name is None:
        return
    if _is_absent(api, path("v1", "serviceaccounts", namespace, name)):
        yield _finding(
            "service account",
            "failure",
            f"namespace {namespace} has no service account {name!r}, which {KEY} > service_account "
            "names",
            f"create it: kubectl create serviceaccount {name} --namespace {namespace}",
        )


def _pull_secrets(api: Api, stack: Stack) -> Iterator[Finding]:
    """Whether the registry's passwords exist, where one may look."""
    namespace = raycluster.names(stack).namespace
    for name in raycluster.settings(stack).image_pull_secrets:
        if _is_absent(api, path("v1", "secrets", namespace, name)):
            yield _finding(
                "image_pull_secrets",
                "warning",
                f"namespace {namespace} has no Secret {name!r}, so images are pulled without it",
            )


def _name(api: Api, stack: Stack, *, job: bool) -> Iterator[Finding]:
    """Whether something else has the cluster's name: KubeRay names their services alike.

    Another RayJob refuses the one of `run` by itself.
    """
    called = raycluster.names(stack)
    kinds = {"RayCluster": "rayclusters", "RayService": "rayservices"}
    for kind, plural in (kinds if job else kinds | {"RayJob": "rayjobs"}).items():
        where = path(RAY, plural, called.namespace, called.cluster)
        found = _visible(partial(api.find, where))
        if found is not None and records.stack_of(found) is None:
            yield _finding(
                kind,
                "failure",
                f"namespace {called.namespace} has a {kind} {called.cluster!r} already, which "
                "`sunspot up` did not make",
                f"give this one another name ({KEY} > name), or delete that one: kubectl delete "
                f"{kind.lower()} {called.cluster} --namespace {called.namespace}",
            )


def _secret(api: Api, stack: Stack, *, stands: bool) -> Iterator[Finding]:
    """Whether the user's own Secret is there, or the name of the one that `up` makes is free."""
    called = raycluster.names(stack)
    if raycluster.settings(stack).token_secret is not None:
        try:
            starting.users_token(Cluster(api, called))
        except UsageError as error:
            yield _finding("token_secret", "failure", str(error))
        return
    if stands:
        return  # it is that cluster's
    # One with an owner goes with it: a cluster of this name was deleted a moment ago.
    found = api.find(path("v1", "secrets", called.namespace, called.token_secret))
    if found is not None and not found["metadata"].get("ownerReferences"):
        yield _finding(
            "Secret",
            "failure",
            f"namespace {called.namespace} has a Secret {called.token_secret!r} already, which "
            "Sunspot did not make",
            f"to use the token in it, set {KEY} > token_secret: {called.token_secret}; or delete "
            f"it: kubectl delete secret {called.token_secret} --namespace {called.namespace}",
        )


def _budget(api: Api, stack: Stack) -> Iterator[Finding]:
    """Whether the name of the head's disruption budget is free."""
    for made in raycluster.make(stack):
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        if made["kind"] != "PodDisruptionBudget":
            continue
        found = _visible(partial(api.find, path(POLICY, "poddisruptionbudgets", namespace, name)))
        # One with an owner goes with it. One that was applied by hand stays without its RayCluster.
        if found is not None and not found["metadata"].get("ownerReferences"):
            yield _finding(
                "disruption budget",
                "failure",
                f"namespace {namespace} has a PodDisruptionBudget {name!r} already, without owner",
                f"delete it: kubectl delete pdb {name} --namespace {namespace}",
            )


def _nodes(api: Api, stack: Stack) -> Iterator[Finding]:
    nodes = _visible(lambda: api.list(path("v1", "nodes")))
    if nodes is None:
        yield _finding("nodes", "ok", "not visible to you, so the pods' sizes were not compared")
        return
    found = list(capacity.misfits(stack, nodes))
    for one in found:
        if one.may_come:
            yield _finding(
                f"group {one.group}",
                "warning",
                f"{one.text}; it waits until the nodes' autoscaler adds one that fits",
            )
        else:
            lower = "lower its cpu, memory_gb or gpu_count, or " if one.by_size else ""
            yield _finding(
                f"group {one.group}",
                "failure",
                f"no node can ever hold its pods: {one.text}",
                f"{lower}change node_selector and tolerations in {KEY}",
            )
    if not found:
        yield _finding("nodes", "ok", f"{len(nodes)} of them; each kind of pod fits on one")


def _quotas(api: Api, stack: Stack) -> Iterator[Finding]:
    called = raycluster.names(stack)
    if not (quotas := _visible(lambda: api.list(path("v1", "resourcequotas", called.namespace)))):
        return
    here = Counter(pod.group for pod in Cluster(api, called).pods())
    for text in capacity.short_quotas(stack, quotas, here):
        yield _finding(
            "quota",
            "failure",
            text,
            "ask for more, take another cluster down, or make this one smaller",
        )


def _of_place(error: SunspotError) -> Finding:
    """The finding for a Kubernetes that cannot be asked."""
    what = "API server" if isinstance(error, UnreachableError | ApiError) else "kubeconfig"
    return _finding(what, "failure", str(error))
