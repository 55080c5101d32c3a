"""`sunspot report`: which of a cluster's tasks and events its page shows."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from demo_runs import NODE

from sunspot import cluster_report
from sunspot.errors import SunspotError
from sunspot.node.events import Event
from sunspot.ray.jobs import Job
from sunspot.report import NodeMark, core_limit, page
from sunspot.targets.history import Recorded
from sunspot.targets.protocol import NodeStatus

NOW = 100.0
EVENTS = [
    Event(kind="joined", group="workers", node="workers-0", time=1.0),
    Event(kind="evicted", group="workers", node="workers-0", time=5.0),
    Event(kind="replaced", group="workers", node="workers-0", time=5.5),
    Event(kind="drained", group="workers", node="workers-0", time=8.0),
    Event(kind="joined", group="workers", node="workers-1", time=9.0),
    Event(kind="lost", group="workers", node="workers-1", time=90.0),
]


def task(**fields):
    """A finished task as Ray's state API has it in full, as far as we read it."""
    return {
        "name": "nap",
        "type": "NORMAL_TASK",
        "state": "FINISHED",
        "job_id": "01000000",
        "node_id": "ab",
        "worker_pid": 4711,
        "start_time_ms": 2_000,
        "end_time_ms": 3_500,
        **fields,
    }


def job(number, **fields):
    given = {
        "id": f"nap-{number}",
        "ray_id": f"0{number}000000",
        "status": "SUCCEEDED",
        "entrypoint": "python nap.py",
        "message": "",
        "exit_code": 0,
        "started": 1.0,
        "ended": 4.0,
    }
    return Job(**given | fields)


@dataclass
class Client:
    """Ray's jobs, the newest first, and its tasks."""

    jobs: list[Job]
    tasks: list[dict[str, Any]]

    def list(self):
        return self.jobs

    def get(self, job_id):
        return next(one for one in self.jobs if one.id == job_id)

    def state(self, kind, **filters):
        if kind == "nodes":
            return [NODE]
        return [one for one in self.tasks if filters.items() <= one.items()]


@dataclass
class Target:
    """A cluster of a head, whose worker has gone."""

    name: str = "local"
    happened: list[Event] = field(default_factory=lambda: EVENTS)

    def handle(self, _name, _progress):
        return None

    def nodes(self, _name):
        return [
            NodeStatus(
                name="head",
                group="head",
                market="on-demand",
                state="up",
                cpus=200.0,
                gpus=0,
                memory_gb=4,
            )
        ]

    def recorded(self, _name):
        return Recorded(events=self.happened)


@pytest.fixture
def collect(monkeypatch):
    """The report of a cluster with these tasks."""
    monkeypatch.setattr(cluster_report.time, "time", lambda: NOW)

    def made(tasks, *, jobs=None, job_id=None, target=None):
        client = Client(jobs or [job(1)], tasks)
        monkeypatch.setattr(cluster_report, "JobClient", lambda _handle: client)
        return cluster_report.collect(target or Target(), "dev", job_id)  # type: ignore[arg-type]

    return made


# Tasks


def test_a_span_is_the_task_where_and_when_it_ran(collect):
    (span,) = collect([task()]).spans
    assert (span.workload, span.name, span.worker) == ("nap-1", "nap", 4711)
    assert (span.node, span.group, span.market) == ("workers-0", "workers", "spot")
    assert (span.start, span.end, span.failed) == (2.0, 3.5, False)


def test_a_failed_attempt_is_a_failed_span():
    assert cluster_report.span(task(state="FAILED"), "nap-1", NODE).failed


@pytest.mark.parametrize("labels", [{}, None])
def test_a_node_without_our_labels_has_a_span_all_the_same(labels):
    span = cluster_report.span(task(), "nap-1", NODE | {"labels": labels})
    assert (span.node, span.group, span.market) == ("workers-0", "", "")


