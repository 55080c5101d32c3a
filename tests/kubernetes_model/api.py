"""Kubernetes' API for a stand-in: a real server by a kubeconfig, or objects in a file."""

import base64
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import requests
import yaml

TIMEOUT_S = 30
MANAGER = "sunspot-tests"
# Resources that are in no namespace.
_CLUSTER_WIDE = ("Namespace",)


class RefusedError(Exception):
    """The server's answer to what it does not take."""


class Objects(Protocol):
    """What the provider needs of an API server."""

    def apply(self, found: Mapping[str, Any]) -> dict[str, Any]: ...

    def read(self, found: Mapping[str, Any]) -> dict[str, Any] | None: ...

    def delete(self, found: Mapping[str, Any]) -> None: ...


def key(found: Mapping[str, Any]) -> str:
    """An object's id, as Pulumi writes it: NAMESPACE/NAME."""
    metadata = found["metadata"]
    space = "" if found["kind"] in _CLUSTER_WIDE else f"{metadata.get('namespace', 'default')}/"
    return f"{space}{metadata['name']}"


def of(kubeconfig: str, folder: Path) -> Objects:
    """The server that a kubeconfig names; if it names none, a file in the folder."""
    config = yaml.safe_load(kubeconfig)
    return Server(config) if config.get("clusters") else Recorded(folder / "objects.json")


class Recorded:
    """Objects in a file: nothing checks them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def all(self) -> dict[str, dict[str, Any]]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    def apply(self, found: Mapping[str, Any]) -> dict[str, Any]:
        self._save({**self.all(), _path(found): dict(found)})
        return dict(found)

    def read(self, found: Mapping[str, Any]) -> dict[str, Any] | None:
        return self.all().get(_path(found))

    def delete(self, found: Mapping[str, Any]) -> None:
        kept = self.all()
        kept.pop(_path(found), None)
        self._save(kept)

    def _save(self, objects: Mapping[str, Any]) -> None:
        self._file.write_text(json.dumps(objects))


class Server:
    """A real API server: server-side apply with strict validation of fields.

    As Pulumi's provider does, it takes a field that another manager has changed only from an object
    with the annotation for that (pulumi.com, "Managing Resources with Server-Side Apply").
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._url = cluster["server"]
        self._session = requests.Session()
        # The kubeconfig decides, not REQUESTS_CA_BUNDLE or a proxy of the environment.
        self._session.trust_env = False
        if data := cluster.get("certificate-authority-data"):
            self._session.verify = _file(data)
        else:
            self._session.verify = cluster.get("certificate-authority", False)
        if token := user.get("token"):
            self._session.headers["Authorization"] = f"Bearer {token}"
        elif "client-certificate-data" in user:
            pair = user["client-certificate-data"], user["client-key-data"]
            self._session.cert = (_file(pair[0]), _file(pair[1]))
        else:
            self._session.cert = (user["client-certificate"], user["client-key"])

    def apply(self, found: Mapping[str, Any]) -> dict[str, Any]:
        annotations = found["metadata"].get("annotations") or {}
        force = annotations.get("pulumi.com/patchForce", "false")
        answer = self._session.patch(
            self._url + _path(found),
            params={"fieldManager": MANAGER, "force": force, "fieldValidation": "Strict"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            data=json.dumps(found),
            timeout=TIMEOUT_S,
        )
        if not answer.ok:
            raise RefusedError(f"{_path(found)}: {answer.status_code} {answer.text}")
        return answer.json()

    def read(self, found: Mapping[str, Any]) -> dict[str, Any] | None:
        answer = self._session.get(self._url + _path(found), timeout=TIMEOUT_S)
        return answer.json() if answer.ok else None

    def delete(self, found: Mapping[str, Any]) -> None:
        self._session.delete(self._url + _path(found), timeout=TIMEOUT_S)


def _path(found: Mapping[str, Any]) -> str:
    version, kind, metadata = found["apiVersion"], found["kind"], found["metadata"]
    root = "/api" if version == "v1" else "/apis"
    space = metadata.get("namespace", "default")
    place = "" if kind in _CLUSTER_WIDE else f"/namespaces/{space}"
    return f"{root}/{version}{place}/{kind.lower()}s/{metadata['name']}"


def _file(data: str) -> str:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(base64.b64decode(data))
    return file.name
