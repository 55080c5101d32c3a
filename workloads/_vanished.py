"""Keeps Ray Train from waiting for a node, or for a run, that is not there any more.

A machine that is switched off stays a member of the cluster for some 20 s, until it has missed
its health checks. Ray Train 2.60 begins its next group of workers meanwhile, and that group may
be promised a place on it. Then either the promise is not kept and the group gives up after its
time limit (RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S); or it was just kept, the node goes while the
workers start, Ray takes the group's places back to find others, and the controller waits in a
ray.get without a limit (WorkerGroup._create_workers) for workers that nobody can place.

A run that was killed has places reserved for it until three minutes after its last word. An
elastic run that starts meanwhile waits, or begins with fewer workers than there is room for.
"""

# ruff: noqa: ARG002 - Ray says what its callbacks are given

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
# Train gives up a group of its own accord within seconds of a worker's death; one whose places
# are sought anew for longer than this is one that it waits for.
SOUGHT_S, LOOK_EVERY_S = 30.0, 5.0
# Ray's actor that reserves places, for Train's runs by the name train-ID
# (default_autoscaling_coordinator.py and scaling_policy.py, 2.60).
COORDINATOR, CONTROLLER = "AutoscalingCoordinator", "TrainController"
ANSWER_TIMEOUT_S = 10.0


def forget_dead_runs() -> None:
    """Give back what runs of Ray Train had reserved, if none of them is alive on the cluster.

    While another one is, nobody can tell which reservations are its own; they stay.
    """

    def forget(actor: Any) -> None:  # runs in the actor, so it brings all that it needs along
        for requester in [one for one in actor._ongoing_reqs if one.startswith("train-")]:
            actor.cancel_request(requester)

    # ValueError: nothing was ever reserved. Otherwise nobody answers, and Ray forgets by itself.
    with contextlib.suppress(ValueError, ConnectionError, RayStateApiException, RayError):
        coordinator: Any = ray.get_actor(COORDINATOR, namespace=COORDINATOR)
        alive: Any = [("class_name", "=", CONTROLLER), ("state", "!=", "DEAD")]
        if not list_actors(filters=alive):
            ray.get(coordinator.__ray_call__.remote(forget), timeout=ANSWER_TIMEOUT_S)


class WaitForTheTruth(UserCallback):
    """Has Ray Train's controller wait, after a failure, before it starts the next group."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """See wait_for_the_truth."""
        wait_for_the_truth()


def wait_for_the_truth() -> None:
    """Wait until each node that Ray counts as alive is there, at most NOTICED_WITHIN_S."""
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while silent := [node for node in ray.nodes() if node["Alive"] and not _answers(node)]:
        if time.monotonic() > deadline:
            break
        names = ", ".join(node["NodeName"] for node in silent)
        print(f"waiting for Ray to notice that a node is gone: {names}", flush=True)
        time.sleep(2)


def _answers(node: dict[str, Any]) -> bool:
    """Whether something listens where the node's raylet should."""
    address = node["NodeManagerAddress"], node["NodeManagerPort"]
    with contextlib.suppress(OSError), socket.create_connection(address, CONNECT_TIMEOUT_S):
        return True
    return False


@contextlib.contextmanager
def no_endless_start(
    sought_s: float = SOUGHT_S, look_every_s: float = LOOK_EVERY_S
) -> Iterator[None]:
    """Take back, while the block runs, this driver's groups that lost a node and wait for another.

    Those that have waited for longer than ``sought_s`` seconds; it looks every ``look_every_s``.
    Their workers then fail to start, which Ray Train answers by starting a group of a size that
    the cluster has room for. In the driver, because the controller is what waits.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_watch,
        args=(stop, sought_s, look_every_s),
        name="no-endless-start",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(stop: threading.Event, sought_s: float, look_every_s: float) -> None:
    since: dict[Any, float] = {}
    while not stop.wait(look_every_s):
        with contextlib.suppress(Exception):  # a GCS that does not answer now does so later
            sought = _sought_groups()
            since = {group: since.get(group, time.monotonic()) for group in sought}
            for group in [g for g, t in since.items() if time.monotonic() - t > sought_s]:
                remove_placement_group(PlacementGroup(group))
                del since[group]


def _sought_groups() -> set[Any]:
    """The ids of this job's placement groups that lost a node and are not whole again.

    Ray's public table of them does not say whose they are.
    """
    from ray._private.state import state
    from ray.core.generated import gcs_pb2

    table: Any = gcs_pb2.PlacementGroupTableData  # pyright: ignore[reportAttributeAccessIssue]
    job = bytes.fromhex(ray.get_runtime_context().get_job_id())
    groups = map(table.FromString, state._connect_and_get_accessor().get_placement_group_table())
    return {
        ray.PlacementGroupID(group.placement_group_id)
        for group in groups
        if group.creator_job_id == job and group.state == table.RESCHEDULING
    }