def test_what_still_runs_is_drawn_up_to_now(collect):
    (span,) = collect([task(state="RUNNING", end_time_ms=None)]).spans
    assert (span.start, span.end) == (2.0, NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"start_time_ms": None, "end_time_ms": None},  # it waits
        {"node_id": None},
        {"node_id": "cd"},  # a node that Ray has forgotten
    ],
)
def test_what_cannot_be_drawn_is_left_out(collect, fields):
    assert len(collect([task(), task(**fields)]).spans) == 1


def test_a_driver_that_is_not_a_job_has_its_own_colour(collect):
    made = collect([task(), task(job_id="07000000")])
    assert made.workloads == ["nap-1", "driver 07000000"]
    assert [(row.workload, row.tasks, row.seconds) for row in made.results] == [
        ("nap-1", 1, 3.0),
        ("driver 07000000", 1, 1.5),
    ]
    assert made.tasks == 2


def test_a_part_of_the_tasks_is_not_called_all_of_them(collect, monkeypatch):
    assert "a part of them" not in page.page(collect([task()]))
    monkeypatch.setattr(cluster_report, "STATE_LIMIT", 2)
    assert "a part of them" in page.page(collect([task(), task()]))


def test_only_the_tasks_of_the_job_that_is_asked_for(collect):
    both = [task(), task(job_id="02000000")]
    made = collect(both, jobs=[job(2), job(1)], job_id="nap-2")
    assert [span.workload for span in made.spans] == ["nap-2"]


@pytest.mark.parametrize(
    ("jobs", "job_id", "told"),
    [
        ([job(1)], None, "Ray has no task yet"),
        ([job(1)], "nap-1", "no task of job 'nap-1' yet"),
        ([job(1, ray_id="")], "nap-1", "no task of job 'nap-1' yet"),
    ],
)
def test_a_report_of_nothing_is_an_error(collect, jobs, job_id, told):
    with pytest.raises(SunspotError, match=told):
        collect([], jobs=jobs, job_id=job_id)


# Jobs


def test_jobs_are_rows_the_oldest_first(collect):
    made = collect([task(job_id="02000000"), task(), task()], jobs=[job(2, ended=None), job(1)])
    first, second = made.results
    assert (first.workload, first.tasks, first.seconds) == ("nap-1", 2, 3.0)
    assert first.summary == "SUCCEEDED: python nap.py"
    assert (second.workload, second.seconds) == ("nap-2", NOW - 1)


def test_a_job_without_a_task_has_no_row(collect):
    assert [row.workload for row in collect([task()], jobs=[job(2), job(1)]).results] == ["nap-1"]


# Nodes


def test_events_are_marks(collect):
    # Not what happened before the first task.
    assert collect([task()]).marks == [
        NodeMark(node="workers-0", label="eviction notice", time=5.0),
        NodeMark(node="workers-0", label="left", time=8.0),
        NodeMark(node="workers-1", label="joined", time=9.0),
        NodeMark(node="workers-1", label="lost", time=90.0),
    ]


def test_the_report_of_a_job_ends_with_its_last_task(collect):
    made = collect([task(), task(end_time_ms=6_000)], job_id="nap-1")
    assert [mark.label for mark in made.marks] == ["eviction notice"]


def test_nodes_that_were_there_from_the_start_did_not_join():
    found = cluster_report.marks(Target(), "dev", until=NOW, from_the_start={"workers-0"})  # type: ignore[arg-type]
    assert [mark.node for mark in found if mark.label == "joined"] == ["workers-1"]


def test_a_target_without_a_record_of_events_has_no_marks():
    assert cluster_report.marks(object(), "dev", until=NOW) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("target", "limited"), [("local", True), ("azure", False)])
def test_only_on_this_machine_do_its_cores_limit_the_cluster(collect, target, limited):
    made = collect([task()], target=Target(name=target))
    assert (core_limit(made) is not None) is limited


def test_the_page_does_not_speak_of_a_single_worker(collect):
    text = page.page(collect([task()]))
    assert "SUCCEEDED: python nap.py" in text
    assert "on one worker" not in text
