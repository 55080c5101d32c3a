"""A cluster of one node with KubeRay's operator, and kubectl for it."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from waiting import wait_for

from machines.kubernetes import BIN, KUBERAY
from machines.kubernetes.authority import authority, read
from machines.kubernetes.node import LOGS, machine
from machines.kubernetes.programs import API_PORT, Programs
from machines.processes import DEADLINE_S, checked, environment

# In the environment: the folder of a cluster that runs, which tests use instead of their own.
RUNNING = "SUNSPOT_TESTS_KUBERNETES"

ADMINS = "system:masters"
IDENTITIES = "identities"

# Who may do what, beside what Kubernetes itself says: CoreDNS as in its own deployment, the
# operator as in KubeRay's.
_COREDNS_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "coredns"},
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ],
}


@dataclass(frozen=True)
class Kubectl:
    """kubectl as one user, whose kubeconfig it uses."""

    kubeconfig: Path

    def __call__(
        self, *words: str | Path, stdin: str | None = None, timeout: float = DEADLINE_S
    ) -> str:
        """What it prints. Raises StepError unless it exits with 0."""
        return checked(self.command(*words), env=self.environment, stdin=stdin, timeout=timeout)

    def run(self, *words: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """kubectl, whatever its exit status."""
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )

    def apply(self, *documents: dict[str, Any]) -> None:
        """Applies resources; an unknown field is an error."""
        self("apply", "--validate=strict", "--filename=-", stdin=yaml.safe_dump_all(documents))

    def patch(self, kind: str, name: str, change: dict[str, Any], *words: str) -> None:
        """Merges a change into a resource."""
        self("patch", kind, name, "--type=merge", f"--patch={json.dumps(change)}", *words)

    def get(self, *words: str) -> dict[str, Any]:
        """A resource, or a list of them."""
        return json.loads(self("get", *words, "--output=json"))

    def items(self, *words: str) -> list[dict[str, Any]]:
        """The resources of a list."""
        return self.get(*words)["items"]

    @property
    def environment(self) -> dict[str, str]:
        return environment(KUBECONFIG=str(self.kubeconfig))

    def command(self, *words: str | Path) -> list[str]:
        return [str(BIN / "kubectl"), *map(str, words)]


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs. `folder` has its files."""

    folder: Path

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as the administrator."""
        return Kubectl(self.kubeconfig)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.kubeconfig"

    @property
    def logs(self) -> Path:
        """What its programs print, one file each."""
        return self.folder / LOGS

    def user(self, name: str, *groups: str, namespace: str = "default") -> Kubectl:
        """kubectl as another user, in these groups."""
        identities = read(self.folder / IDENTITIES)
        return Kubectl(identities.kubeconfig(name, groups, namespace))

    def account(self, name: str, namespace: str) -> Kubectl:
        """kubectl as a service account of the namespace "default", which logs in by a token."""
        made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        self.kubectl.apply(made)
        token = self.kubectl("create", "token", name).strip()
        identities = read(self.folder / IDENTITIES)
        return Kubectl(identities.kubeconfig_of_token(name, token, namespace))


@contextlib.contextmanager
def cluster(report: Callable[[str], None] = lambda _: None) -> Iterator[Cluster]:
    """A cluster whose node is ready and whose operator runs; nothing is left after the block.

    Args:
        report: told of each step.
    """
    report("the images")
    with machine() as node, contextlib.ExitStack() as running:
        made = Cluster(node.folder)
        identities = authority(node.folder / IDENTITIES, f"https://{node.address}:{API_PORT}")
        identities.kubeconfig("admin", [ADMINS]).rename(made.kubeconfig)
        programs = Programs(node, identities, running)
        report("the control plane")
        programs.container_runtime()
        programs.control_plane()
        _admit(made.kubectl)
        report("the node, and KubeRay's operator")
        programs.node()
        programs.operator()
        wait_for("the node", lambda: _is_ready(made.kubectl), DEADLINE_S, poll_s=0.5)
        wait_for("a service account", lambda: _has_account(made.kubectl), poll_s=0.5)
        yield made


def _admit(kubectl: Kubectl) -> None:
    """Installs KubeRay's resources, and gives the programs that are in no pod their rights."""
    operator = yaml.safe_load((KUBERAY / "role.yaml").read_text())
    kubectl.apply(_COREDNS_ROLE, operator)
    for user, role in (("coredns", "coredns"), ("kuberay-operator", operator["metadata"]["name"])):
        kubectl("create", "clusterrolebinding", user, f"--clusterrole={role}", f"--user={user}")
    # Larger than what `apply` may note on a resource.
    kubectl("create", f"--filename={KUBERAY / 'crds'}")
    # `kubectl wait` fails for one that has no conditions yet.
    wait_for("KubeRay's resources", lambda: _are_established(kubectl), poll_s=0.5)


def _are_established(kubectl: Kubectl) -> bool:
    conditions = [one.get("status", {}).get("conditions") or [] for one in kubectl.items("crd")]
    return all(
        ("Established", "True") in {(c["type"], c["status"]) for c in one} for one in conditions
    )


def _is_ready(kubectl: Kubectl) -> bool:
    conditions = [
        one
        for node in kubectl.items("nodes")
        for one in node["status"].get("conditions", [])
        if one["type"] == "Ready"
    ]
    return [one["status"] for one in conditions] == ["True"]


def _has_account(kubectl: Kubectl) -> bool:
    return kubectl.run("get", "serviceaccount", "default").returncode == 0
