"""The volume with the GCS's state, by which a cluster outlives its head's pod.

Sunspot writes the volume itself, for any KubeRay: the backend that KubeRay 1.7 has for it does the
same (pod.go, configureEmbeddedFT; gcs_ft.go), needs a feature gate that is off, and does not make
the volume writable for a user who is not root, as Ray's own image has one.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from sunspot.ray import start
from sunspot.targets.kubernetes.settings import FaultTolerance

CLAIM = "PersistentVolumeClaim"
VOLUME, PATH = "gcs-state", PurePosixPath("/var/lib/ray/gcs")

# Beside its tables the GCS keeps the working directories of jobs, up to 512 MiB each.
DEFAULT_SIZE = "10Gi"

# Like KubeRay's own for its workers (utils/constant.go, DefaultWorkerRayGcsReconnectTimeoutS): an
# image may have to be pulled, and the volume be attached to another node.
HEAD_AWAY_S = 600

# Of Ray's images (docker/base-deps, RAY_GID); of any other, an additional group of its user.
GROUP = 100


@dataclass(frozen=True, kw_only=True)
class StateVolume:
    """Where a cluster's GCS keeps its state.

    Attributes:
        claim: the claim of the volume.
        is_own: whether the claim is made with the cluster; another one is the user's.
        keep: whether that claim outlives the cluster.
        folder: the folder of the state: the cluster's, since clusters may take turns on a claim of
            the user's, and its Ray version's, since nothing says that Ray reads the tables of
            another version.
    """

    claim: str
    is_own: bool
    keep: bool
    folder: str

    @classmethod
    def of(cls, cluster: str, asked: FaultTolerance, ray_version: str) -> StateVolume:
        """The volume of the cluster of that name."""
        # The name that KubeRay gives its own.
        claim = asked.claim or f"{cluster}-gcs-pvc"
        is_own = asked.claim is None
        folder = f"{cluster}-{ray_version}"
        return cls(claim=claim, is_own=is_own, keep=asked.keep, folder=folder)

    @property
    def goes(self) -> bool:
        """Whether the claim is deleted with the cluster."""
        return self.is_own and not self.keep


def claim(metadata: dict[str, Any], asked: FaultTolerance) -> dict[str, Any]:
    """The claim of a cluster's own volume, which one node at a time may mount."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": asked.size or DEFAULT_SIZE}},
    }
    if asked.storage_class is not None:
        spec["storageClassName"] = asked.storage_class
    return {
        "apiVersion": "v1",
        "kind": CLAIM,
        "metadata": metadata,
        "spec": spec,
    }


def parameters(volume: StateVolume) -> dict[str, str]:
    """The flag of `ray start` for KubeRay's shell, which does not quote it.

    A flag, since variables would reach the jobs too (node/raylet.py, hide_gcs_state).
    """
    config = json.dumps(start.gcs_storage(str(PATH / volume.folder)), separators=(",", ":"))
    return {"system-config": shlex.quote(config)}


def pod_volume(volume: StateVolume) -> dict[str, Any]:
    """The volume of the head's pod."""
    return {"name": VOLUME, "persistentVolumeClaim": {"claimName": volume.claim}}


def mount() -> dict[str, Any]:
    """The mount of Ray's container."""
    return {"name": VOLUME, "mountPath": str(PATH)}


def security(*patches: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the volume writable for the image's user; it is set up once, not at each start.

    Args:
        patches: the user's patches of the pod's template; what they set is left out.
    """
    ours = {"fsGroup": GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    contexts = [(patch.get("spec") or {}).get("securityContext") for patch in patches]
    theirs = {key for one in contexts if isinstance(one, Mapping) for key in one}
    return {key: value for key, value in ours.items() if key not in theirs}
