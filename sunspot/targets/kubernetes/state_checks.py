"""The volume of the GCS's state, asked for before anything is created."""

from __future__ import annotations

from collections.abc import Iterator

from sunspot.stack import Stack
from sunspot.targets.kubernetes import quantities, raycluster
from sunspot.targets.kubernetes.api import STORAGE, Api, Object, path
from sunspot.targets.kubernetes.errors import FORBIDDEN, ApiError
from sunspot.targets.kubernetes.gcs_state import StateVolume
from sunspot.targets.kubernetes.settings import KEY, FaultTolerance
from sunspot.targets.protocol import Finding

_KEY = f"{KEY} > gcs_fault_tolerance"

# Of the class of claims that name none (kubernetes.io, "Default StorageClass"); the second is old,
# and counts, too (Kubernetes, pkg/volume/util/storageclass.go).
_DEFAULT = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def findings(api: Api, stack: Stack, *, stands: bool) -> Iterator[Finding]:
    """What is wrong with the claim of the GCS's state, and with its storage class.

    Args:
        api: the API of its Kubernetes.
        stack: the stack.
        stands: whether its cluster is there, so that a claim with state in it is that cluster's.
    """
    volume, asked = raycluster.state_volume(stack), raycluster.settings(stack).gcs_fault_tolerance
    if volume is None or asked is None:
        return
    namespace = raycluster.names(stack).namespace
    found = api.find(path("v1", "persistentvolumeclaims", namespace, volume.claim))
    if found is None and volume.is_own:
        yield from _of_classes(api, asked.storage_class)
    elif problem := _of_claim(volume, found, namespace, stands=stands):
        detail, remedy = problem
        yield Finding(check="volume", level="failure", detail=detail, remedy=remedy)
    elif found is not None and (differences := ", ".join(_differences(asked, found))):
        anew = f"delete the claim and the state in it: {_delete(volume, namespace)}"
        if stands:
            anew = f"take the cluster and its state down: sunspot down {stack.name} --volumes"
        yield Finding(
            check="volume",
            level="warning",
            detail=f"the claim {volume.claim} is there already and stays as it is: {differences}",
            remedy=f"make {_KEY} say the same, or {anew}",
        )
    else:
        yield Finding(check="volume", level="ok", detail=f"claim {volume.claim}")


def _differences(asked: FaultTolerance, found: Object) -> Iterator[str]:
    """What was asked for, and is not so of a claim that there is."""
    if asked.size is not None:
        size = found["spec"]["resources"]["requests"]["storage"]
        if quantities.number(asked.size) != quantities.number(size):
            yield f"its size is {size}, not {asked.size}"
    if asked.storage_class is not None:
        storage_class = found["spec"].get("storageClassName")
        if asked.storage_class != storage_class:
            yield f"its storage class is {storage_class}, not {asked.storage_class}"


def _delete(volume: StateVolume, namespace: str) -> str:
    return f"kubectl delete pvc {volume.claim} --namespace {namespace}"


def _of_claim(
    volume: StateVolume, found: Object | None, namespace: str, *, stands: bool
) -> tuple[str, str] | None:
    """The problem with a claim that should be there, or should not; and what to do."""
    if found is None:
        detail = f"namespace {namespace} has no PersistentVolumeClaim {volume.claim!r}"
        return detail, f"create it, or leave out {_KEY} > claim to have one made"
    if "deletionTimestamp" in found["metadata"]:
        return f"the claim {volume.claim} is being deleted", "try again when it is gone"
    is_ours = raycluster.MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items()
    there = f"namespace {namespace} has a claim {volume.claim} already"
    if volume.is_own and not is_ours:
        return f"{there}, which Sunspot did not make", (
            f"delete it: {_delete(volume, namespace)}; or use its volume, in a folder of this "
            f"cluster's own beside what is there ({_KEY} > claim: {volume.claim})"
        )
    if volume.goes and not stands:
        return f"{there}, with the state of an earlier cluster", (
            f"go on with that state ({_KEY} > keep: true), or delete it: "
            f"{_delete(volume, namespace)}"
        )
    return None


def _of_classes(api: Api, wanted: str | None) -> Iterator[Finding]:
    """What is wrong with the storage class of a claim to be made, where one may see them."""
    try:
        classes = api.list(path(STORAGE, "storageclasses"))
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return
    names = [one["metadata"]["name"] for one in classes]
    has = f"it has {', '.join(sorted(names))}" if names else "it has none"
    remedy = f"name one in {_KEY} > storage_class, or an existing claim in {_KEY} > claim"
    if wanted is not None and wanted not in names:
        detail = f"this Kubernetes has no storage class {wanted!r}; {has}"
    elif wanted is None and not any(map(_is_default, classes)):
        detail = f"this Kubernetes has no default storage class; {has}"
    else:
        yield from _of_class(_chosen(classes, wanted))
        return
    yield Finding(check="volume", level="failure", detail=detail, remedy=remedy)


def _chosen(classes: list[Object], wanted: str | None) -> Object:
    """The class of that name; for None the default, of several the newest (as Kubernetes does)."""
    if wanted is not None:
        return next(one for one in classes if one["metadata"]["name"] == wanted)
    defaults = filter(_is_default, classes)
    return max(defaults, key=lambda one: one["metadata"].get("creationTimestamp") or "")


def _of_class(chosen: Object) -> Iterator[Finding]:
    """Whether a disk would stay (kubernetes.io, "Persistent Volumes", Reclaiming)."""
    if chosen.get("reclaimPolicy") == "Retain":
        yield Finding(
            check="volume",
            level="warning",
            detail=f"storage class {chosen['metadata']['name']} has reclaimPolicy Retain: when the "
            "claim is deleted, its PersistentVolume and the disk stay, and cost, until you delete "
            "them (kubectl get pv)",
            remedy=f"name a class with reclaimPolicy Delete in {_KEY} > storage_class",
        )


def _is_default(storage_class: Object) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return any(annotations.get(one) == "true" for one in _DEFAULT)
