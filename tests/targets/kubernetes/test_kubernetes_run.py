"""`sunspot run`: the cluster is in a RayJob, which KubeRay ends where this machine does not."""

from __future__ import annotations

import json

import pytest
from cli_runs import failed, run
from kubernetes_stacks import FILE

from sunspot import stack as stacks
from sunspot.targets.kubernetes import job_clusters, placing, rayjob
from sunspot.targets.kubernetes.target import create

KINDS = ("rayjobs", "rayclusters", "secrets", "pods", "poddisruptionbudgets")
RUN = ("run", "mine", "--working-dir", "job", "--", "true")
JOB = "/apis/ray.io/v1/namespaces/default/rayjobs/mine"
CLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"


@pytest.fixture(autouse=True)
def folder(kubernetes):
    """The job's folder: the project's is a home directory in these tests."""
    (kubernetes.project / "job").mkdir()


def nothing_is_left(kubernetes):
    return not any(kubernetes.api.names(kind) for kind in KINDS) and create().names() == []


def test_kuberay_is_told_the_job_and_nothing_is_left(kubernetes):
    seen = []

    def program(_entrypoint, say):
        (job_id,) = kubernetes.jobs.jobs
        seen.append((job_id, kubernetes.api.one("rayclusters"), kubernetes.api.one("secrets")))
        # Its time for a job to come is over only when KubeRay has seen the cluster ready.
        assert kubernetes.api.one("rayjobs")["status"]["jobDeploymentStatus"] == "Waiting"
        say("ran")

    kubernetes.jobs.program = program
    patched = []
    patch = kubernetes.api.patch
    kubernetes.api.patch = lambda path, body: (patched.append((path, body)), patch(path, body))[1]
    done = run(*RUN)
    assert (done.exit_code, done.stdout) == (0, "ran\n"), done.stderr
    ((job_id, cluster, secret),) = seen
    assert cluster["metadata"]["name"] == "mine-x7k2p"
    assert cluster["spec"]["authOptions"] == {"mode": "token", "secretName": "mine-token"}
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "RayJob"
    assert patched == [(JOB, {"spec": {"jobId": job_id}})]
    assert nothing_is_left(kubernetes)


def test_only_where_it_is_to_run_is_a_cluster_of_its_name_looked_for(kubernetes):
    kubernetes.api.add("/api/v1/namespaces/ml", {"metadata": {"name": "ml"}})
    done = run("run", "mine", "--namespace", "ml", *RUN[2:])
    assert done.exit_code == 0, done.stderr
    assert not [path for _, path in kubernetes.api.seen if "/default/" in path]


def test_the_secret_of_a_cluster_that_came_since_is_left_to_it(kubernetes, monkeypatch):
    """A `run` was killed before it made anything; another machine's `up` has the names now."""
    record = job_clusters.unnamed(placing.placed(stacks.load("mine"))[1])
    create().records.write(record, stacks.load("mine"))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        assert run("up", "mine").exit_code == 0
    run("down", "mine")
    assert kubernetes.api.names("secrets") == ["mine-token"]
    assert kubernetes.api.names("rayclusters") == ["mine"]


def test_the_job_waits_for_one_that_is_submitted_here_and_ends_its_cluster(kubernetes, monkeypatch):
    made = []
    waiting = rayjob.waiting
    monkeypatch.setattr(rayjob, "waiting", lambda stack: made.append(waiting(stack)) or made[-1])
    kubernetes.write(f"{FILE}  sunspot:kubernetes: {{gcs_fault_tolerance: {{}}}}\n")
    assert run(*RUN).exit_code == 0
    ((one,),) = made
    spec = one["spec"]
    assert (spec["submissionMode"], spec["shutdownAfterJobFinishes"]) == ("InteractiveMode", True)
    assert spec["ttlSecondsAfterFinished"] > 0  # the end of its output is read meanwhile
    assert spec["preRunningDeadlineSeconds"] == 3600
    # A state that outlives the head is of no use to one job, and its claim would be left.
    assert "gcsFaultToleranceOptions" not in spec["rayClusterSpec"]
    assert kubernetes.api.names("persistentvolumeclaims") == []


@pytest.mark.parametrize("when", ["before it is named", "after"])
def test_what_an_interrupt_leaves_is_taken_down(kubernetes, monkeypatch, when):
    made = job_clusters.wait_for_cluster

    def interrupted(record, progress):
        if when == "after":
            made(record, progress)
        raise KeyboardInterrupt

    monkeypatch.setattr(job_clusters, "wait_for_cluster", interrupted)
    failed(130, *RUN)
    assert nothing_is_left(kubernetes)


@pytest.fixture
def killed_run(kubernetes, monkeypatch):
    """A run that was killed before it knew its cluster's name, and took nothing down."""

    def end(*_):
        raise SystemExit

    with monkeypatch.context() as killed:
        killed.setattr(job_clusters, "wait_for_cluster", end)
        killed.setattr(
            "sunspot.targets.kubernetes.target.KubernetesTarget._remove", lambda *_: None
        )
        run(*RUN)
    assert kubernetes.api.names("rayjobs") == ["mine"]


@pytest.mark.usefixtures("killed_run")
@pytest.mark.parametrize("machine", ["state", "other"])
def test_down_takes_what_a_killed_run_left(kubernetes, monkeypatch, machine):
    monkeypatch.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / machine))
    for command in (RUN, ("up", "mine")):
        assert "is the cluster of a `sunspot run`: wait for its end" in failed(2, *command)
    # It costs as long as it is there.
    nodes = json.loads(run("status", "mine", "--json").stdout)["nodes"]
    assert [one["name"] for one in nodes] == ["head", "mine-x7k2p-workers-0"]
    assert run("down", "mine").exit_code == 0
    assert nothing_is_left(kubernetes)


