"""`kill -9` of each kind of process of a running cluster in turn."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest
from cut_off import Installed
from ending import name_of, words_of
from fault_clusters import GONE_S, OWN, SHARED, Clusters
from fault_table import AFTER_DOWN, AS_IT_WAS, Row
from harness import FOREVER
from waiting import wait_for

from sunspot.node.local.folder import HEAD

Record = Callable[[Row], None]

KILL = "`kill -9`"
RAYLET = "raylet was killed by signal 9"
START = "`ray start`, was killed"

# A raylet exits with code 0 when one of its two agents has ended (src/ray/raylet/main.cc, 2.60), so
# one of them is killed on a worker and the other on the head.
AGENT = "raylet exited with code 0"
# What `status` says of the node.
OF_A_WORKER = {"raylet": RAYLET, "ray start": START, "ray::DashboardAgent": AGENT}
OF_THE_HEAD = {
    "gcs_server": "gcs_server was killed by signal 9",
    "raylet": RAYLET,
    "ray start": START,
    "ray::RuntimeEnvAgent": AGENT,
}
RESTARTED = ("dashboard.py", "monitor.py", "log_monitor.py")


@pytest.mark.parametrize("kind", OF_A_WORKER)
def test_of_a_worker(sunspot: Installed, clusters: Clusters, kind: str, record: Record):
    clusters.share()
    (worker,) = clusters.workers()
    clusters.process(worker.name, kind).kill()
    wait_for("its end", lambda: worker.name not in names(clusters))
    told = sunspot.cut("status", SHARED)
    assert told.troubles() == []
    assert f"{worker.name} is lost" in told.out
    assert OF_A_WORKER[kind] in told.out, told.out
    wait_for("another worker", clusters.workers)
    wait_for("the same processes", clusters.shared_is)
    left = "the cluster with another worker in its place"
    record(Row(fault=KILL, to=f"{kind} of a worker", code="", says=OF_A_WORKER[kind], left=left))


def names(clusters: Clusters) -> list[str]:
    return [node.name for node in clusters.workers()]


@pytest.mark.parametrize("kind", ["driver", "ray::JobSupervisor"])
def test_of_a_job(sunspot: Installed, clusters: Clusters, kind: str, record: Record):
    before = clusters.share()
    name = f"killed-{kind.strip('ray:').lower()}"
    with sunspot.begun("submit", "--name", name, "--", *FOREVER) as submit:
        wait_for("the job to begin", lambda: "begun" in submit.printed())
        job_process(clusters, kind).kill()
        ended = submit.to_its_end()
    assert ended.troubles() == []
    assert f"job {name} FAILED" in ended.error
    cause = "signal 9 (SIGKILL)" if kind == "driver" else "supervisor"
    assert cause in ended.error
    assert ended.code == (137 if kind == "driver" else 1)
    assert clusters.changes(before) == []
    says = f"job FAILED: {cause}"
    record(Row(fault=KILL, to=f"{kind} of a job", code=str(ended.code), says=says, left=AS_IT_WAS))


def job_process(clusters: Clusters, wanted: str) -> psutil.Process:
    """A job's supervisor, or its driver: the program itself, not the shell that started it."""
    found = clusters.job_processes()
    if wanted == "driver":
        return next(p for p in found if name_of(p).startswith("python"))
    return next(p for p in found if any(word.startswith(wanted) for word in words_of(p)))


@pytest.mark.parametrize("kind", RESTARTED)
def test_of_the_head_and_restarted(
    sunspot: Installed, clusters: Clusters, kind: str, record: Record
):
    clusters.share()
    killed = clusters.process(HEAD, kind)
    killed.kill()
    wait_for("its end", lambda: not killed.is_running())
    wait_for("the same processes", clusters.shared_is)
    wait_for("the cluster to answer", lambda: sunspot.cut("status", SHARED).code == 0)
    told = sunspot.cut("status", SHARED)
    assert "was started again" in told.out
    assert sunspot.cut("submit", "--", "true").code == 0
    left = "the cluster, in which it was restarted"
    record(Row(fault=KILL, to=f"{kind} of the head", code="", says="was started again", left=left))


def cluster_to_end(sunspot: Installed, clusters: Clusters, kind: str) -> str:
    """Brings up the cluster whose head is killed; returns its name.

    It has a worker for one kind only: whatever ends a head, its workers lose the GCS.
    """
    if kind == "gcs_server":
        clusters.share()
        return SHARED
    clusters.remove_all()
    sunspot.ok("up", OWN)
    return OWN


@pytest.mark.parametrize("kind", OF_THE_HEAD)
def test_of_the_head(sunspot: Installed, clusters: Clusters, kind: str, record: Record):
    name = cluster_to_end(sunspot, clusters, kind)
    clusters.process(HEAD, kind, of=name).kill()
    wait_for("the head to be lost", lambda: clusters.problem(name))
    told = sunspot.cut("status", name)
    assert told.troubles() == []
    assert told.code == 1
    assert f"sunspot down {name}" in told.error
    first, *more = told.errors[told.errors.index(told.error) :].splitlines()[:3]
    assert OF_THE_HEAD[kind] in " ".join([first, *more])
    assert f"{name} is down" in sunspot.ok("down", name)
    assert clusters.changes(clusters.nothing, within_s=GONE_S) == []
    record(
        Row(fault=KILL, to=f"{kind} of the head", code="", says=OF_THE_HEAD[kind], left=AFTER_DOWN)
    )
