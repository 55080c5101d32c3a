"""What is refused because no node can ever hold it."""

import pytest
from job_api import refusal

from sunspot.ray import feasibility
from sunspot.ray.feasibility import NodeType, Request
from sunspot.ray.resources import GIB
from sunspot.spec import RayClusterConfig, RayNodeConfig, ScalingGroup
from sunspot.stack import Stack

HEAD = NodeType(name="head", resources={"CPU": 2, "memory": 8 * GIB})
GPU = NodeType(name="group 'gpu'", resources={"CPU": 4, "GPU": 1, "memory": 28 * GIB})
BIG = NodeType(name="group 'big'", resources={"CPU": 16, "memory": 64 * GIB, "widget": 3})
TYPES = [HEAD, GPU, BIG]


@pytest.mark.parametrize(
    "request_",
    [
        Request(),
        Request(num_cpus=0, num_gpus=0, memory_gb=0),
        Request(num_cpus=16, memory_gb=64),
        Request(num_cpus=4, num_gpus=1, memory_gb=28),
        Request(num_gpus=0.5),
        Request(resources={"widget": 3}),
        Request(resources={"nowhere": 0}),
    ],
)
def test_what_one_node_type_can_hold_passes(request_):
    feasibility.check_feasible(request_, TYPES)


def test_nothing_asked_needs_no_node_type():
    feasibility.check_feasible(Request(), [HEAD])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # Seed 004's job: two GPUs where nodes have one. Nearest is the node with the GPU.
        (Request(num_gpus=2), ["GPU: asked 2", "(group 'gpu') has 1", "largest any has is 1"]),
        (Request(num_cpus=17), ["CPU: asked 17", "(group 'big') has 16", "largest any has is 16"]),
        (Request(memory_gb=65), ["memory: asked 65 GiB", "has 64 GiB"]),
        (Request(memory_gb=1850), ["memory: asked 1850 GiB"]),
        (Request(resources={"widget": 4}), ["widget: asked 4", "has 3", "largest any has is 3"]),
        (Request(resources={"gadget": 1}), ["gadget: asked 1", "has 0", "largest any has is 0"]),
    ],
)
def test_what_no_node_can_hold_is_refused_with_the_limit(request_, expected):
    message = refusal(feasibility.check_feasible, request_, TYPES)
    assert message.startswith("no node of this cluster can ever hold this job.")
    assert all(part in message for part in expected), message
    assert message.endswith("wait for a larger node to join with --wait")


def test_each_need_fits_some_type_and_all_together_fit_none():
    request = Request(num_cpus=8, num_gpus=1, memory_gb=32)
    message = refusal(feasibility.check_feasible, request, TYPES)
    # The nearest lacks one thing only, the others two or three.
    assert "GPU: asked 1, the nearest node type (group 'big') has 0" in message
    assert "the largest any has is 1" in message
    assert "CPU: asked" not in message
    assert "memory: asked" not in message


def test_nearest_is_the_type_that_lacks_the_fewest_things():
    request = Request(num_cpus=4, num_gpus=2, memory_gb=16)
    message = refusal(feasibility.check_feasible, request, [HEAD, GPU])
    assert "(group 'gpu')" in message
    assert "memory" not in message


def test_node_types_are_the_head_and_every_group_at_its_size():
    stack = Stack(
        name="t",
        target="local",
        cluster=RayClusterConfig(
            head_node=RayNodeConfig(cpu=2, memory_gb=8),
            scaling_groups=[
                ScalingGroup(name="gpu", worker_nodes=RayNodeConfig(vm_size="NC4as_T4_v3")),
            ],
        ),
    )
    head, group = feasibility.node_types(stack)
    assert (head.name, group.name) == ("head", "group 'gpu'")
    assert head.resources == {"CPU": 2, "memory": 8 * GIB}
    assert group.resources["GPU"] == 1
    assert group.resources["memory"] == 28 * GIB


def test_half_a_cpu_counts_as_the_whole_one_that_ray_gives_the_node():
    cluster = RayClusterConfig(head_node=RayNodeConfig(cpu=1.5, memory_gb=2))
    types = feasibility.node_types(Stack(name="t", target="local", cluster=cluster))
    feasibility.check_feasible(Request(num_cpus=2), types)


def test_a_group_that_is_not_up_yet_counts_with_its_accelerator_type():
    stack = Stack(
        name="t",
        target="local",
        cluster=RayClusterConfig(
            head_node=RayNodeConfig(cpu=2, memory_gb=8),
            scaling_groups=[
                ScalingGroup(name="gpu", worker_nodes=RayNodeConfig(vm_size="NC4as_T4_v3")),
            ],
        ),
    )
    # Ray gives such a node `accelerator_type:T4`: 1, and so does our autoscaler config.
    request = Request(resources={"accelerator_type:T4": 0.001})
    feasibility.check_feasible(request, feasibility.node_types(stack))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"num_cpus": -1}, "CPU: -1"),
        ({"num_gpus": -0.5}, "GPU: -0.5"),
        ({"memory_gb": -1}, "memory"),
        ({"resources": {"widget": -2}}, "widget: -2"),
    ],
)
def test_negative_amounts_are_refused(fields, name):
    message = refusal(Request, **fields)
    assert name in message
    assert "give 0 or more" in message


@pytest.mark.parametrize("amount", [float("nan"), float("inf")])
def test_amounts_that_are_not_numbers_are_refused(amount):
    # JSON has neither: they would fail while the job is being sent.
    assert "CPU" in refusal(Request, num_cpus=amount)


def test_amounts_are_rays_names_with_memory_in_bytes():
    request = Request(num_cpus=1, num_gpus=0, memory_gb=1.5, resources={"widget": 2})
    assert request.amounts() == {"CPU": 1, "GPU": 0, "memory": 1.5 * GIB, "widget": 2}
    assert Request().amounts() == {}