@pytest.mark.usefixtures("killed_run")
@pytest.mark.parametrize("machine", ["state", "other"])
def test_the_next_run_removes_what_kuberay_left_of_a_killed_one(kubernetes, monkeypatch, machine):
    job = kubernetes.api.one("rayjobs")
    job["status"]["jobDeploymentStatus"] = "Complete"
    monkeypatch.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / machine))
    # Until it has taken the cluster down, the output of the job may be read.
    for command in (RUN, ("up", "mine")):
        assert "KubeRay takes it down soon after its command has ended" in failed(2, *command)
    kubernetes.api.delete(f"{CLUSTERS}/{job['status']['rayClusterName']}", {})
    job["status"] |= {"jobStatus": "FAILED", "message": "exit code 9"}
    assert "soon after" not in (said := failed(1, "jobs", "--stack", "mine"))
    assert "its command had ended (FAILED: exit code 9)" in said
    assert run(*RUN).exit_code == 0
    assert nothing_is_left(kubernetes)


@pytest.mark.usefixtures("killed_run")
def test_down_leaves_what_another_machine_has_made_of_that_name_since(kubernetes, monkeypatch):
    job = kubernetes.api.one("rayjobs")
    job["status"]["jobDeploymentStatus"] = "Complete"
    kubernetes.api.delete(f"{CLUSTERS}/{job['status']['rayClusterName']}", {})
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        assert run("up", "mine").exit_code == 0
    done = run("down", "mine")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "'mine' of another command (take it down, too: sunspot down mine)" in said
    assert [kubernetes.api.names(kind) for kind in KINDS[1:3]] == [["mine"], ["mine-token"]]
    assert len(kubernetes.api.names("pods")) == 2
    assert run("down", "mine").exit_code == 0
    assert nothing_is_left(kubernetes)


def test_up_of_a_stack_whose_own_cluster_is_gone_takes_to_the_one_that_is_there(
    kubernetes, monkeypatch
):
    assert run("up", "mine").exit_code == 0
    kubernetes.api.delete(f"{CLUSTERS}/mine", {})
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        assert run("up", "mine").exit_code == 0
    assert "mine is up already" in run("up", "mine").stdout
    assert "kept" not in run("down", "mine").stderr
    assert nothing_is_left(kubernetes)


@pytest.mark.usefixtures("killed_run")
def test_what_is_gone_starts_anew(kubernetes):
    kubernetes.api.delete(JOB, {})
    assert run(*RUN).exit_code == 0
    assert nothing_is_left(kubernetes)


def test_without_an_operator_it_says_so(kubernetes, monkeypatch):
    monkeypatch.setattr(job_clusters, "OPERATOR_PATIENCE_S", 0.1)
    kubernetes.api._begin_job = lambda *_: None
    assert "has made no cluster of the RayJob mine" in failed(1, *RUN)
    assert nothing_is_left(kubernetes)


def test_a_cluster_that_kuberay_does_not_see_ready_gets_no_job(kubernetes, monkeypatch):
    monkeypatch.setattr(job_clusters, "SEEN_PATIENCE_S", 0.1)
    kubernetes.api.sees_after_reads = None
    assert "has not seen the cluster of the RayJob mine ready" in failed(1, *RUN)
    assert kubernetes.jobs.jobs == {}
    assert nothing_is_left(kubernetes)


@pytest.mark.usefixtures("killed_run")
@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"jobDeploymentStatus": "Failed"}, "it saw that no command had been submitted to it"),
        ({"jobDeploymentStatus": "ValidationFailed", "message": "odd"}, "refuses the RayJob mine"),
        (None, "the RayJob 'mine' of 'mine' is gone"),
        ({}, "the RayCluster of 'mine' is gone"),
    ],
)
def test_what_became_of_it_is_told(kubernetes, status, said):
    job = kubernetes.api.one("rayjobs")
    kubernetes.api.delete(f"{CLUSTERS}/{job['status']['rayClusterName']}", {})
    if status is None:
        kubernetes.api.delete(JOB, {})
    else:
        job["status"] |= status
    told = failed(1, "jobs", "--stack", "mine")
    assert said in told
    assert "sunspot up" not in told
    run("down", "mine")


def test_a_run_that_comes_back_late_leaves_another_commands_cluster(kubernetes):
    assert run("up", "mine").exit_code == 0
    assert create().for_one_job().down("mine", print) is None
    assert kubernetes.api.names("rayclusters") == ["mine"]
    assert run("down", "mine").exit_code == 0
    assert nothing_is_left(kubernetes)


def test_another_machines_run_is_left_alone(kubernetes):
    kubernetes.api.add(JOB, {"metadata": {"name": "mine"}})
    said = failed(2, *RUN)
    assert "has a RayJob 'mine' already" in said
    assert kubernetes.api.names("rayjobs") == ["mine"]
    assert create().names() == []


def test_the_rights_for_it_are_asked_for(kubernetes):
    kubernetes.api.forbidden.add(("create", "rayjobs"))
    said = failed(2, *RUN)
    assert "you may not create rayjobs.ray.io in namespace default" in said
    assert run("up", "mine").exit_code == 0  # which needs none of them
    assert json.loads(run("status", "mine", "--json").stdout)["nodes"]
    run("down", "mine")
