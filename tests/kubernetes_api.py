"""Kubernetes' API as far as Sunspot uses it; kubernetes_server.py serves it.

It has the behaviours that Kubernetes documents: objects with a uid, 403, 404, 409 (AlreadyExists)
and 422, strict field validation, dry runs, label and field selectors, owners that are deleted with
what they own (kubernetes.io, "API Concepts" and "Garbage Collection").
"""

from __future__ import annotations

import base64
import copy
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes_objects import node

# The fields of a RayCluster's spec that KubeRay 1.6 has and Sunspot uses.
FIELDS = frozenset(
    (
        "rayVersion",
        "authOptions",
        "enableInTreeAutoscaling",
        "autoscalerOptions",
        "gcsFaultToleranceOptions",
        "headGroupSpec",
        "workerGroupSpecs",
    )
)


# The connection breaks off after the server has done what it was asked for, or in its answer.
LOST, CUT_OFF = 0, -1


class RefusalError(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class KubernetesApi:
    """What the server has and was asked; tests set it and look at it.

    `objects` are by their paths. `make_pods`, the operator, gets a RayCluster that is created, and
    returns its pods. `forbidden` has pairs of verb and resource that the user may not; `fields` are
    those that a RayCluster's spec has, None where there is no such kind. `head_ports` leads from a
    port of a head to one of this machine; `logs` has what containers printed, by the pod; `deleted`
    has the kinds that were deleted, in their order, each with the grace period that it was given.
    `after_reads` has what happens when a path is asked for, by the path, the next one last.
    `troubles` has what becomes of the next requests, by their method and the kind of object.
    `answers` has what a path is answered with instead, by something that is not Kubernetes.
    `sees_after_reads` is how often a RayJob is asked for until KubeRay has seen its cluster ready,
    None if it never does.
    `collects_after_reads` is how often an owner that goes is asked for until the garbage collector
    has seen it; `collect` has it see all of them.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.make_pods: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda _cluster: []
        self.forbidden: set[tuple[str, str]] = set()
        self.fields: frozenset[str] | None = FIELDS
        self.head_ports: dict[int, int] = {}
        self.logs: dict[str, str] = {}
        self.seen: list[tuple[str, str]] = []
        self.deleted: list[tuple[str, int | None]] = []
        self.lock = threading.RLock()
        self.numbers = 0
        self.collects_after_reads = 0
        self.sees_after_reads: int | None = 4
        self.after_reads: dict[str, list[Callable[[], None]]] = {}
        self.troubles: dict[tuple[str, str], list[int]] = {}
        self.answers: dict[str, str] = {}
        self.add("/api/v1/namespaces/default", {"metadata": {"name": "default"}})
        self.add("/api/v1/nodes/n1", node())

    def add(self, path: str, made: dict[str, Any]) -> dict[str, Any]:
        """Adds an object at a path."""
        with self.lock:
            self.numbers += 1
            made["metadata"].setdefault("uid", f"uid-{self.numbers}")
            made["metadata"].setdefault("creationTimestamp", f"2026-01-01T00:{self.numbers:02}:00Z")
            self.objects[path] = made
            return made

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a kind, such as "pods"."""
        return [path.rsplit("/", 1)[1] for path in self.objects if path.split("/")[-2] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        """The only object of a kind."""
        (found,) = (one for path, one in self.objects.items() if path.split("/")[-2] == kind)
        return found

    def trouble(self, method: str, path: str) -> int | None:
        """The status that a request gets instead of its answer; LOST where its answer is lost."""
        words = path.split("/")
        for word in words[-1:-3:-1]:
            if waiting := self.troubles.get((method, word)):
                return waiting.pop(0)
        return None

    # Requests

    def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        if path == "/version":
            return {"gitVersion": "v1.34.0"}
        if path == "/apis/ray.io/v1":
            if self.fields is None:
                raise _not_found(path)
            return {"resources": [{"name": "rayclusters"}]}
        if reads := self.after_reads.get(path):
            reads.pop()()
        self.authorize("get" if path in self.objects else "list", path)
        if path in self.objects:
            return self.objects[path]
        if path.split("/")[-1] not in KINDS:
            raise _not_found(path)
        return {"items": [one for one in self._below(path) if _is_selected(one, query)]}

    def post(self, path: str, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        if path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            return {"status": {"allowed": (asked["verb"], resource) not in self.forbidden}}
        self.authorize("create", path)
        self._check_namespace(path)
        if path.endswith("/rayclusters"):
            self._check_fields(body)
        metadata = body["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}abcde"
        if f"{path}/{name}" in self.objects:
            raise RefusalError(409, "AlreadyExists", f"{name!r} already exists")
        if query.get("dryRun") == "All":
            return body
        made = self.add(f"{path}/{name}", _stored(body))
        if path.endswith("/rayclusters"):
            self._operate(path, made)
        if path.endswith("/rayjobs"):
            self._begin_job(path, made)
        return made

    def patch(self, path: str, body: Any) -> dict[str, Any]:
        found = self._existing("patch", path)
        for change in body if isinstance(body, list) else ():
            *where, last = change["path"].strip("/").split("/")
            part: Any = found
            for key in where:
                part = part[int(key) if isinstance(part, list) else key]
            if change["op"] == "test" and part[last] != change["value"]:
                raise RefusalError(422, "Invalid", "the server rejected our request: test failed")
            if change["op"] == "add":
                part[last] = change["value"]
        if isinstance(body, dict) and body.get("metadata", {}).get("finalizers", ()) is None:
            found["metadata"].pop("finalizers", None)
            if "deletionTimestamp" in found["metadata"]:
                self._remove(path)
        if isinstance(body, dict):
            found.setdefault("spec", {}).update(body.get("spec", {}))
        if path.split("/")[-2] == "rayclusters":
            self._operate(path.rsplit("/", 1)[0], found)
        return found

    def delete(self, path: str, options: dict[str, Any]) -> dict[str, Any]:
        found = self._existing("delete", path)
        if options.get("dryRun"):
            return {"status": "Success"}
        self.deleted.append((path.split("/")[-2], options.get("gracePeriodSeconds")))
        found["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        if options.get("propagationPolicy") == "Foreground":
            held_by = found["metadata"].setdefault("finalizers", [])
            held_by += [] if "foregroundDeletion" in held_by else ["foregroundDeletion"]
            self._collect(path, found, then=lambda: self._let_go(path))
        elif not found["metadata"].get("finalizers"):
            self._remove(path)
        return {"status": "Success"}

    def _existing(self, verb: str, path: str) -> dict[str, Any]:
        self.authorize(verb, path)
        if path not in self.objects:
            raise _not_found(path)
        return self.objects[path]

    def _remove(self, path: str) -> None:
        """Removes an object, and then what it owns."""
        self._collect(path, self.objects.pop(path))

    def _let_go(self, path: str) -> None:
        """Ends a deletion in the foreground, unless something that blocks it is still there."""
        metadata = self.objects.get(path, {}).get("metadata", {})
        if "foregroundDeletion" not in metadata.get("finalizers", ()) or any(
            reference.get("blockOwnerDeletion") for _, reference in self._owned_by(metadata["uid"])
        ):
            return
        metadata["finalizers"].remove("foregroundDeletion")
        if not metadata["finalizers"]:
            self._remove(path)

    def _owned_by(self, uid: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The paths of what that object owns, each with its reference to the owner."""
        for path, one in list(self.objects.items()):
            for reference in one["metadata"].get("ownerReferences", ()):
                if reference["uid"] == uid:
                    yield path, reference

    def _collect(
        self, path: str, owner: dict[str, Any], then: Callable[[], None] = lambda: None
    ) -> None:
        """The garbage collector's part."""

        def collect() -> None:
            for owned, _ in self._owned_by(owner["metadata"]["uid"]):
                if not self.objects[owned]["metadata"].get("finalizers"):
                    self._remove(owned)
            then()

        if self.collects_after_reads and next(self._owned_by(owner["metadata"]["uid"]), None):
            idle = [lambda: None] * (self.collects_after_reads - 1)
            self.after_reads[path] = [collect, *idle]
        else:
            collect()

    def collect(self) -> None:
        """The garbage collector sees all owners that go."""
        with self.lock:
            self.collects_after_reads = 0
            while self.after_reads:
                _, reads = self.after_reads.popitem()
                for read in reversed(reads):
                    read()

    def reconcile(self) -> None:
        """KubeRay looks at each RayCluster anew."""
        with self.lock:
            for path, one in list(self.objects.items()):
                if path.split("/")[-2] == "rayclusters":
                    self._operate(path.rsplit("/", 1)[0], one)

    def _operate(self, path: str, made: dict[str, Any]) -> None:
        """KubeRay's part: the pods that are to be, which belong to the RayCluster."""
        if "deletionTimestamp" in made["metadata"]:  # it makes none for a cluster that ends
            return
        root = path.replace("/apis/ray.io/v1/", "/api/v1/").replace("/rayclusters", "/pods")
        wanted = {one["metadata"]["name"]: one for one in self.make_pods(made)}
        for name, one in wanted.items():
            if f"{root}/{name}" not in self.objects:
                one["metadata"]["ownerReferences"] = [owned_by(made)]
                self.add(f"{root}/{name}", one)
        for other in [path for path in self.objects if path.startswith(f"{root}/")]:
            of = self.objects[other]["metadata"]["labels"]["ray.io/cluster"]
            if of == made["metadata"]["name"] and other.rsplit("/", 1)[1] not in wanted:
                self._remove(other)

    def _begin_job(self, path: str, made: dict[str, Any]) -> None:
        """KubeRay's part of a RayJob: a cluster of another name, with the same labels.

        (ray-operator/controllers/ray/rayjob_controller.go, 1.6)
        """
        metadata = made["metadata"]
        name = f"{metadata['name']}-x7k2p"
        status = made["status"] = {"rayClusterName": name, "jobDeploymentStatus": "Initializing"}
        if self.sees_after_reads is not None:
            idle = [lambda: None] * self.sees_after_reads
            self.after_reads[f"{path}/{metadata['name']}"] = [lambda: _see(status), *idle]
        copied = {key: metadata[key] for key in ("namespace", "labels", "annotations")}
        cluster = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name, **copied, "ownerReferences": [owned_by(made)]},
            "spec": made["spec"]["rayClusterSpec"],
        }
        clusters = path.replace("/rayjobs", "/rayclusters")
        self._operate(clusters, self.add(f"{clusters}/{name}", cluster))

    def _below(self, path: str) -> Iterator[dict[str, Any]]:
        for other, one in self.objects.items():
            # All of a kind, in one namespace, or in all of them.
            root, kind = path.rsplit("/", 1)
            if other.rsplit("/", 1)[0] == path or (
                "/namespaces/" not in path and other.startswith(root) and f"/{kind}/" in other
            ):
                yield one

    def authorize(self, verb: str, path: str) -> None:
        """Refuses what the user may not."""
        words = path.split("/")
        kind = next((word for word in reversed(words) if word in KINDS), "")
        if (verb, kind) in self.forbidden:
            message = f'{kind} is forbidden: User "ann" cannot {verb} resource "{kind}"'
            raise RefusalError(403, "Forbidden", message)

    def _check_namespace(self, path: str) -> None:
        words = path.split("/")
        namespace = words[words.index("namespaces") + 1]
        if f"/api/v1/namespaces/{namespace}" not in self.objects:
            raise RefusalError(404, "NotFound", f'namespaces "{namespace}" not found')

    def _check_fields(self, body: dict[str, Any]) -> None:
        unknown = sorted(set(body["spec"]) - (self.fields or frozenset()))
        if unknown:
            said = ", ".join(f'unknown field "spec.{name}"' for name in unknown)
            raise RefusalError(400, "BadRequest", f"strict decoding error: {said}")


def _see(status: dict[str, Any]) -> None:
    """KubeRay sees the cluster of a RayJob ready, and waits for its job."""
    if status["jobDeploymentStatus"] == "Initializing":
        status["jobDeploymentStatus"] = "Waiting"


KINDS = frozenset(
    (
        "pods",
        "secrets",
        "events",
        "nodes",
        "resourcequotas",
        "rayclusters",
        "rayjobs",
        "poddisruptionbudgets",
        "deployments",
        "serviceaccounts",
        "namespaces",
        "persistentvolumeclaims",
        "storageclasses",
    )
)


# "key=value" or "key in (value, ...)" (kubernetes.io, "Labels and Selectors").
_LABEL_WISH = re.compile(
    r"(?P<key>[\w./-]+)(?:=(?P<value>[\w.-]*)| in \((?P<several>[^)]*)\))(?:,|$)"
)


def owned_by(owner: dict[str, Any]) -> dict[str, Any]:
    """How KubeRay's operator refers to the RayCluster in what it makes for it."""
    return {"uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}


def _not_found(path: str) -> RefusalError:
    return RefusalError(404, "NotFound", f"{path} not found")


def _stored(body: dict[str, Any]) -> dict[str, Any]:
    """An object as it is kept: a Secret's `stringData` is write-only (kubernetes.io, "Secrets")."""
    made = copy.deepcopy(body)
    for key, text in made.pop("stringData", {}).items():
        made.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    return made


def _is_selected(one: dict[str, Any], query: dict[str, str]) -> bool:
    for wish in _LABEL_WISH.finditer(query.get("labelSelector", "")):
        values = (wish["several"] or wish["value"]).replace(" ", "").split(",")
        if one["metadata"].get("labels", {}).get(wish["key"]) not in values:
            return False
    for wish in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = wish.partition("=")
        part: Any = one
        for word in key.split("."):
            part = part.get(word, {})
        if part != value:
            return False
    return True
