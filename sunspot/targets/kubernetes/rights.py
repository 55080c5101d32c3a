"""The Role for a stack's cluster: enough to bring it up, by its manifest too, and to use it.

Also what a user lacks of these rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sunspot.stack import Stack
from sunspot.targets.kubernetes import raycluster
from sunspot.targets.kubernetes.api import AUTHORIZATION, Api, path
from sunspot.targets.kubernetes.gcs_state import StateVolume
from sunspot.targets.kubernetes.settings import KubeRay

_GROUP = "rbac.authorization.k8s.io"
_CLAIMS = "persistentvolumeclaims"

# For `sunspot up` and `kubectl apply`, and for looking at what they made.
_APPLY = ["get", "list", "watch", "create", "update", "patch", "delete"]

# A web socket is a GET, older clients POST (kubernetes/kubernetes#78741); from 1.35 on it needs
# `create` as well (the feature AuthorizePodWebsocketUpgradeCreatePermission).
_STREAM = ["get", "create"]

_PARALLEL = 8


@dataclass(frozen=True, kw_only=True)
class Right:
    """One thing that a user must be allowed to do; `name` where only one object is meant."""

    verb: str
    group: str
    resource: str
    name: str | None


def make(stack: Stack) -> list[dict[str, Any]]:
    """The Role, and the RoleBinding that gives it to the settings' group of users.

    Raises:
        UsageError: as `raycluster.names`.
    """
    called, user_group = raycluster.names(stack), raycluster.settings(stack).user_group
    name = f"{called.cluster}-users"
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": called.metadata(name),
            "rules": [*_rules(stack), *_rules_of(raycluster.state_volume(stack))],
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": called.metadata(name),
            "subjects": [{"kind": "Group", "name": user_group, "apiGroup": _GROUP}],
            "roleRef": {"kind": "Role", "name": name, "apiGroup": _GROUP},
        },
    ]


def needed(stack: Stack, *, job: bool = False, inside: bool = False) -> Iterator[Right]:
    """What `sunspot up`, `down` and the way in ask for.

    Args:
        stack: the stack.
        job: whether `run` asks, which makes a RayJob.
        inside: whether a pod asks, which needs a port-forward only for `sunspot forward`.
    """
    called, given = raycluster.names(stack), raycluster.settings(stack)
    volume = raycluster.state_volume(stack)
    asked: dict[tuple[str, str], Sequence[str]] = {
        ("ray.io", "rayclusters"): ("get", "create", "patch", "delete"),
        ("", "secrets"): (*_of_secret(given), *(["create"] if _makes_secret(given) else [])),
        ("", "pods"): ("list",),
        ("", "pods/log"): ("get",),
        ("", "events"): ("list",),
    }
    if not inside:
        asked["", "pods/portforward"] = _STREAM
    if given.head_disruption_budget and not job:  # a RayJob has none
        asked["policy", "poddisruptionbudgets"] = ("get", "create", "delete")
    if job:
        asked["ray.io", "rayjobs"] = ("get", "create", "patch", "delete")
    for (group, resource), verbs in asked.items():
        for verb in verbs:
            name = called.token_secret if resource == "secrets" and verb != "create" else None
            yield Right(verb=verb, group=group, resource=resource, name=name)
    if volume is not None:
        yield Right(verb="get", group="", resource=_CLAIMS, name=volume.claim)
        if volume.is_own:
            yield Right(verb="create", group="", resource=_CLAIMS, name=None)
        if volume.goes:
            yield Right(verb="delete", group="", resource=_CLAIMS, name=volume.claim)


def missing(api: Api, stack: Stack, *, job: bool) -> list[str]:
    """What this user may not do and needs to, such as "create rayclusters.ray.io"."""
    namespace = raycluster.names(stack).namespace
    wanted = list(needed(stack, job=job, inside=api.place.is_inside))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        allowed = pool.map(lambda one: _may(api, namespace, one), wanted)
        refused = [one for one, may in zip(wanted, allowed, strict=True) if not may]
    texts = (
        f"{one.verb} {one.resource}"
        + (f".{one.group}" if one.group else "")
        + f" in namespace {namespace}"
        for one in refused
    )
    return list(dict.fromkeys(texts))


def _may(api: Api, namespace: str, asked: Right) -> bool:
    resource, _, sub = asked.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": asked.verb,
        "group": asked.group,
        "resource": resource,
        "subresource": sub,
        "name": asked.name or "",
    }
    body = {
        "apiVersion": AUTHORIZATION,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: text for key, text in attributes.items() if text}},
    }
    answer = api.create(path(AUTHORIZATION, "selfsubjectaccessreviews"), body)
    return bool((answer.get("status") or {}).get("allowed"))


def _makes_secret(given: KubeRay) -> bool:
    """Whether the token's Secret is made with the cluster; another one is the user's, and stays."""
    return given.token_secret is None


def _of_secret(given: KubeRay) -> list[str]:
    """What is done with the token's Secret, beside making it."""
    return ["get", "delete"] if _makes_secret(given) else ["get"]


def _rules(stack: Stack) -> list[dict[str, Any]]:
    called, given = raycluster.names(stack), raycluster.settings(stack)
    # A rule with a name cannot allow `create` (kubernetes.io, "Using RBAC Authorization").
    make_secret = [_rule("", "secrets", ["create"])] if _makes_secret(given) else []
    budget = [_rule("policy", "poddisruptionbudgets", _APPLY)]
    return [
        # A RayService or a RayJob is a RayCluster that its operator makes: no further right than to
        # make one.
        _rule("ray.io", "rayclusters", _APPLY),
        _rule("ray.io", "rayservices", _APPLY),
        _rule("ray.io", "rayjobs", _APPLY),
        # `kubectl logs job/NAME` looks for the Job that submits, and for its pod.
        _rule("batch", "jobs", ["get", "list"]),
        *(budget if given.head_disruption_budget else []),
        *make_secret,
        _rule("", "secrets", _of_secret(given), called.token_secret),
        # The way in: `kubectl port-forward` looks for the service, and for a pod behind it.
        _rule("", "services", ["get", "list"]),
        _rule("", "pods", ["get", "list", "watch", "delete"]),
        _rule("", "pods/portforward", _STREAM),
        # `sunspot ssh`. Who may make a RayCluster may run anything in its pods as it is.
        _rule("", "pods/exec", _STREAM),
        # Why a pod waits, and what it says.
        _rule("", "pods/log", ["get"]),
        _rule("", "events", ["get", "list", "watch"]),
        _rule("", "resourcequotas", ["get", "list"]),
        # Whether the pods' own exists.
        _rule("", "serviceaccounts", ["get"]),
    ]


def _rules_of(volume: StateVolume | None) -> list[dict[str, Any]]:
    if volume is None:
        return []
    if not volume.is_own:
        return [_rule("", _CLAIMS, ["get"], volume.claim)]
    named = [verb for verb in _APPLY if verb != "create"]
    return [_rule("", _CLAIMS, ["create"]), _rule("", _CLAIMS, named, volume.claim)]


def _rule(group: str, resource: str, verbs: list[str], name: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
    return made if name is None else {**made, "resourceNames": [name]}
