"""The volume of the GCS's state, asked for before anything is created."""

from __future__ import annotations

from collections.abc import Iterator

from sunspot.stack import Stack
from sunspot.targets.kubernetes import raycluster
from sunspot.targets.kubernetes.api import STORAGE, Api, Object, path
from sunspot.targets.kubernetes.errors import FORBIDDEN, ApiError
from sunspot.targets.kubernetes.gcs_state import StateVolume
from sunspot.targets.kubernetes.settings import KEY
from sunspot.targets.protocol import Finding

_KEY = f"{KEY} > gcs_fault_tolerance"

# Of the class of claims that name none (kubernetes.io, "Default StorageClass").
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def findings(api: Api, stack: Stack) -> Iterator[Finding]:
    """What is wrong with the claim of the GCS's state, and with its storage class."""
    volume = raycluster.state_volume(stack)
    if volume is None:
        return
    namespace = raycluster.names(stack).namespace
    found = api.find(path("v1", "persistentvolumeclaims", namespace, volume.claim))
    if found is None and volume.is_own:
        yield from _of_classes(api, stack)
    elif problem := _of_claim(volume, found, namespace):
        detail, remedy = problem
        yield Finding(check="volume", level="failure", detail=detail, remedy=remedy)
    else:
        yield Finding(check="volume", level="ok", detail=f"claim {volume.claim}")


def _of_claim(volume: StateVolume, found: Object | None, namespace: str) -> tuple[str, str] | None:
    """The problem with a claim that should be there, or should not; and what to do."""
    if found is None:
        detail = f"namespace {namespace} has no PersistentVolumeClaim {volume.claim!r}"
        return detail, f"create it, or leave out {_KEY} > claim to have one made"
    if "deletionTimestamp" in found["metadata"]:
        return f"the claim {volume.claim} is being deleted", "try again when it is gone"
    is_ours = raycluster.MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items()
    if volume.goes or (volume.is_own and not is_ours):
        detail = (
            f"namespace {namespace} has a claim {volume.claim} already, with the state of an "
            "earlier cluster"
        )
        return detail, (
            f"go on with that state ({_KEY} > "
            + ("keep: true" if is_ours else f"claim: {volume.claim}")
            + f"), or delete it: kubectl delete pvc {volume.claim} --namespace {namespace}"
        )
    return None


def _of_classes(api: Api, stack: Stack) -> Iterator[Finding]:
    """Whether there is a storage class for a claim that is to be made, where one may see them."""
    asked = raycluster.settings(stack).gcs_fault_tolerance
    wanted = None if asked is None else asked.storage_class
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
        return
    yield Finding(check="volume", level="failure", detail=detail, remedy=remedy)


def _is_default(storage_class: Object) -> bool:
    return (storage_class["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
