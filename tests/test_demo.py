"""The demo: which of Ray's task records become spans of the report, and the stack it runs."""

import pytest
from demo_runs import NODE, finished

from sunspot import demo
from sunspot import stack as stacks
from sunspot.report import WorkloadResult

WORKLOADS = {"01000000": "primes", "02000000": "pi"}


def task(**fields):
    """A finished task as Ray's state API has it in full, as far as we read it."""
    return {
        "task_id": "c8ef",
        "attempt_number": 0,
        "name": "primes",
        "func_or_class_name": "primes",
        "type": "NORMAL_TASK",
        "state": "FINISHED",
        "job_id": "01000000",
        "node_id": "ab",
        "worker_id": "cd",
        "worker_pid": 4711,
        "error_type": None,
        "creation_time_ms": 1_000,
        "start_time_ms": 2_000,
        "end_time_ms": 3_500,
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, True),
        ({"state": "FAILED"}, True),
        ({"name": "pi", "job_id": "02000000"}, True),
        ({"name": "warm_up"}, False),
        ({"name": "one_worker"}, False),
        ({"name": "pi"}, False),  # another workload's name
        ({"job_id": "03000000"}, False),  # a job that is none of the demo's
        ({"end_time_ms": None, "state": "RUNNING"}, False),
        ({"start_time_ms": None, "end_time_ms": None}, False),
        ({"start_time_ms": None, "state": "FAILED"}, False),  # failed before it ran
    ],
)
def test_only_finished_tasks_of_a_workload_are_shown(fields, shown):
    assert demo._is_shown(task(**fields), WORKLOADS) is shown


def test_a_record_without_times_is_not_shown():
    record = task()
    del record["start_time_ms"], record["end_time_ms"]
    assert demo._is_shown(record, WORKLOADS) is False


class Client:
    """Answers as JobClient.state does; the tasks come in slowly, as from Ray."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def state(self, kind):
        if kind == "nodes":
            return [NODE]
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def run(tasks):
    result = WorkloadResult(
        workload="primes",
        tasks=tasks,
        nodes=1,
        workers=1,
        seconds=1.0,
        one_worker_seconds=None,
        summary="",
    )
    return finished(result)


def test_spans_are_read_until_all_tasks_are_recorded(monkeypatch):
    monkeypatch.setattr(demo, "POLL_INTERVAL_S", 0.001)
    client = Client([], [task(), task(name="warm_up")], [task(), task(), task(name="warm_up")])
    spans = demo._spans(client, [run(2)])  # type: ignore[arg-type]
    assert len(spans) == 2
    assert client.asked == 3


def test_tasks_that_are_never_recorded_are_not_waited_for_long(monkeypatch):
    monkeypatch.setattr(demo, "POLL_INTERVAL_S", 0.001)
    monkeypatch.setattr(demo, "TASK_EVENTS_TIMEOUT_S", 0.05)
    spans = demo._spans(Client([task()]), [run(2)])  # type: ignore[arg-type]
    assert len(spans) == 1


def test_the_demo_runs_every_worker_under_a_name_of_its_own(request):
    loaded = stacks.load(demo.STACK, request.config.rootpath)
    full = demo._with_all_workers(loaded)
    assert full.name == demo.NAME != loaded.name
    for before, after in zip(
        loaded.cluster.scaling_groups, full.cluster.scaling_groups, strict=True
    ):
        assert after.min_workers == after.max_workers == before.max_workers
    assert full.cluster.head_node == loaded.cluster.head_node


@pytest.mark.parametrize("name", demo.WORKLOADS)
def test_every_workload_of_the_demo_is_there(request, name):
    assert (request.config.rootpath / "workloads" / f"{name}.py").is_file()
