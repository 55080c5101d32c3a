"""A real cluster for all tests, namespaces of it for each, and a Ray cluster that some share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_stacks import group, stack
from machines.kubernetes import needed
from machines.kubernetes.cluster import RUNNING, Cluster, Kubectl, cluster
from machines.processes import DEADLINE_S
from ray_clusters import (
    SMALL_AUTOSCALER,
    SMALL_HEAD,
    SMALL_WORKER,
    Namespaces,
    RayCluster,
    command_for,
)
from sunspot_command import SunspotCommand
from waiting import wait_for

from sunspot.stack import Stack
from sunspot.targets.kubernetes import manifest, raycluster

TIMEOUT_S = 900

WORKERS = {**group(), "worker_nodes": SMALL_WORKER}


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Cluster]:
    """The one that runs already, where the environment names it."""
    if folder := os.environ.get(RUNNING):
        yield Cluster(Path(folder))
        return
    needed.need()
    with cluster() as made:
        yield made


@pytest.fixture(scope="session")
def new_namespace(kubernetes: Cluster) -> Iterator[Namespaces]:
    """Makes namespaces, which go with the last test."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test-{secrets.token_hex(3)}")
        kubernetes.kubectl("create", "namespace", made[-1])
        return made[-1]

    yield make
    if made:
        kubernetes.kubectl("delete", "namespace", *made, "--wait=false")


@pytest.fixture
def namespace(new_namespace: Namespaces) -> str:
    return new_namespace()


@pytest.fixture(scope="session")
def elastic(new_namespace: Namespaces) -> Stack:
    """A stack with a group of up to three workers, in a namespace of its own."""
    workers = {**group(minimum=0, maximum=3, market="spot"), "worker_nodes": SMALL_WORKER}
    return stack(
        workers,
        head=SMALL_HEAD,
        autoscaler=SMALL_AUTOSCALER,
        namespace=new_namespace(),
        spot_nodes={},
        idle_timeout_s=15,
    )


@pytest.fixture(scope="session")
def user(kubernetes: Cluster, elastic: Stack) -> Kubectl:
    """kubectl as one who has only the Role of `sunspot manifest --rbac`."""
    kubernetes.kubectl("apply", "--filename=-", stdin=manifest.rights_text(elastic))
    return kubernetes.user("ann", raycluster.settings(elastic).user_group)


@pytest.fixture(scope="session")
def ray_cluster(kubernetes: Cluster, elastic: Stack, user: Kubectl) -> Iterator[RayCluster]:
    """The stack's cluster, which the user made, and deletes at last; then nothing is left of it."""
    theirs = RayCluster.of(elastic, user)
    theirs.make_token()
    theirs.apply()
    theirs.apply()  # as after a change
    theirs.wait_until_ready()
    ours = theirs.seen_by(kubernetes.kubectl)
    yield ours
    theirs("delete", "--filename=-", stdin=manifest.text(elastic))
    theirs("delete", "secret", theirs.token_secret)
    wait_for("nothing of it to be left", lambda: not ours.objects(), DEADLINE_S, poll_s=1)


@pytest.fixture
def sunspot(tmp_path: Path) -> SunspotCommand:
    """The command, in a project with the stack "course": a head and one worker."""
    cluster = {"head_node": SMALL_HEAD, "scaling_groups": [WORKERS], "ray_version": "2.60.0"}
    return command_for(tmp_path, {"sunspot:cluster": cluster})


@pytest.fixture
def theirs(kubernetes: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> RayCluster:
    """The stack's cluster, in the namespace of a user whose kubeconfig every command takes.

    The user logs in by a command that gives a token, as on AKS.
    """
    described = stack(
        WORKERS,
        head=SMALL_HEAD,
        autoscaler=None,
        namespace=namespace,
        user_group="system:serviceaccounts:default",
    )
    kubernetes.kubectl("apply", "--filename=-", stdin=manifest.rights_text(described))
    user = kubernetes.account("ann", namespace)
    monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
    return RayCluster.of(described, kubernetes.kubectl)
