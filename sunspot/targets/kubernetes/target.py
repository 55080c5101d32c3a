"""The kubernetes target: it writes what KubeRay makes a cluster from, and starts nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sunspot.errors import NotUpError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets.kubernetes import manifest, raycluster
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.kubernetes.settings import TARGET
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    NodeStatus,
    Progress,
    Removal,
    Up,
    silent,
)

_BY_HAND = """\
Sunspot does not start clusters on Kubernetes yet: apply the manifest with kubectl, and submit to \
the cluster with Ray's own command, through a port-forward:
  {commands}"""

# Where the stack is not known.
_ANY = Names(cluster="NAME", namespace="NAMESPACE", token_secret="NAME-token")  # noqa: S106


@dataclass(frozen=True)
class KubernetesTarget:
    """Clusters that the user's own Kubernetes runs."""

    name: str = TARGET

    def manifest(self, stack: Stack) -> str:
        return manifest.text(stack)

    def served_manifest(self, stack: Stack, source: str) -> str:
        return manifest.served_text(stack, source)

    def rights(self, stack: Stack) -> str:
        return manifest.rights_text(stack)

    def by_hand(self, stack: Stack | None) -> str:
        called, apply = _ANY, f"sunspot manifest STACK --target {TARGET} | kubectl apply -f -"
        if stack is not None:
            called, apply = raycluster.names(stack), manifest.apply(stack)
        commands = [manifest.create_secret(called), apply, *manifest.ways_in(called)]
        return _BY_HAND.format(commands="\n  ".join(commands))

    def check(self, stack: Stack) -> None:
        """Raises UsageError always: for what is wrong with the stack first."""
        self._refuse(stack)

    def up(
        self,
        stack: Stack,
        progress: Progress,  # noqa: ARG002
        *,
        timeout_s: float = UP_TIMEOUT_S,  # noqa: ARG002
        port: int | None = None,  # noqa: ARG002
        dashboard_port: int | None = None,  # noqa: ARG002
        client: bool = False,  # noqa: ARG002
    ) -> Up:
        """Raises as `check` does."""
        self._refuse(stack)

    def down(
        self,
        name: str,  # noqa: ARG002
        progress: Progress,  # noqa: ARG002
        *,
        delete_storage: bool = False,  # noqa: ARG002
    ) -> Removal | None:
        return None

    def names(self) -> list[str]:
        return []

    def discover(self, name: str) -> bool:  # noqa: ARG002
        return False

    def stack(self, name: str) -> Stack:
        raise self._not_up(name)

    def handle(self, name: str, progress: Progress = silent) -> ClusterHandle:  # noqa: ARG002
        raise self._not_up(name)

    def nodes(self, name: str, progress: Progress = silent) -> list[NodeStatus]:  # noqa: ARG002
        raise self._not_up(name)

    def _refuse(self, stack: Stack) -> NoReturn:
        raycluster.make(stack)
        raise UsageError(self.by_hand(stack))

    def _not_up(self, name: str) -> NotUpError:
        return NotUpError(f"Sunspot has no cluster {name!r} on {self.name}")
