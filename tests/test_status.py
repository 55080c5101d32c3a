"""The state of a cluster: as tables, as JSON, and asked of a target and a job API."""

import io
import json
import os
import re
from dataclasses import replace

import pytest
from fake_target import FakeTarget
from job_api import serving
from local_stacks import WORKERS, stack, write
from rich.console import Console

from sunspot import status
from sunspot.errors import SunspotError
from sunspot.node.events import Event
from sunspot.node.notices import Notice
from sunspot.node.processes import Process
from sunspot.ray.demand import Waiting
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.jobs import Job
from sunspot.status import Status
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.protocol import HourlyCost, NodeStatus, silent


def node(name, state="up", **fields):
    defaults = {"group": "workers", "market": "spot", "cpus": 2, "gpus": 0, "memory_gb": 8.0}
    return NodeStatus(**{**defaults, **fields, "name": name, "state": state})


def job(job_id, state="SUCCEEDED", **fields):
    defaults = {"ray_id": "", "entrypoint": "python x.py", "message": "", "exit_code": 0}
    return Job(
        **{**defaults, "started": 10.0, "ended": 12.5, **fields, "id": job_id, "status": state}
    )


@pytest.fixture
def handle(tmp_path):
    return ClusterHandle(
        name="dev",
        target="local",
        head_address="127.0.0.1:6379",
        driver_address=None,
        job_address="http://127.0.0.1:8265",
        token_path=tmp_path / "token",
    )


