"""orphan.sh, run for real: a worker without its head deletes itself, and no other one does."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import node_values
import pytest
import sandbox
from azure_model import arm as azure_arm
from azure_model.arm import Arm, serving
from azure_model.compute import Vm
from azure_model.http_service import Reply
from azure_model.http_service import serving as answering
from azure_model.resource_ids import group_id
from azure_model.rights import Grant, Rights
from orphans import Orphan, orphan
from waiting import wait_for

from infra import roles

SET = "sunspot-test-t4"
RIGHTS = Rights(
    (
        Grant(tuple(roles.LEAVER.actions), f"{azure_arm.SCALE_SETS}/{SET}"),
        Grant(tuple(roles.LEAVING.actions), group_id(azure_arm.GROUP)),
    )
)


@dataclass
class Head:
    """A head's GCS, which takes connections while it is up."""

    port: int = 0
    server: socket.socket | None = None

    def up(self) -> None:
        self.server = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        self.port = self.server.getsockname()[1]

    def down(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None


@dataclass
class Worker(Orphan):
    """A worker's machine with its agent, which says whether the raylet is healthy."""

    health: int = 200
    asked: int = 0

    def agent(self, _: object) -> Reply:
        self.asked += 1
        return Reply(self.health, "success")


@dataclass
class Cluster:
    """A head, and workers in one scale set of the stand-in for ARM."""

    arm: Arm
    head: Head
    workers: list[Worker]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if reason := sandbox.why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        arm = stack.enter_context(serving())
        arm.rights = RIGHTS
        arm.add(SET)
        head = Head()
        head.up()
        stack.callback(head.down)
        workers, ports = [], []
        for number in range(2):
            name = f"{SET}_{number:08x}"
            made = orphan(tmp_path / str(number), arm, name, head_port=head.port)
            worker = Worker(made.machine, name)
            ports.append(int(stack.enter_context(answering(worker.agent)).rsplit(":", 1)[1]))
            arm.vms[name] = Vm(name, SET, "Succeeded")
            workers.append(worker)
        arm.sets[SET].capacity = len(workers)
        # IMDS did not answer when the first one booted.
        arm.imds.name = workers[0].name
        del workers[0].machine.overrides["RAY_CLOUD_INSTANCE_ID"]
        by_name = {worker.name: worker for worker in workers}
        arm.on_delete = lambda name: by_name[name].vanish()
        try:
            for worker, port in zip(workers, ports, strict=True):
                worker.start(agent_port=port)
            yield Cluster(arm, head, workers)
        finally:
            for worker in workers:
                worker.join()


def here(cluster: Cluster) -> set[str]:
    return {name for name in cluster.arm.vms if name != azure_arm.HEAD}


def test_when_the_head_is_gone_every_worker_deletes_itself(cluster: Cluster) -> None:
    # Ray says "healthy" while it cannot ask the GCS.
    cluster.head.down()
    wait_for("the workers to be gone", lambda: not here(cluster), 60.0)
    assert all(worker.has_stopped_ray for worker in cluster.workers)
    assert cluster.arm.sets[SET].capacity == 0
    assert cluster.arm.vms[azure_arm.HEAD].state == "Succeeded"
    posts = [path for method, path in cluster.arm.requests if method == "POST"]
    assert set(posts) == {f"{azure_arm.SCALE_SETS}/{SET}/delete"}
    for worker in cluster.workers:
        assert "deletes itself" in worker.machine.text("/dev/console")


def test_only_the_worker_whose_ray_does_not_start_deletes_itself(cluster: Cluster) -> None:
    broken, well = cluster.workers
    broken.health = 503
    wait_for("the broken worker to be gone", lambda: broken.name not in here(cluster), 60.0)
    assert here(cluster) == {well.name}
    assert cluster.arm.sets[SET].capacity == 1
    assert not well.has_stopped_ray


def test_a_head_that_answers_now_and_then_keeps_its_workers(cluster: Cluster) -> None:
    for _ in range(4):
        cluster.head.down()
        asked = [len(worker.machine.calls) for worker in cluster.workers]
        wait_for(
            "each worker to look in vain",
            lambda asked=asked: all(
                len(worker.machine.calls) > before + 2
                for worker, before in zip(cluster.workers, asked, strict=True)
            ),
        )
        cluster.head.up()
        healthy = [worker.asked for worker in cluster.workers]
        wait_for(
            "each worker to see it again",
            lambda healthy=healthy: all(
                worker.asked > before + 1
                for worker, before in zip(cluster.workers, healthy, strict=True)
            ),
        )
    assert not any(worker.has_stopped_ray for worker in cluster.workers)
    assert len(here(cluster)) == 2


def test_it_asks_again_until_it_is_deleted(cluster: Cluster) -> None:
    cluster.arm.failures = [Reply(503, {"error": {"code": "ServerBusy", "message": "busy"}})] * 3
    # Another change of the set ends the first deletion that Azure accepts.
    cluster.arm.lost_deletions = {cluster.workers[0].name}
    cluster.head.down()
    wait_for("the workers to be gone", lambda: not here(cluster), 90.0)
    assert cluster.arm.sets[SET].capacity == 0


def test_one_that_may_not_leave_works_on_when_its_head_is_back(cluster: Cluster) -> None:
    worker = cluster.workers[0]
    cluster.arm.rights = Rights(())
    worker.health = 503  # the head answers, and Ray does not start
    again = "systemctl start --no-block sunspot-ray.service"
    wait_for("Ray to start again", lambda: again in worker.machine.calls, 60.0)
    assert len(here(cluster)) == 2


def test_no_token_is_in_a_log(cluster: Cluster) -> None:
    cluster.head.down()
    wait_for("the workers to be gone", lambda: not here(cluster), 60.0)
    token = azure_arm.access_token(azure_arm.MANAGEMENT)
    for worker in cluster.workers:
        worker.thread.join()
        assert token not in worker.ended[0].stderr + worker.ended[0].stdout
        assert token not in " ".join(worker.machine.calls)


def test_only_workers_that_may_leave_have_the_unit_at_work() -> None:
    from cloud_init.render import ORPHAN_UNIT, units

    assert ORPHAN_UNIT in units(replace(node_values.CPU_WORKER, orphan_after_s=1800))
    assert ORPHAN_UNIT not in units(node_values.CPU_WORKER)
    assert ORPHAN_UNIT not in units(node_values.HEAD)
