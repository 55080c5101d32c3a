"""What would be paid for without end ends by itself: with real Ray, and a stand-in for ARM."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sandbox
from azure_cluster import CLUSTER, DEADLINE_S, MOST, ON_DEMAND, PREFIX, SPOT, Azure, running
from azure_model.arm import HEAD
from orphans import Orphan, orphan
from waiting import wait_for

from sunspot.node.joins import TRIES

pytestmark = pytest.mark.timeout(1500)
# Three machines that never boot are waited for, and one that does has to make it beside other work.
JOIN_TIMEOUT_S = 60.0
TICKS = 5
# How long a worker may find no head: longer than one look may take (orphan.sh).
LIMIT_S, LOOKS = 20.0, 20


@pytest.fixture
def azure(request: pytest.FixtureRequest) -> Iterator[Azure]:
    with running(**getattr(request, "param", {})) as azure:
        yield azure


def no_capacity(azure: Azure) -> bool:
    return {one.capacity for one in azure.arm.sets.values()} == {0}


@pytest.mark.parametrize("azure", [{"join_timeout_s": JOIN_TIMEOUT_S}], indirect=True)
def test_a_group_that_never_boots_stops_at_three_until_it_is_edited(azure: Azure):
    azure.arm.on_boot = lambda _: None
    with azure.jobs() as jobs:
        waiting = jobs.begin("places", count=1)
        wait_for(
            "the pause",
            lambda: "paused" in [event.kind for event in azure.events()],
            DEADLINE_S + TRIES * JOIN_TIMEOUT_S,
            seen=azure.logs,
        )
        azure.wait_until_empty()
        launched = set(azure.arm.billed)
        # The autoscaler lists the machines at each tick, and the task waits.
        seen = len(azure.arm.requests)
        wait_for("more ticks", lambda: len(azure.arm.requests) > seen + TICKS, DEADLINE_S)
        assert set(azure.arm.billed) == launched
        assert len(launched) == TRIES
        assert {tuple(azure.kinds(name)) for name in launched} == {("launched", "gave-up")}
        assert no_capacity(azure)
        assert not waiting.done()
        azure.arm.on_boot = azure.boot
        (group,) = CLUSTER["scaling_groups"]
        azure.edit({**CLUSTER, "scaling_groups": [{**group, "max_workers": MOST + 1}]})
        ((node_type, _),) = azure.result(waiting)
        assert node_type == SPOT
    azure.wait_until_empty()


@contextlib.contextmanager
def watched(azure: Azure, folder: Path, names: list[str]) -> Iterator[list[Orphan]]:
    """These workers, each with the service that a worker on Azure has."""
    port = int(azure.address.rpartition(":")[2])
    made = {
        name: orphan(folder / str(number), azure.arm, name, head_port=port, limit_s=LIMIT_S)
        for number, name in enumerate(names)
    }

    def delete(name: str) -> None:
        azure.delete(name)
        if name in made:
            made[name].vanish()

    azure.arm.on_delete = delete
    try:
        for name, worker in made.items():
            worker.start(agent_port=azure.agent_ports[name])
        yield list(made.values())
    finally:
        for worker in made.values():
            worker.join()


def test_when_the_head_is_gone_every_worker_has_deleted_itself(azure: Azure, tmp_path: Path):
    if reason := sandbox.why_not():
        pytest.skip(reason)
    with azure.jobs() as jobs:
        work = jobs.begin("squares", count=2 * MOST, seconds=DEADLINE_S)
        names = wait_for(
            "two members",
            lambda: found if len(found := azure.members()) == MOST else None,
            DEADLINE_S,
            seen=azure.logs,
        )
        with watched(azure, tmp_path, names) as workers:
            # They have a head, for longer than they may be without one.
            long_enough = time.monotonic() + 2 * LIMIT_S
            wait_for("twice the limit", lambda: time.monotonic() > long_enough, DEADLINE_S)
            # Each look ends with a pause, which is a call.
            wait_for("looks", lambda: all(len(one.machine.calls) > LOOKS for one in workers))
            assert azure.members() == names
            assert not work.done()
            azure.delete(HEAD)
            wait_for("the workers to be gone", lambda: not azure.workers(), DEADLINE_S)
            assert all(worker.has_stopped_ray for worker in workers)
    assert no_capacity(azure)
    assert set(azure.arm.sets) == {f"{PREFIX}{SPOT}", f"{PREFIX}{ON_DEMAND}"}
    assert azure.machines == {}
