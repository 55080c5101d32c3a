"""What jobs wait for, as Ray's state API tells it, and what can never come."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from job_api import Told

from sunspot.ray import demand
from sunspot.ray.demand import Kind, Waiting
from sunspot.ray.feasibility import NodeType
from sunspot.ray.jobs import Job
from sunspot.ray.resources import GIB
from sunspot.ray.watching import JobWatch

JOB = "02000000"
NIL = "f" * 56

HEAD = NodeType(name="head", resources={"CPU": 2, "memory": 4 * GIB}, groups=("head",))
GPU = NodeType(
    name="group 'gpu'",
    resources={"CPU": 4, "GPU": 1, "memory": 8 * GIB, "accelerator_type:T4": 1},
    most=3,
    groups=("gpu",),
)
TYPES = [HEAD, GPU]


def asks(*bundles, kind: Kind = "placement group"):
    return Waiting(kind=kind, name="", job=JOB, bundles=bundles)


def task(name="f", job=JOB, state="PENDING_NODE_ASSIGNMENT", **fields):
    wants = fields.pop("required_resources", {"CPU": 1.0})
    kind = {"type": "NORMAL_TASK", "required_resources": wants}
    return {"name": name, "job_id": job, "state": state} | kind | fields


def actor(name="", state="PENDING_CREATION", node_id=NIL, **fields):
    wants = {"required_resources": {"CPU": 1.0}, "class_name": "Counter", "node_id": node_id}
    return {"name": name, "job_id": JOB, "state": state} | wants | fields


def group(*bundles, name="", state="PENDING", job=JOB):
    found = [{"bundle_id": {}, "unit_resources": bundle} for bundle in bundles]
    return {"name": name, "creator_job_id": job, "state": state, "bundles": found}


def node(name="head", state="ALIVE", labels=None, **fields):
    has = {"CPU": 2.0, "memory": 4.0 * GIB}
    return {"node_name": name, "state": state, "labels": labels or {}, "resources_total": has} | (
        fields
    )


# What waits


def test_what_waits_for_the_same_is_one_and_the_most_numerous_comes_first(api, client):
    api.state = {
        "tasks": [*[task("f")] * 3, task("g"), task("f", state="RUNNING")],
        "actors": [actor("a")],
        "placement_groups": [group({"CPU": 1.0}, {"CPU": 1.0}), group(state="CREATED")],
    }
    found = demand.waiting(client)
    assert [(one.kind, one.name, one.count) for one in found] == [
        ("task", "f", 3),
        ("task", "g", 1),
        ("actor", "a", 1),
        ("placement group", "", 1),
    ]
    assert [str(one) for one in found] == [
        "3 tasks 'f' of {CPU: 1}",
        "a task 'g' of {CPU: 1}",
        "an actor 'a' of {CPU: 1}",
        "a placement group of 2 x {CPU: 1}",
    ]


def test_what_is_not_read_is_not_called_absent(api, client):
    api.state = {"tasks": [task("f")] * (demand.LIMIT + 1), "actors": [actor("a")] * 2}
    tasks, actors = demand.waiting(client)
    assert str(tasks) == f"{demand.LIMIT} or more tasks 'f' of {{CPU: 1}}"
    assert str(actors) == "2 actors 'a' of {CPU: 1}"


def test_an_actor_without_a_name_has_its_classes(api, client):
    api.state = {"actors": [actor()]}
    assert [one.name for one in demand.waiting(client)] == ["Counter"]


def test_of_one_job_only_what_is_its_own_is_asked_for(api, client):
    api.state = {
        "tasks": [task("f"), task("other", job="03000000")],
        "placement_groups": [group({"GPU": 1.0}, job="03000000")],
    }
    assert [one.name for one in demand.waiting(client, JOB)] == ["f"]
    assert {one.job for one in demand.waiting(client)} == {JOB, "03000000"}


@pytest.mark.parametrize(
    "state",
    [
        {"tasks": [task(required_resources={})]},
        {"tasks": [task(type="ACTOR_TASK")]},
        {"tasks": [task(type="ACTOR_CREATION_TASK")]},
        {"tasks": [task(required_resources={f"CPU_group_0_{'a' * 36}": 1.0})]},
        {"tasks": [task(required_resources={f"bundle_group_{'b' * 36}": 0.001})]},
        {"tasks": [task(required_resources={"node:10.0.0.4": 0.01})]},
        {"actors": [actor(node_id="ab" * 28)]},  # it has its node, and starts there
        {"actors": [actor(state="ALIVE")]},
        {"placement_groups": [group({"object_store_memory": 1.0})]},
    ],
    ids=lambda state: next(iter(state)),
)
def test_what_does_not_wait_for_room_is_left_out(api, client, state):
    api.state = state
    assert demand.waiting(client) == []


def test_ray_lists_a_placement_group_and_an_actor_as_we_read_them():
    common_pb2: Any = import_module("ray.core.generated.common_pb2")  # without types
    gcs_pb2: Any = import_module("ray.core.generated.gcs_pb2")
    from ray.util.state.common import ActorState, PlacementGroupState, TaskState
    from ray.util.state.common import protobuf_message_to_dict as to_dict

    bundle = common_pb2.Bundle(unit_resources={"CPU": 2.0})
    table = gcs_pb2.PlacementGroupTableData(bundles=[bundle], creator_job_id=b"\x02\0\0\0")
    found = to_dict(message=table, fields_to_decode=["creator_job_id"])
    assert found["creator_job_id"] == JOB
    assert demand._bundles(found) == [{"CPU": 2.0}]
    assert found["state"] == "PENDING"
    lists: list[tuple[Any, str, set[str]]] = [
        (PlacementGroupState, "creator_job_id", {"bundles", "name"}),
        (ActorState, "job_id", {"class_name", "name", "node_id", "required_resources"}),
        (TaskState, "job_id", {"name", "required_resources", "type"}),
    ]
    for columns, job, fields in lists:
        assert fields <= set(columns.list_columns(detail=True))
        assert {"state", job} <= columns.filterable_columns()
    assert common_pb2.TaskStatus.Value("PENDING_NODE_ASSIGNMENT") is not None
    assert gcs_pb2.ActorTableData.ActorState.Value("PENDING_CREATION") is not None


# What can never come


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (asks({"GPU": 2.0}), ["GPU: asked 2, the nearest node type (group 'gpu') has 1"]),
        (asks({"CPU": 1.0}, {"CPU": 8.0}), ["CPU: asked 8"]),
        (asks({"memory": 32.0 * GIB}), ["memory: asked 32 GiB", "has 8 GiB"]),
        (asks({"widget": 1.0}), ["widget: asked 1", "has 0"]),
        (asks(*[{"GPU": 1.0}] * 4), ["asked 4 x {GPU: 1}", "holds 3"]),
        (asks(*[{"CPU": 3.0}] * 5), ["asked 5 x {CPU: 3}", "holds 3"]),
        (asks({"CPU": 2.0}, *[{"CPU": 4.0}] * 3, {"CPU": 1.0}), ["CPU: asked 15 in all", "14"]),
    ],
)
def test_what_can_never_come_is_told_with_the_nearest_node_type(asked, parts):
    why = demand.never(asked, TYPES)
    assert why is not None
    assert all(part in why for part in parts), why


@pytest.mark.parametrize(
    "asked",
    [
        replace(asks({"CPU": 1.0}, kind="task"), count=1000),  # one after the other
        asks({"GPU": 1.0, "CPU": 4.0}),
        asks(*[{"GPU": 1.0}] * 3),
        asks(*[{"GPU": 0.25}] * 12),
        asks(*[{"CPU": 1.0}] * 14),
        asks({"accelerator_type:T4": 0.001, "GPU": 1.0}),
        asks({"CPU": 0.0}),
    ],
)
def test_what_fits_the_cluster_at_its_largest_may_come(asked):
    assert demand.never(asked, TYPES) is None


def test_a_node_that_was_added_by_hand_counts_and_one_of_a_group_does_not_count_twice():
    nodes = [
        node(is_head_node=True),
        node("gpu-0", labels={"ray.io/node-group": "gpu"}, resources_total=GPU.resources),
        node("mine", resources_total={"CPU": 16.0}),
        node("gone", state="DEAD", resources_total={"CPU": 99.0}),
    ]
    types = demand.cluster_types(TYPES, nodes)
    assert [one.name for one in types] == ["head", "group 'gpu'", "node mine"]
    assert demand.never(asks({"CPU": 16.0}), types) is None
    assert demand.never(asks(*[{"GPU": 1.0}] * 4), types) is not None


# What the follower tells


@pytest.fixture
def job():
    return Job(
        id="mine-1",
        ray_id=JOB,
        status="RUNNING",
        entrypoint="python mine.py",
        message="",
        exit_code=None,
        started=1.0,
        ended=None,
    )


@pytest.fixture
def notes():
    return Told()


@pytest.fixture
def warnings():
    return Told()


@pytest.fixture
def watch(client, notes, warnings):
    return JobWatch(client, TYPES, notes, warnings)


def full(api, *uses):
    api.summary["nodeLogicalResources"] = {str(n): use for n, use in enumerate(uses)}


def test_demand_that_can_never_be_met_is_told_at_the_first_look_and_once(
    api, watch, job, notes, warnings
):
    api.state = {"placement_groups": [group({"GPU": 2.0}, {"GPU": 2.0}, name="train")]}
    for _ in range(3):
        watch.running(job)
    (warning,) = warnings
    assert "placement group 'train' of 2 x {GPU: 2}" in warning
    assert "the nearest node type (group 'gpu') has 1" in warning
    assert "sunspot stop mine-1" in warning
    assert notes == []


def test_a_full_cluster_is_noted_once_when_it_is_full_for_longer(api, watch, job, notes, warnings):
    api.state = {"tasks": [task("f")] * 5}
    api.nodes = [node(is_head_node=True)]
    full(api, "2.0/2.0 CPU\n0B/4.00GiB memory")
    watch.running(job)
    assert notes == []
    for _ in range(3):
        watch.running(job)
    (note,) = notes
    assert "waiting for free CPUs: 5 tasks 'f' of {CPU: 1}" in note
    assert "1 of at most 4 nodes are up" in note
    assert warnings == []


def test_tasks_that_wait_while_a_node_has_room_only_start(api, watch, job, notes):
    api.state = {"tasks": [task("f")]}
    full(api, "2.0/2.0 CPU", "1.0/4.0 CPU\n0.0/1.0 GPU")
    for _ in range(3):
        watch.running(job)
    assert notes == []


def test_a_job_that_waits_for_gpus_is_told_so(api, watch, job, notes):
    api.state = {"actors": [actor(required_resources={"CPU": 1.0, "GPU": 1.0})]}
    full(api, "0.0/4.0 CPU\n1.0/1.0 GPU")
    for _ in range(2):
        watch.running(job)
    assert "waiting for free GPUs" in notes[0]


def test_a_job_without_a_driver_yet_waits_for_nothing(api, watch, job, warnings):
    api.state = {"placement_groups": [group({"GPU": 99.0})]}
    watch.running(replace(job, ray_id=""))
    assert warnings == []
    assert api.calls() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("0.0/2.0 CPU\n0B/8.00GiB memory\n0B/2.40GiB object_store_memory", {"CPU": 0.0}),
        ("1.5/4.0 CPU\n2.0/4.0 GPU", {"CPU": 1.5, "GPU": 2.0}),
        ("1.0/3.0 widget (1.0 used of 1.0 reserved in placement groups)", {"widget": 1.0}),
        ("0.001/1.0 accelerator_type:T4\n1.0/2.0 CPU", {"CPU": 1.0}),
    ],
)
def test_usage_is_read_from_the_dashboards_lines(text, expected):
    summary = {
        "summary": [{"raylet": {"nodeId": "ab", "nodeName": "head"}}],
        "nodeLogicalResources": {"ab": text, "gone": "1.0/1.0 CPU"},
    }
    found = demand.used(summary).pop("head")
    assert {name: found[name] for name in expected} == expected
    assert not {"memory", "object_store_memory", "GiB"} & found.keys()
