"""The Role for a stack's cluster: enough to bring it up, by its manifest too, and to use it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sunspot.targets.kubernetes.gcs_state import StateVolume
from sunspot.targets.kubernetes.raycluster import Names

_GROUP = "rbac.authorization.k8s.io"
_CLAIMS = "persistentvolumeclaims"

# For `sunspot up` and `kubectl apply`, and for looking at what they made.
_APPLY = ["get", "list", "watch", "create", "update", "patch", "delete"]

# A web socket is a GET, older clients POST (kubernetes/kubernetes#78741); from 1.35 on it needs
# `create` as well (the feature AuthorizePodWebsocketUpgradeCreatePermission).
_STREAM = ["get", "create"]


@dataclass(frozen=True, kw_only=True)
class Right:
    """One thing that a user must be allowed to do; `name` where only one object is meant."""

    verb: str
    group: str
    resource: str
    name: str | None


def make(called: Names, volume: StateVolume | None, user_group: str) -> list[dict[str, Any]]:
    """The Role, and the RoleBinding that gives it to a group of users.

    Args:
        called: the cluster's names.
        volume: where its GCS keeps its state, if it does.
        user_group: the group.
    """
    name = f"{called.cluster}-users"
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": called.metadata(name),
            "rules": [*_rules(called), *_rules_of(volume)],
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": called.metadata(name),
            "subjects": [{"kind": "Group", "name": user_group, "apiGroup": _GROUP}],
            "roleRef": {"kind": "Role", "name": name, "apiGroup": _GROUP},
        },
    ]


def needed(called: Names, volume: StateVolume | None, *, job: bool = False) -> Iterator[Right]:
    """What `sunspot up`, `down` and the way in ask for; with `job`, what `run` does too."""
    asked = {
        ("ray.io", "rayclusters"): ("get", "create", "patch", "delete"),
        ("policy", "poddisruptionbudgets"): ("get", "create", "delete"),
        ("", "secrets"): ("create", "get", "delete"),
        ("", "pods"): ("list",),
        ("", "pods/portforward"): ("get", "create"),
        ("", "pods/log"): ("get",),
        ("", "events"): ("list",),
    }
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


def _rules(called: Names) -> list[dict[str, Any]]:
    return [
        # A RayService or a RayJob is a RayCluster that its operator makes: no further right than to
        # make one.
        _rule("ray.io", "rayclusters", _APPLY),
        _rule("ray.io", "rayservices", _APPLY),
        _rule("ray.io", "rayjobs", _APPLY),
        # `kubectl logs job/NAME` looks for the Job that submits, and for its pod.
        _rule("batch", "jobs", ["get", "list"]),
        _rule("policy", "poddisruptionbudgets", _APPLY),
        # A rule with a name cannot allow `create` (kubernetes.io, "Using RBAC Authorization").
        _rule("", "secrets", ["create"]),
        _rule("", "secrets", ["get", "delete"], called.token_secret),
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
