"""The Role for a stack's cluster: enough to apply its manifest and to use the cluster."""

from __future__ import annotations

from typing import Any

from sunspot.targets.kubernetes.raycluster import Names

_GROUP = "rbac.authorization.k8s.io"

# For `kubectl apply`, and for looking at what it made.
_APPLY = ["get", "list", "watch", "create", "update", "patch", "delete"]


def make(called: Names, user_group: str) -> list[dict[str, Any]]:
    """The Role, and the RoleBinding that gives it to a group of users."""
    name = f"{called.cluster}-users"
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": called.metadata(name),
            "rules": _rules(called),
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": called.metadata(name),
            "subjects": [{"kind": "Group", "name": user_group, "apiGroup": _GROUP}],
            "roleRef": {"kind": "Role", "name": name, "apiGroup": _GROUP},
        },
    ]


def _rules(called: Names) -> list[dict[str, Any]]:
    return [
        # A RayService is a RayCluster that its operator makes: no further right than to make one.
        _rule("ray.io", "rayclusters", _APPLY),
        _rule("ray.io", "rayservices", _APPLY),
        _rule("policy", "poddisruptionbudgets", _APPLY),
        # A rule with a name cannot allow `create` (kubernetes.io, "Using RBAC Authorization").
        _rule("", "secrets", ["create"]),
        _rule("", "secrets", ["get", "delete"], called.token_secret),
        # The way in: `kubectl port-forward` looks for the service, and for a pod behind it.
        _rule("", "services", ["get", "list"]),
        _rule("", "pods", ["get", "list", "watch"]),
        _rule("", "pods/portforward", ["create"]),
        # Why a pod waits, and what it says.
        _rule("", "pods/log", ["get"]),
        _rule("", "events", ["get", "list", "watch"]),
    ]


def _rule(group: str, resource: str, verbs: list[str], name: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
    return made if name is None else {**made, "resourceNames": [name]}
