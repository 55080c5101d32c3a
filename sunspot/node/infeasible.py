"""Keeps Ray from ending tasks that only have to wait for a node.

Ray's scheduler (ray/autoscaler/v2/scheduler.py, 2.60) calls all demand infeasible for which it
starts no node: what no node type can ever hold, but also what a group at its maximum has no room
for now. With RAY_enable_infeasible_task_early_exit the GCS then ends every waiting task of such a
shape on each raylet that knows no node for it (ray-project/ray#50084, #50886). So a group that has
no worker yet, and gets more tasks than its maximum holds at once, would lose them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ray.autoscaler.v2.scheduler import (
    ResourceDemandScheduler,
    SchedulingReply,
    SchedulingRequest,
)
from ray.autoscaler.v2.utils import ResourceRequestUtil
from ray.core.generated.autoscaler_pb2 import (
    ResourceRequestByCount,  # pyright: ignore[reportAttributeAccessIssue]
)

Schedule = Callable[[ResourceDemandScheduler, SchedulingRequest], SchedulingReply]


def only_what_can_never_be(schedule: Schedule) -> Schedule:
    """Ray's `ResourceDemandScheduler.schedule`, which tells only of demand that can never be met.

    Args:
        schedule: the scheduler's own method; one that was given to this before stays as it is.
    """
    if hasattr(schedule, "__wrapped__"):
        return schedule

    @functools.wraps(schedule)
    def schedule_and_tell(
        scheduler: ResourceDemandScheduler, request: SchedulingRequest
    ) -> SchedulingReply:
        reply = schedule(scheduler, request)
        told = ResourceRequestUtil.group_by_count(reply.infeasible_resource_requests)
        never = [one for one in told if _can_never_be(schedule, request, one)]
        reply.infeasible_resource_requests = ResourceRequestUtil.ungroup_by_count(never)
        return reply

    return schedule_and_tell


def _can_never_be(
    schedule: Schedule, request: SchedulingRequest, wanted: ResourceRequestByCount
) -> bool:
    """Whether one request finds no place although the cluster is empty, by Ray's own scheduler."""
    empty = SchedulingRequest(
        node_type_configs=request.node_type_configs,
        disable_launch_config_check=request.disable_launch_config_check,
        resource_requests=[ResourceRequestByCount(request=wanted.request, count=1)],
    )
    reply = schedule(ResourceDemandScheduler(event_logger=None), empty)
    return bool(reply.infeasible_resource_requests)
