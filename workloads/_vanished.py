"""Keeps Ray Train from waiting for a node or a run that no longer exists.

A node that is switched off stays a member of the cluster for some 20 s, until it has missed its
health checks. Ray Train 2.60 starts its next worker group meanwhile, and Ray may choose that node
for the group's placement group. Then either the placement fails, and the worker group gives up
after its time limit (RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S). Or it has just succeeded and the
node is lost while the workers start: Ray reschedules the placement group, and the controller waits
in a ray.get without a limit (WorkerGroup._create_workers) for workers that cannot be placed.

Resources stay reserved for a killed run until three minutes after its last request. An elastic run
that starts meanwhile waits, or begins with fewer workers than there is room for.
"""

# ruff: noqa: ARG002 - Ray defines the arguments of its callbacks

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train import UserCallback
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.state import list_actors
from ray.util.state.exception import RayStateApiException

CONNECT_TIMEOUT_S = 2.0
# Five health checks of at most 10 s, 3 s apart, may be missed (ray_config_def.h).
NOTICED_WITHIN_S = 90.0
# Train gives up a worker group within seconds of a worker's death; a placement group that Ray
# reschedules for longer than this is one that Train waits for.
RESCHEDULING_S, CHECK_EVERY_S = 30.0, 5.0
# Ray's actor that reserves resources, for runs of Train under the name train-ID
# (default_autoscaling_coordinator.py and scaling_policy.py, 2.60).
COORDINATOR, CONTROLLER = "AutoscalingCoordinator", "TrainController"
ANSWER_TIMEOUT_S = 10.0


def forget_dead_runs() -> None:
    """Release what runs of Ray Train have reserved, if no run is alive on the cluster.

    While a run is alive, its reservations look like those of the dead ones, so all of them stay.
    """

    def forget(actor: Any) -> None:  # runs in the actor, so it uses nothing of this module
        for requester in [one for one in actor._ongoing_reqs if one.startswith("train-")]:
            actor.cancel_request(requester)

    # ValueError: nothing was ever reserved. The others: no answer, and Ray releases it by itself.
    with contextlib.suppress(ValueError, ConnectionError, RayStateApiException, RayError):
        coordinator: Any = ray.get_actor(COORDINATOR, namespace=COORDINATOR)
        alive: Any = [("class_name", "=", CONTROLLER), ("state", "!=", "DEAD")]
        if not list_actors(filters=alive):
            ray.get(coordinator.__ray_call__.remote(forget), timeout=ANSWER_TIMEOUT_S)


class WaitForNodes(UserCallback):
    """Makes Ray Train's controller wait after a failure before it starts the next worker group."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Wait until every node that Ray counts as alive answers."""
        wait_until_nodes_answer()


def wait_until_nodes_answer() -> None:
    """Wait until every node that Ray counts as alive answers, for NOTICED_WITHIN_S at most."""
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while silent := [node for node in ray.nodes() if node["Alive"] and not _answers(node)]:
        if time.monotonic() > deadline:
            break
        names = ", ".join(node["NodeName"] for node in silent)
        print(f"waiting for Ray to notice the loss of {names}", flush=True)
        time.sleep(2)


def _answers(node: dict[str, Any]) -> bool:
    """Return whether a process listens at the address of the node's raylet."""
    address = node["NodeManagerAddress"], node["NodeManagerPort"]
    with contextlib.suppress(OSError), socket.create_connection(address, CONNECT_TIMEOUT_S):
        return True
    return False


@contextlib.contextmanager
def no_endless_start(
    rescheduling_s: float = RESCHEDULING_S, check_every_s: float = CHECK_EVERY_S
) -> Iterator[None]:
    """Remove this driver's placement groups that lost a node and wait for another too long.

    Their workers then fail to start, and Ray Train starts a worker group of a size that the
    cluster has room for. This runs in the driver, because the controller is what waits.

    Args:
        rescheduling_s: The seconds after which a placement group has waited too long.
        check_every_s: The seconds between two checks while the block runs.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_watch,
        args=(stop, rescheduling_s, check_every_s),
        name="no-endless-start",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(stop: threading.Event, rescheduling_s: float, check_every_s: float) -> None:
    since: dict[Any, float] = {}
    while not stop.wait(check_every_s):
        with contextlib.suppress(Exception):  # a GCS that does not answer now may answer later
            groups = _rescheduling_groups()
            since = {group: since.get(group, time.monotonic()) for group in groups}
            for group in [g for g, t in since.items() if time.monotonic() - t > rescheduling_s]:
                remove_placement_group(PlacementGroup(group))
                del since[group]


def _rescheduling_groups() -> set[Any]:
    """Return the IDs of this job's placement groups that lost a node and are rescheduled."""
    job = bytes.fromhex(ray.get_runtime_context().get_job_id())
    return {
        ray.PlacementGroupID(group.placement_group_id)
        for group in _groups()
        if group.creator_job_id == job and group.state == group.RESCHEDULING
    }


def remove_groups_of_dead_jobs() -> None:
    """Remove placement groups that nobody uses, and whose resources nobody else would get.

    Ray 2.60 removes a job's groups when the job ends, but not one that comes a moment later: the
    controller of a killed run dies after its driver, and may ask for one more (seen in the log of
    the GCS: registered 16 ms after the groups of its finished job were removed).
    """
    from ray._private.state import state

    with contextlib.suppress(RayError):
        dead = {bytes.fromhex(job["JobID"]) for job in state.job_table() if job["IsDead"]}
        for group in _groups():
            is_left = group.creator_job_id in dead and group.state != group.REMOVED
            # Of a detached actor's group, the job may have ended.
            if is_left and not group.is_detached and _is_dead(group.creator_actor_id):
                remove_placement_group(
                    PlacementGroup(ray.PlacementGroupID(group.placement_group_id))
                )


def _groups() -> Iterator[Any]:
    """All placement groups. Ray's public table does not show which job they belong to."""
    from ray._private.state import state
    from ray.core.generated import gcs_pb2

    table: Any = gcs_pb2.PlacementGroupTableData  # pyright: ignore[reportAttributeAccessIssue]
    return map(table.FromString, state._connect_and_get_accessor().get_placement_group_table())


def _is_dead(actor: bytes) -> bool:
    """Return whether an actor has died; one that is no actor, or that Ray has forgotten, has."""
    from ray._private.state import state

    if ray.ActorID(actor).is_nil():
        return True
    return state.actor_table(actor.hex(), None, None).get("State", "DEAD") == "DEAD"
