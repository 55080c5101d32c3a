"""`sunspot run`, which is up, submit and down, by a user who has only the documented Role."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kubernetes_stacks import group, stack
from machines.kubernetes.cluster import Cluster
from machines.processes import DEADLINE_S
from ray_clusters import SMALL_HEAD, SMALL_WORKER, Namespaces, RayCluster, command_for
from sunspot_command import SunspotCommand

from sunspot.targets.kubernetes import manifest

WORKERS = {**group(), "worker_nodes": SMALL_WORKER}


@pytest.fixture
def sunspot(tmp_path: Path) -> SunspotCommand:
    cluster = {"head_node": SMALL_HEAD, "scaling_groups": [WORKERS], "ray_version": "2.60.0"}
    return command_for(tmp_path, {"sunspot:cluster": cluster})


@pytest.fixture
def theirs(kubernetes: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> RayCluster:
    """The stack's cluster, in the namespace of a user whose kubeconfig every command takes."""
    described = stack(WORKERS, head=SMALL_HEAD, autoscaler=None, namespace=namespace)
    kubernetes.kubectl("apply", "--filename=-", stdin=manifest.rights_text(described))
    user = kubernetes.user("ann", "sunspot-users", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
    return RayCluster.of(described, kubernetes.kubectl)


def test_it_ends_with_the_commands_exit_code_and_leaves_nothing(
    sunspot: SunspotCommand, theirs: RayCluster
):
    (sunspot.project / "seven.py").write_text(
        "import ray, sys\n"
        "ray.init()\n"
        'seven = ray.remote(label_selector={"ray.io/node-group": "workers"})(lambda: 7)\n'
        "sys.exit(ray.get(seven.remote()))\n"
    )
    done = sunspot("run", "course", "--", "python", "seven.py")
    assert done.returncode == 7, done.stderr
    assert theirs.objects() == []
    assert "nothing to do" in sunspot.ok("down", "course")


def test_ctrl_c_ends_the_command_and_leaves_nothing(sunspot: SunspotCommand, theirs: RayCluster):
    command = ("python", "-u", "-c", "import time; print('begun'); time.sleep(600)")
    with sunspot.started("run", "course", "--", *command) as process:
        assert process.stdout is not None
        assert "begun\n" in process.stdout
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said
    assert theirs.objects() == []
    assert "nothing to do" in sunspot.ok("down", "course")


def test_another_namespace_is_refused_before_anything_is_created(
    kubernetes: Cluster, sunspot: SunspotCommand, theirs: RayCluster, new_namespace: Namespaces
):
    other = new_namespace()
    done = sunspot("run", "course", "--namespace", other, "--", "true")
    assert done.returncode == 2, done.stderr
    said = " ".join(done.stderr.split())
    assert f"rights: you may not get rayclusters.ray.io in namespace {other}" in said
    assert f"--namespace {other} --rbac | kubectl apply" in said
    assert kubernetes.kubectl.items("rayclusters", f"--namespace={other}") == []