def printed(found, width=100):
    out = io.StringIO()
    status.show(found, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def rows(text):
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_services_are_shown_without_the_token_of_their_link(handle):
    links = {"Grafana": "http://127.0.0.1:3000", "Jupyter": "http://127.0.0.1:8888/lab?token=abc"}
    found = Status(name="dev", handle=replace(handle, monitoring=links), nodes=[])
    assert "Grafana    http://127.0.0.1:3000" in printed(found)
    assert f"Dashboard  {handle.job_address}" in printed(found)
    assert "Dashboard" not in printed(replace(found, handle=handle))
    assert "abc" not in printed(found)
    assert status.to_json(found)["services"] == {
        "Grafana": "http://127.0.0.1:3000",
        "Jupyter": "http://127.0.0.1:8888/lab",
    }


def test_nodes_are_a_table_with_what_is_in_use(handle):
    found = Status(
        name="dev",
        handle=handle,
        nodes=[
            node("head", group="head", market="on-demand"),
            node("gpu-0", gpus=4, cpus=0.5, group="gpu"),
            node("workers-0", "draining"),
        ],
        used={"head": {"CPU": 1.5}, "gpu-0": {"CPU": 0.5, "GPU": 2.0}},
    )
    text = printed(found)
    assert rows(text)[:5] == [
        ["dev · local · 127.0.0.1:6379"],
        ["node", "group", "market", "state", "CPUs", "GPUs", "GiB"],
        ["head", "head", "on-demand", "up", "1.5/2", "-", "8"],
        ["gpu-0", "gpu", "spot", "up", "0.5/0.5", "2/4", "8"],
        ["workers-0", "workers", "spot", "draining", "0/2", "-", "8"],
    ]
    assert "no jobs yet" in text
    assert "lost" not in text


def test_a_lost_node_shows_the_end_of_its_log(handle):
    found = Status(
        name="dev",
        handle=handle,
        nodes=[
            node("head"),
            node("workers-0", "lost", log="step [1/2]\nevicted [red]"),
            node("workers-1", "lost"),
        ],
    )
    text = printed(found)
    assert "workers-0 is lost. The end of its log:\nstep [1/2]\nevicted [red]\n" in text
    assert "workers-1 is lost. The end of its log:\n(empty)\n" in text


def test_what_happened_to_a_node_is_shown(handle):
    found = Status(name="dev", handle=handle, nodes=[node("head", notes=("12:00 it [hiccuped]",))])
    assert "head: 12:00 it [hiccuped]\n" in printed(found)


def test_a_lost_heads_log_is_told_once_by_the_problem():
    found = Status(
        name="dev",
        handle=None,
        nodes=[node("head", "lost", group="head", log="it hurt")],
        problem="it hurt",
    )
    text = printed(found)
    assert text.startswith("dev\n")
    assert "it hurt" not in text
    assert "no jobs yet" not in text


@pytest.mark.parametrize("state", ["starting", "up", "draining", "lost"])
def test_every_state_of_a_node_can_be_shown(state):
    assert state in printed(Status(name="dev", handle=None, nodes=[node("x", state)]))


def test_jobs_are_a_table_and_only_some_of_them():
    jobs = [job(f"job-{n}") for n in range(status.SHOWN_JOBS + 2)]
    text = printed(Status(name="dev", handle=None, nodes=[], jobs=jobs))
    assert [f"job-{n}" in text for n in range(len(jobs))] == [True] * status.SHOWN_JOBS + [
        False
    ] * 2


def test_a_jobs_row_tells_state_seconds_and_command():
    out = io.StringIO()
    console = Console(file=out, width=100, highlight=False)
    jobs = [
        job("a", entrypoint="python x.py '[bold]'"),
        job("b", "PENDING", started=None, ended=None),
        job("c", "FAILED", started=1.0, ended=1.25),
        job("[red]d", "STOPPED"),
    ]
    console.print(status.job_table(jobs))
    assert rows(out.getvalue()) == [
        ["job", "state", "seconds", "command"],
        ["a", "SUCCEEDED", "2.5", "python x.py '[bold]'"],
        ["b", "PENDING", "python x.py"],
        ["c", "FAILED", "0.2", "python x.py"],
        ["[red]d", "STOPPED", "2.5", "python x.py"],
    ]


def test_json_has_everything_and_is_json(handle):
    found = Status(
        name="dev",
        handle=handle,
        nodes=[node("head"), node("workers-0", "lost", log="evicted")],
        jobs=[job("a", "FAILED", exit_code=3, message="it broke")],
        used={"head": {"CPU": 1.0}},
        problem=None,
    )
    data = status.to_json(found)
    assert json.loads(json.dumps(data)) == data
    assert {key: data[key] for key in ("name", "target", "head_address", "job_address")} == {
        "name": "dev",
        "target": "local",
        "head_address": "127.0.0.1:6379",
        "job_address": "http://127.0.0.1:8265",
    }
    head, worker = data["nodes"]
    assert head == {
        "name": "head",
        "group": "workers",
        "market": "spot",
        "state": "up",
        "cpus": 2,
        "gpus": 0,
        "memory_gb": 8.0,
        "log": "",
        "notes": [],
        "used": {"CPU": 1.0},
    }
    assert (worker["state"], worker["log"], worker["used"]) == ("lost", "evicted", {})
    assert data["jobs"] == [status.job_to_json(found.jobs[0])]
    assert (data["jobs"][0]["exit_code"], data["jobs"][0]["message"]) == (3, "it broke")
    assert data["problem"] is None


def test_what_jobs_wait_for_is_shown_and_what_can_never_come(handle):
    tasks = Waiting(kind="task", name="f", job="02", bundles=({"CPU": 1.0},), count=3)
    train = Waiting(kind="placement group", name="[x]", job="03", bundles=({"GPU": 2.0},) * 2)
    found = Status(
        name="dev",
        handle=handle,
        nodes=[node("head")],
        jobs=[job("mine-1", "RUNNING", ray_id="02")],
        waiting=[(tasks, None), (train, "GPU: asked 2, ...")],
    )
    text = printed(found)
    assert "waiting for free CPUs: 3 tasks 'f' of {CPU: 1} of job mine-1" in text
    assert "can never run: a placement group '[x]' of 2 x {GPU: 2} of job 03. GPU: asked 2" in text
    data = status.to_json(found)
    assert json.loads(json.dumps(data)) == data
    assert [(one["name"], one["count"], one["never"]) for one in data["waiting"]] == [
        ("f", 3, None),
        ("[x]", 1, "GPU: asked 2, ..."),
    ]


def test_of_much_that_waits_what_can_never_run_is_shown_first_and_the_rest_counted(handle):
    ask = [Waiting(kind="actor", name=f"a{n}", job="02", bundles=({"CPU": 1.0},)) for n in range(9)]
    waiting = [*((one, None) for one in ask[:-1]), (ask[-1], "CPU: asked 1, ...")]
    text = printed(Status(name="dev", handle=handle, nodes=[node("head")], waiting=waiting))
    assert text.index("'a8'") < text.index("'a0'")
    assert text.count("an actor") == status.SHOWN_WAITING
    assert f"{9 - status.SHOWN_WAITING} more" in text


def test_json_of_a_dead_cluster_has_the_problem_and_no_addresses():
    data = status.to_json(Status(name="dev", handle=None, nodes=[], problem="the head is dead"))
    assert (data["target"], data["head_address"], data["job_address"]) == (None, None, None)
    assert (data["problem"], data["jobs"]) == ("the head is dead", [])


# Asked of a target and a job API


@pytest.fixture
def target(tmp_path):
    return LocalTarget(tmp_path / "clusters")


@pytest.fixture
def cluster(target):
    """A cluster that is up as far as its records say, with a job API that answers."""
    with serving() as (api, port):
        folder = write(target.clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
        folder.update_cluster(dashboard_port=port)
        folder.token.write_text(api.token)
        folder.record_process("head", Process.current())
        yield api, folder


def test_collect_joins_what_the_target_and_ray_say(target, cluster):
    api, _ = cluster
    api.add("mine", "RUNNING", start_time=1_000)
    api.summary = {
        "summary": [{"raylet": {"nodeId": "ab", "nodeName": "head"}}],
        "nodeLogicalResources": {"ab": "1.0/2.0 CPU\n0B/4.00GiB memory", "gone": "1.0/1.0 CPU"},
    }
    found = status.collect(target, "dev")
    assert found.problem is None
    assert [(one.name, one.state) for one in found.nodes] == [("head", "up")]
    assert [one.id for one in found.jobs] == ["mine"]
    assert found.used == {"head": {"CPU": 1.0}}
    assert found.handle == target.handle("dev")


def test_collect_of_a_dead_head_has_its_nodes_and_the_problem(target, cluster):
    _, folder = cluster
    folder.record_process("head", Process(pid=os.getpid(), start_time=1.0))
    found = status.collect(target, "dev")
    assert (found.handle, found.jobs) == (None, [])
    assert [one.state for one in found.nodes] == ["lost"]
    assert "the head of 'dev' is dead" in (found.problem or "")


def test_collect_of_a_silent_job_api_has_the_handle_and_the_problem(target, cluster):
    api, _ = cluster
    api.answers["GET", "/api/jobs/"] = (500, "RuntimeError: the GCS is gone")
    found = status.collect(target, "dev")
    assert found.handle == target.handle("dev")
    assert found.problem == "RuntimeError: the GCS is gone"
    assert [one.name for one in found.nodes] == ["head"]


def test_collect_says_what_jobs_wait_for_by_the_clusters_stack(target, cluster):
    api, _ = cluster
    waits = {"name": "", "creator_job_id": "02", "state": "PENDING"}
    bundles = ({"GPU": 1.0}, {"CPU": 1.0})
    api.state["placement_groups"] = [
        waits | {"bundles": [{"unit_resources": bundle}]} for bundle in bundles
    ]
    found = status.collect(target, "dev").waiting
    assert [(asked.bundles, never is None) for asked, never in found] == [
        (({"GPU": 1.0},), False),
        (({"CPU": 1.0},), True),
    ]


def test_a_state_api_that_is_away_keeps_back_nothing_else(target, cluster):
    api, _ = cluster
    api.add("mine", "RUNNING", start_time=1_000)
    api.answers["GET", "/api/v0/tasks"] = (500, "no data source")
    found = status.collect(target, "dev")
    assert (found.problem, found.waiting) == (None, [])
    assert [job.id for job in found.jobs] == ["mine"]


def test_what_cannot_be_asked_is_a_problem_in_the_answer(tmp_path):
    """As of a head on Azure that no SSH reaches: its nodes cannot be listed either."""

    class Unreachable(FakeTarget):
        def nodes(self, name, progress=silent):  # noqa: ARG002
            raise SunspotError("no SSH to the head")

    found = status.collect(Unreachable(tmp_path / "token"), "dev")  # type: ignore[arg-type]
    assert (found.nodes, found.problem) == ([], "no SSH to the head")
    assert json.loads(json.dumps(status.to_json(found)))["problem"] == "no SSH to the head"


def test_what_the_cluster_costs_is_shown_where_the_target_knows_it(handle):
    cost = HourlyCost(machines=0.25, others=0.06, price_unknown=("Standard_X",), prices="a list")
    found = Status(name="dev", handle=handle, nodes=[node("h", group="head")], cost=cost)
    text = printed(found)
    for part in ("0.310 USD an hour", "machines 0.250", "Standard_X", "0.060", "a list"):
        assert part in text
    assert status.to_json(found)["cost"]["others"] == 0.06
    free = Status(name="dev", handle=handle, nodes=[])
    assert "USD" not in printed(free)
    assert status.to_json(free)["cost"] is None


def test_collect_reads_the_groups_and_the_record(target, cluster):
    _, folder = cluster
    folder.events.add(Event(kind="evicted", group="workers", node="workers-0"))
    folder.events.add(Event(kind="evicted", group="workers", node="workers-0", time=1.0))
    folder.notices.put(Notice(about="idle", text="idle soon"))
    found = status.collect(target, "dev")
    assert [(one.name, one.minimum, one.maximum, one.now) for one in found.groups] == [
        ("workers", 0, 4, {})
    ]
    assert found.past is not None
    assert [one.text for one in found.past.notices] == ["idle soon"]
    assert found.past.evicted == {"workers": 1}
    assert found.past.spent == {}
