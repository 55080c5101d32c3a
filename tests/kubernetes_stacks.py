"""Stacks for the tests of the kubernetes target, and what it makes of them."""

import yaml

from sunspot.stack import Stack
from sunspot.targets.kubernetes import manifest

HEAD = {"cpu": 2, "memory_gb": 8}
AUTOSCALER = {"cpu": 0.5, "memory_gb": 1}


# A stack file.
FILE = """\
config:
  sunspot:target: kubernetes
  sunspot:cluster:
    head_node: {cpu: 2, memory_gb: 4}
    autoscaler_config: {cpu: 0.5, memory_gb: 1}
    scaling_groups:
      - name: workers
        market: on-demand
        max_workers: 3
        worker_nodes: {cpu: 1, memory_gb: 2}
"""


def group(name="workers", *, minimum=1, maximum=1, market="on-demand", **node):
    """A group as a stack file has it; `node` is what its workers are."""
    return {
        "name": name,
        "market": market,
        "min_workers": minimum,
        "max_workers": maximum,
        "worker_nodes": {"cpu": 4, "memory_gb": 16} | node if "vm_size" not in node else node,
    }


def stack(*groups, head=HEAD, autoscaler=AUTOSCALER, called="course", image=None, **settings):
    """A stack with these groups; `settings` is its `sunspot:kubernetes`."""
    cluster = {
        "head_node": head,
        "scaling_groups": list(groups),
        "autoscaler_config": autoscaler,
        "ray_version": "2.60.0",
    }
    config = {"sunspot:cluster": cluster, "sunspot:target": "kubernetes"}
    if image:
        config["sunspot:image"] = image
    if settings:
        config["sunspot:kubernetes"] = settings
    return Stack.parse(config, name=called)


def documents(described):
    """The documents of a stack's manifest."""
    return list(yaml.safe_load_all(manifest.text(described)))


def cluster(*groups, **described):
    """The RayCluster of a stack that is described as for `stack`."""
    return documents(stack(*groups, **described))[0]


def head_pod(made):
    """The spec of the head's pods."""
    return made["spec"]["headGroupSpec"]["template"]["spec"]


def worker_pod(made, at=0):
    """The spec of a worker group's pods."""
    return made["spec"]["workerGroupSpecs"][at]["template"]["spec"]


def variables(pod):
    """The environment of Ray's container."""
    return {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}


def groups(made):
    """The worker groups of a RayCluster, by their names."""
    return {one["groupName"]: one for one in made["spec"]["workerGroupSpecs"]}


# Every setting that has a field of its own in the manifest.
EVERYTHING = {
    "name": "mine",
    "namespace": "ml",
    "token_secret": "token",
    "service_account": "blobs",
    "image_pull_secrets": ["registry"],
    "cpu_nodes": {
        "node_selector": {"pool": "cpu"},
        "tolerations": [{"key": "team", "value": "ml", "effect": "NoSchedule"}],
        "labels": {"cost": "1"},
        "annotations": {"note": "x"},
    },
    "groups": {"elastic": {"idle_timeout_s": 30, "patch": {"spec": {"hostIPC": True}}}},
    "shared_memory": "2Gi",
    "gcs_fault_tolerance": {"size": "10Gi", "storage_class": "managed-csi"},
    "patch": {
        "spec": {
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [
                {
                    "name": "ray",
                    "imagePullPolicy": "Never",
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        }
    },
}

# One stack for each form that a manifest takes.
KINDS = {
    "head": stack(),
    "fixed": stack(group(), group("gpu", gpu_count=1)),
    "elastic": stack(group("elastic", minimum=0, maximum=4, market="spot")),
    "settings": stack(group("elastic", maximum=4), **EVERYTHING),
    "everything": stack(group("elastic", maximum=4, market="spot-with-fallback"), **EVERYTHING),
    "claim": stack(gcs_fault_tolerance={"claim": "mine", "keep": True}),
}
# Those that only KubeRay 1.7 knows.
NEWER = ("everything",)
