"""A stack's Ray cluster in a real Kubernetes, used as a person would with kubectl."""

from __future__ import annotations

import base64
import contextlib
import re
import secrets
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from machines.kubernetes.cluster import Kubectl
from sunspot_command import SunspotCommand
from waiting import wait_for

from sunspot.stack import Stack
from sunspot.targets.kubernetes import manifest, raycluster
from sunspot.targets.kubernetes.pods import RAY_CONTAINER, TOKEN_KEY

READY_S = 400

# Makes a namespace of a test's own; its name.
Namespaces = Callable[[], str]

# What fits beside each other into the memory of a small machine.
SMALL_AUTOSCALER = {"cpu": 0.25, "memory_gb": 1}
SMALL_HEAD = {"cpu": 1, "memory_gb": 3}
SMALL_WORKER = {"cpu": 1, "memory_gb": 2}

_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


@dataclass(frozen=True)
class RayCluster:
    """The cluster of a stack. `kubectl` is who asks."""

    described: Stack
    kubectl: Kubectl
    name: str
    namespace: str
    token_secret: str
    service: str

    @classmethod
    def of(cls, described: Stack, kubectl: Kubectl) -> RayCluster:
        """The cluster of that stack, which need not be there yet."""
        called = raycluster.names(described)
        return cls(
            described,
            kubectl,
            called.cluster,
            called.namespace,
            called.token_secret,
            called.head_service,
        )

    def seen_by(self, kubectl: Kubectl) -> RayCluster:
        """The same cluster, asked by another user."""
        return replace(self, kubectl=kubectl)

    def make_token(self) -> None:
        """Makes the Secret, as the manifest's first lines say."""
        self(
            *("create", "secret", "generic", self.token_secret),
            f"--from-file={TOKEN_KEY}=/dev/stdin",
            stdin=secrets.token_hex(32),
        )

    def apply(self) -> None:
        """Applies what `sunspot manifest` prints."""
        self("apply", "--validate=strict", "--filename=-", stdin=manifest.text(self.described))

    def wait_until_ready(self) -> None:
        """Returns when KubeRay says so, and every pod is."""
        state = "jsonpath={.status.state}=ready"
        self("wait", f"--for={state}", f"raycluster/{self.name}", f"--timeout={READY_S}s")

    def token(self) -> str:
        """The token, from its Secret."""
        data = self.get("secret", self.token_secret)["data"]
        return base64.b64decode(data[TOKEN_KEY]).decode()

    def head(self) -> dict[str, Any]:
        """The head's pod, of which there is one that does not end."""
        (pod,) = self.pods("head")
        return pod

    def pods(self, group: str) -> list[dict[str, Any]]:
        """The pods of a group that do not end; of "head", the head's."""
        label = "ray.io/node-type=head" if group == "head" else f"ray.io/group={group}"
        found = self.get("pods", f"--selector=ray.io/cluster={self.name},{label}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def objects(self) -> list[str]:
        """What there is in its namespace, beside what Kubernetes and the Role put into each."""
        kinds = (
            "rayclusters,rayjobs,pods,services,serviceaccounts,roles,rolebindings,secrets,pdb,pvc"
        )
        found = self("get", kinds, "--output=name").split()
        return [name for name in found if name not in self._others()]

    def _others(self) -> set[str]:
        role = f".rbac.authorization.k8s.io/{self.name}-users"
        return {"serviceaccount/default", f"role{role}", f"rolebinding{role}"}

    def run(self, program: str) -> str:
        """Runs a program of Python beside the head; what it printed."""
        return self(*self._exec(), stdin=program)

    @contextlib.contextmanager
    def running(self, program: str) -> Iterator[subprocess.Popen[str]]:
        """The same, beside the block; it must end by itself."""
        with subprocess.Popen(
            self.kubectl.command(*self._words(*self._exec())),
            env=self.kubectl.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(program)
            process.stdin.close()
            process.stdin = None
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    @contextlib.contextmanager
    def forwarded(self, port: int) -> Iterator[str]:
        """The head's port, at an address of this machine."""
        words = self._words("port-forward", f"service/{self.service}", f":{port}")
        with subprocess.Popen(
            self.kubectl.command(*words),
            env=self.kubectl.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = _FORWARDED.match(line)
                assert found, line
                yield f"127.0.0.1:{found[1]}"
            finally:
                process.terminate()

    def get(self, *words: str) -> dict[str, Any]:
        """A resource of its namespace, or a list of them."""
        return self.kubectl.get(*words, f"--namespace={self.namespace}")

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        return self.kubectl(*self._words(*words), stdin=stdin)

    def _exec(self) -> list[str]:
        head = self.head()["metadata"]["name"]
        return ["exec", "--stdin", head, f"--container={RAY_CONTAINER}", "--", "python", "-"]

    def _words(self, *words: str) -> list[str]:
        return [f"--namespace={self.namespace}", *words]


def command_for(folder: Path, config: dict[str, Any]) -> SunspotCommand:
    """`sunspot` in an empty folder, in a project whose one stack is "course"."""
    made = SunspotCommand(project=folder / "project", state=folder / "state", home=folder / "home")
    made.home.mkdir()
    made.project.mkdir()
    (made.project / "Pulumi.yaml").write_text("name: course\nruntime: python\n")
    text = yaml.safe_dump({"config": {"sunspot:target": "kubernetes", **config}})
    (made.project / "Pulumi.course.yaml").write_text(text)
    return made


def why_pending(pod: dict[str, Any]) -> str:
    """The scheduler's own words about a pod that has no node; "" while it has not spoken."""
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("message", "")
    return ""


def wait_for_node(cluster: RayCluster, group: str) -> str:
    """The node that a group's one pod was given."""

    def node() -> str | None:
        pods = cluster.pods(group)
        return pods[0]["spec"].get("nodeName") if pods else None

    return wait_for(f"a node for {group}", node, poll_s=0.5)


def wait_for_reason(cluster: RayCluster, group: str) -> str:
    """Why a group's one pod has no node."""

    def reason() -> str:
        pods = cluster.pods(group)
        return why_pending(pods[0]) if pods else ""

    return wait_for(f"the scheduler's word on {group}", reason, poll_s=0.5)
