"""`sunspot run`, whose cluster is in a RayJob, by a user who has only the documented Role."""

from __future__ import annotations

import json
import signal

from machines.kubernetes.cluster import Cluster
from machines.processes import DEADLINE_S
from ray_clusters import Namespaces, RayCluster
from sunspot_command import SunspotCommand
from waiting import wait_for


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


def deployment_of(theirs: RayCluster) -> str:
    return theirs.get("rayjob", "course").get("status", {}).get("jobDeploymentStatus", "")


def test_kuberay_ends_the_cluster_of_a_command_that_was_killed(
    sunspot: SunspotCommand, theirs: RayCluster
):
    command = ("python", "-u", "-c", "import time; print('begun'); time.sleep(5)")
    with sunspot.started("run", "course", "--", *command) as process:
        assert process.stdout is not None
        assert "begun\n" in process.stdout
        process.kill()
        process.communicate(timeout=DEADLINE_S)
    wait_for("its end", lambda: deployment_of(theirs) == "Complete", DEADLINE_S, poll_s=1)
    assert theirs.get("rayjob", "course")["status"]["jobStatus"] == "SUCCEEDED"
    # Until then, it may be read from another terminal.
    refused = sunspot("run", "course", "--", "true")
    assert refused.returncode == 2
    assert "soon after its command has ended" in " ".join(refused.stderr.split())
    soon = json.dumps({"spec": {"ttlSecondsAfterFinished": 1}})
    theirs("patch", "rayjob", "course", "--type=merge", f"--patch={soon}")
    # What costs nothing is left: the RayJob, with the job's end, and what belongs to it.
    left = ["rayjob.ray.io/course", "service/course-head-svc", "secret/course-token"]
    wait_for("the cluster to end", lambda: theirs.objects() == left, DEADLINE_S, poll_s=1)
    assert "course is down" in sunspot.ok("down", "course")
    assert theirs.objects() == []


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
