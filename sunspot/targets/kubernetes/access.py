"""Which Kubernetes a cluster is in: a context of a kubeconfig, or the one that this pod runs in."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from sunspot.errors import UsageError
from sunspot.problems import hint
from sunspot.targets.kubernetes import login_files
from sunspot.targets.kubernetes.errors import missing_package

if TYPE_CHECKING:
    from kubernetes.client import Configuration

KUBECONFIG, HOME_FILE = "KUBECONFIG", "~/.kube/config"

DEFAULT_NAMESPACE = "default"

# What the package raises besides, where a part of a kubeconfig is missing or of another kind.
_MALFORMED = (OSError, ValueError, TypeError, AttributeError, KeyError)

# Kubernetes sets the first in every pod, and mounts the second (kubernetes.io, "Accessing the
# Kubernetes API from a Pod").
_IN_POD = "KUBERNETES_SERVICE_HOST"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A namespace of one Kubernetes.

    Attributes:
        kubeconfig: the file, or several, as the variable KUBECONFIG has them; "" for the Kubernetes
            that this process runs in, as a pod.
        context: the context in it; "" in a pod.
        namespace: the namespace.
    """

    kubeconfig: str
    context: str
    namespace: str

    @classmethod
    def find(cls, context: str | None, namespace: str | None) -> Self:
        """The place that a user means, as kubectl understands it.

        Args:
            context: the context; None for the current one.
            namespace: the namespace; None for the context's own, or else `default`.

        Raises:
            UsageError: there is no kubeconfig, it cannot be read, or it has no such context.
        """
        files = os.environ.get(KUBECONFIG) or str(Path(HOME_FILE).expanduser())
        if not any(Path(one).expanduser().exists() for one in files.split(os.pathsep) if one):
            return cls._in_pod(files, context, namespace)
        found = _context(files, context)
        settings = found.get("context")  # where it is no mapping, the login says so
        own = settings.get("namespace") if isinstance(settings, dict) else None
        absolute = (
            str(Path(one).expanduser().absolute()) for one in files.split(os.pathsep) if one
        )
        return cls(
            kubeconfig=os.pathsep.join(absolute),
            context=found["name"],
            namespace=namespace or own or DEFAULT_NAMESPACE,
        )

    @classmethod
    def _in_pod(cls, files: str, context: str | None, namespace: str | None) -> Self:
        if _IN_POD not in os.environ or not _POD_NAMESPACE.exists():
            raise UsageError(
                f"there is no kubeconfig: {files} does not exist, and this is not a pod with a "
                f"service account. Get one, for instance with `az aks get-credentials`, or name "
                f"yours: export {KUBECONFIG}=FILE"
            )
        if context is not None:
            raise UsageError(
                f"context {context!r} cannot be found: this is a pod without a kubeconfig, which "
                "uses its own Kubernetes; leave out --context, and sunspot:kubernetes > context in "
                "the stack file"
            )
        own = _POD_NAMESPACE.read_text().strip()
        return cls(kubeconfig="", context="", namespace=namespace or own)

    @property
    def is_inside(self) -> bool:
        """Whether this process is a pod of that Kubernetes."""
        return not self.kubeconfig

    @property
    def called(self) -> str:
        """What messages call its API server."""
        return f"Kubernetes (context {self.context})" if self.context else "this pod's Kubernetes"

    def stamps(self) -> tuple[int, ...]:
        """When each file of the kubeconfig was changed last, in ns; 0 for one that is not there."""
        files = [Path(one) for one in self.kubeconfig.split(os.pathsep) if one]
        return tuple(one.stat().st_mtime_ns if one.exists() else 0 for one in files)

    def configuration(self) -> Configuration:
        """How to reach the API server: address, certificates, login.

        Raises:
            UsageError: the kubeconfig is gone or wrong, or its login command failed.
        """
        with login_files.LOGGING_IN:
            return self._log_in()

    def _log_in(self) -> Configuration:
        try:
            from kubernetes import config
            from kubernetes.client import Configuration
        except ModuleNotFoundError as error:
            raise missing_package() from error
        made, errors = Configuration(), _LoginErrors()
        logging.root.addHandler(errors)
        try:
            if self.is_inside:
                config.load_incluster_config(client_configuration=made)
            else:
                with login_files.in_memory(made) as folder:
                    config.load_kube_config(
                        config_file=self.kubeconfig,
                        context=self.context,
                        client_configuration=made,
                        persist_config=False,
                        temp_file_path=folder,
                    )
        except (config.ConfigException, yaml.YAMLError, *_MALFORMED) as error:
            if not self.is_inside:
                self._check_context()
            raise UsageError(
                f"the login for {self.called} cannot be read from {self.kubeconfig or 'this pod'}: "
                f"{' '.join(str(error).split())}. Check it with: kubectl get pods"
                + (f" --context {self.context}" if self.context else "")
            ) from error
        finally:
            logging.root.removeHandler(errors)
        if errors.said:
            raise UsageError(
                f"the login command of {self.called} failed: {'; '.join(errors.said)}. It is in "
                f"users > exec of {self.kubeconfig}; see what it says by itself, and log in again"
            )
        return made

    def _check_context(self) -> None:
        """Raises UsageError if the kubeconfig has lost the context since a cluster was recorded."""
        try:
            _context(self.kubeconfig, self.context)
        except _UnknownContextError as error:
            raise UsageError(
                f"{error}. If yours has another name now, give it back its old one: "
                f"KUBECONFIG={self.kubeconfig} kubectl config rename-context NAME {self.context}"
            ) from error
        except UsageError:  # the caller has the better reason
            return


class _LoginErrors(logging.Handler):
    """What the package only logs: that a login command failed (kubernetes-client/python#1409)."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what the package says."""
        if record.module == "kube_config":
            self.said.append(" ".join(record.getMessage().split()))


class _UnknownContextError(UsageError):
    """The kubeconfig has no such context."""


def _context(files: str, wanted: str | None) -> dict[str, Any]:
    """The context of that name, or the current one, as the kubeconfig has it."""
    try:
        from kubernetes import config
        from kubernetes.config.kube_config import KubeConfigMerger
    except ModuleNotFoundError as error:
        raise missing_package() from error
    try:
        if wanted is None:
            found: Any = config.list_kube_config_contexts(config_file=files)
            _, current = found
            return current
        # Not by that function, which fails where there is no current context.
        merged: Any = KubeConfigMerger(files).config
        contexts = {one.value["name"]: one.value for one in merged.value["contexts"]}
    except (config.ConfigException, yaml.YAMLError, *_MALFORMED) as error:
        raise UsageError(
            f"the kubeconfig {files} cannot be used: {' '.join(str(error).split())}. See `kubectl "
            "config view`"
        ) from error
    if wanted not in contexts:
        raise _UnknownContextError(
            f"there is no context {wanted!r} in {files}{hint(wanted, list(contexts))}: it has "
            f"{', '.join(contexts) or 'none'}"
        )
    return contexts[wanted]
