"""What Ray's scheduler is let tell as infeasible: demand that no node can ever hold."""

import inspect

import pytest
from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.utils import ResourceRequestUtil

from sunspot.node.infeasible import only_what_can_never_be

# Ray's own, also where a node provider in this process has put ours around it.
RAYS = inspect.unwrap(ResourceDemandScheduler.schedule)
TYPES = {
    "head": NodeTypeConfig(
        name="head", min_worker_nodes=0, max_worker_nodes=0, resources={"CPU": 1}
    ),
    "gpu": NodeTypeConfig(
        name="gpu",
        min_worker_nodes=0,
        max_worker_nodes=2,
        resources={"CPU": 4, "GPU": 1},
        labels={"market": "spot"},
    ),
}


def schedule(*wanted):
    """What is told and how many nodes are started, by Ray alone and with ours around it."""
    request = SchedulingRequest(
        node_type_configs=TYPES,
        max_num_nodes=10,
        disable_launch_config_check=True,
        resource_requests=ResourceRequestUtil.group_by_count(
            [ResourceRequestUtil.make(one) for one in wanted]
        ),
    )
    found = []
    for method in (RAYS, only_what_can_never_be(RAYS)):
        reply = method(ResourceDemandScheduler(event_logger=None), request)
        told = [dict(one.resources_bundle) for one in reply.infeasible_resource_requests]
        found.append((told, sum(one.count for one in reply.to_launch)))
    return found


def test_tasks_beyond_a_groups_maximum_only_wait():
    rays, ours = schedule(*[{"GPU": 1}] * 6)
    assert rays == ([{"GPU": 1}] * 4, 2), "Ray tells them apart by now: this module can go"
    assert ours == ([], 2)


@pytest.mark.parametrize("never", [{"GPU": 2}, {"CPU": 64}, {"TPU": 1}])
def test_what_no_node_can_hold_is_told_beside_what_waits(never):
    rays, ours = schedule(*[{"GPU": 1}] * 6, *[never] * 2)
    assert ours == ([never] * 2, 2)
    assert len(rays[0]) == 6


def test_it_is_put_around_the_scheduler_once():
    once = only_what_can_never_be(ResourceDemandScheduler.schedule)
    assert only_what_can_never_be(once) is once
