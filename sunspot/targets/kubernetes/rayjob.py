"""A stack and one command, as a RayJob: KubeRay makes a cluster for it, and deletes that after it.

In a manifest the command runs in the image, whose code it is: nothing is sent from here. For
`sunspot run` the RayJob waits for a job that this machine submits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sunspot import yaml_text
from sunspot.ray.entrypoint import shell_line
from sunspot.stack import Stack
from sunspot.stack_problems import wrong
from sunspot.targets.kubernetes import raycluster, rayservice
from sunspot.targets.kubernetes.pods import LEAST_PRIVILEGE, amounts

# KubeRay's name of the container that submits (RayJobSubmitterContainerName), and what it asks for
# by default (common/job.go), requested and limited alike.
SUBMITTER = "ray-job-submitter"
SUBMITTER_CPU, SUBMITTER_GB = 0.5, 0.5

# A cluster that does not come up, or gets no job, is paid for until then: its head is there.
PENDING_LIMIT_S = 3600

# What `sunspot run` has to read the end of the job's output, before KubeRay takes the cluster down:
# longer than it tries to reach the head again (ray/following.py).
READING_S = 900


def make(
    stack: Stack, command: Sequence[str], environment: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The RayJob of a command on the stack's cluster.

    Args:
        stack: the stack.
        command: the command and its arguments.
        environment: Ray's runtime environment of the job.

    Raises:
        UsageError: the stack or the environment is wrong for Kubernetes.
    """
    # As for a RayService: KubeRay names the cluster itself.
    called = rayservice.names(stack)
    _check_environment(environment or {})
    cluster = raycluster.inner_spec(stack)
    spec: dict[str, Any] = {
        "entrypoint": shell_line(command),
        "submissionMode": "K8sJobMode",
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 0,
        # A command that failed is not run again.
        "backoffLimit": 0,
        "preRunningDeadlineSeconds": PENDING_LIMIT_S,
        "submitterPodTemplate": _submitter(stack, cluster),
        "rayClusterSpec": cluster,
    }
    if environment:
        # Without what Ray adds of this machine's own Ray.
        told = {key: value for key, value in environment.items() if not key.startswith("_")}
        spec["runtimeEnvYAML"] = yaml_text.dump(told)
    return [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": called.metadata(called.cluster),
            "spec": spec,
        }
    ]


def waiting(stack: Stack) -> list[dict[str, Any]]:
    """The RayJob of a cluster for a job that is submitted from here, and then named to KubeRay.

    KubeRay takes the cluster down when that job has ended, or none came in time, whatever becomes
    of who made it; but a head that is lost takes the job's record with it, and then KubeRay asks
    for it for ever (rayjob_controller.go, 1.6).

    Raises:
        UsageError: the stack is wrong for Kubernetes.
    """
    called = rayservice.names(stack)
    return [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": called.metadata(called.cluster),
            "spec": {
                "submissionMode": "InteractiveMode",
                "shutdownAfterJobFinishes": True,
                "ttlSecondsAfterFinished": READING_S,
                "backoffLimit": 0,
                "preRunningDeadlineSeconds": PENDING_LIMIT_S,
                "rayClusterSpec": raycluster.inner_spec(stack),
            },
        }
    ]


def _submitter(stack: Stack, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The pod that submits and prints the output: the head's image, where pods without GPUs run."""
    head, place = cluster["headGroupSpec"]["template"]["spec"], raycluster.settings(stack).cpu_nodes
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": SUBMITTER,
                "image": head["containers"][0]["image"],
                "resources": amounts(SUBMITTER_CPU, SUBMITTER_GB),
                "securityContext": LEAST_PRIVILEGE,
            }
        ],
    }
    optional = {
        "imagePullSecrets": head.get("imagePullSecrets"),
        # What a patch asks of every pod, such as not to run as root.
        "securityContext": head.get("securityContext"),
        "nodeSelector": place.node_selector,
        "tolerations": [one.model_dump(exclude_none=True) for one in place.tolerations],
    }
    return {"spec": spec | {key: value for key, value in optional.items() if value}}


def _check_environment(environment: Mapping[str, Any]) -> None:
    folders = [("working_dir", environment["working_dir"])] if "working_dir" in environment else []
    folders += [("py_modules", one) for one in environment.get("py_modules") or []]
    problems = [
        f"{key}: {folder!r} is a folder of this machine, and nothing is sent from here: give the "
        "URI of a zip (https://, s3://, azure://), or put the code into the image"
        for key, folder in folders
        if "://" not in str(folder)
    ]
    if problems:
        raise wrong("the runtime environment", problems)
