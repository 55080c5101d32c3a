"""`RayCluster` in a pod whose service account has only the documented Role."""

from __future__ import annotations

import json
import sysconfig

from kubernetes_stacks import group, stack
from machines import PROJECT
from machines.kubernetes.cluster import Cluster
from machines.kubernetes.container_images import RAY
from machines.processes import DEADLINE_S
from ray_clusters import SMALL_HEAD, SMALL_WORKER, Namespaces, RayCluster
from waiting import wait_for

from sunspot.targets.kubernetes import manifest

ACCOUNT = "driver"

# A block in the pod's own namespace, then one in a namespace that is not its own.
_PROGRAM = """
import json, sys
sys.path.append("/packages")  # after the image's own, which fit its Python
import ray
from sunspot.cluster import ExternalResourceError, RayCluster
from sunspot.stack import Stack

config, elsewhere = json.loads(sys.argv[1])
stack = Stack.parse(config, name="course")
with RayCluster(stack.cluster, target="kubernetes", name="course") as cluster:
    workers = ray.remote(label_selector={"ray.io/node-group": "workers"})
    print("address", cluster.handle.driver_address)
    print("result", ray.get(workers(lambda: 6 * 7).remote()))
try:
    with RayCluster.from_stack(Stack.parse({**config, **elsewhere}, name="course")):
        print("it may")
except ExternalResourceError as error:
    print("refused", error)
"""


def test_a_cluster_for_a_block_in_its_own_namespace_and_in_no_other(
    kubernetes: Cluster, new_namespace: Namespaces
):
    namespace, other = new_namespace(), new_namespace()
    workers = {**group(), "worker_nodes": SMALL_WORKER}
    described = stack(workers, head=SMALL_HEAD, autoscaler=None, namespace=namespace)
    kubectl, within = kubernetes.kubectl, f"--namespace={namespace}"
    kubectl("apply", "--filename=-", stdin=manifest.rights_text(described))
    kubectl("create", "serviceaccount", ACCOUNT, within)
    given = ("--role=course-users", f"--serviceaccount={namespace}:{ACCOUNT}")
    kubectl("create", "rolebinding", "course-driver", *given, within)
    cluster = {"head_node": SMALL_HEAD, "scaling_groups": [workers], "ray_version": "2.60.0"}
    config = {"sunspot:target": "kubernetes", "sunspot:cluster": cluster}
    elsewhere = {"sunspot:kubernetes": {"namespace": other}}
    kubectl.apply(_pod(namespace, json.dumps([config, elsewhere])))

    def phase() -> str:
        return kubectl.get("pod", "driver", within)["status"].get("phase", "Pending")

    wait_for("its end", lambda: phase() in ("Succeeded", "Failed"), DEADLINE_S, poll_s=0.5)
    said = kubectl("logs", "driver", within)
    assert phase() == "Succeeded", said
    # Its service, without any port-forward.
    assert f"address ray://course-head-svc.{namespace}.svc:10001" in said
    assert "result 42" in said
    assert "refused Could not activate course" in said
    assert f"you may not get rayclusters.ray.io in namespace {other}" in said, said
    assert "it may" not in said
    left = RayCluster.of(described, kubectl).objects()
    assert left == ["pod/driver", f"serviceaccount/{ACCOUNT}", _binding("course-driver")]


def _binding(name: str) -> str:
    return f"rolebinding.rbac.authorization.k8s.io/{name}"


def _pod(namespace: str, argument: str) -> dict:
    """A pod with this code, and with the packages that Sunspot has here."""
    folders = {"/code/sunspot": PROJECT / "sunspot", "/packages": sysconfig.get_path("purelib")}
    amounts = {"cpu": "500m", "memory": "1Gi"}
    container = {
        "name": "driver",
        "image": RAY[0],
        "command": ["python", "-c", _PROGRAM, argument],
        "env": [{"name": "PYTHONPATH", "value": "/code"}],
        "resources": {"requests": amounts, "limits": amounts},
        # The files of a clone may be its owner's only.
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [
            {"name": f"folder-{at}", "mountPath": path, "readOnly": True}
            for at, path in enumerate(folders)
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "driver", "namespace": namespace},
        "spec": {
            "serviceAccountName": ACCOUNT,
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [
                {"name": f"folder-{at}", "hostPath": {"path": str(path), "type": "Directory"}}
                for at, path in enumerate(folders.values())
            ],
        },
    }
