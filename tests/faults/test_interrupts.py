"""Ctrl-C and kill -9 at ten moments of each command's run."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from cut_off import Ended, Installed, Moments, nothing_wrong
from fault_clusters import OWN, SHARED, Clusters
from fault_table import AFTER_DOWN, AS_IT_WAS, NOTHING, Row
from harness import FOREVER
from waiting import wait_for

from sunspot.ray.jobs import Job

CTRL_C, KILL = "Ctrl-C at ten moments", "`kill -9` at ten moments"
INTERRUPTED, KILLED = "130", "137 (killed)"
# A command that is killed says nothing; what is asked next must make sense of what it left.
NOT_UP = "is not up", "was interrupted", "is dead"

# A request that was sent before `submit` was killed has made its job by then.
LATE_S = 3.0

Record = Callable[[Row], None]


def timed(sunspot: Installed, *arguments: str) -> float:
    """Seconds that a command takes, which must do well."""
    started = time.monotonic()
    sunspot.ok(*arguments)
    return time.monotonic() - started


def wrong_answer(ended: Ended, done: str) -> Iterator[str]:
    """What is wrong with the answer to Ctrl-C: it may have come after `done` was printed."""
    yield from ended.troubles()
    is_right = ended.code == 130 and "interrupted" in ended.error
    if ended.hits and not is_right and not (ended.code == 0 and done in ended.out):
        yield str(ended)


def wrong_end(ended: Ended, done: str) -> Iterator[str]:
    """What is wrong with a command that was killed, or had done its work before that."""
    is_right = ended.code == -signal.SIGKILL
    if ended.hits and not is_right and not (ended.code == 0 and done in ended.out):
        yield str(ended)


def wrong_status(sunspot: Installed, name: str) -> Iterator[str]:
    """What is wrong with what `status` says of a cluster after a fault."""
    asked = sunspot.cut("status", name)
    yield from asked.troubles()
    if asked.code not in (0, 1):
        yield str(asked)
    if asked.code == 1 and not any(part in asked.error for part in NOT_UP):
        yield f"status does not say how it is: {asked.error!r}"


# Up and down, of a cluster of its own


@pytest.fixture(scope="module")
def seconds(sunspot: Installed, clusters: Clusters) -> dict[str, float]:
    """How long `up` and `down` of such a cluster take."""
    return {command: timed(sunspot, command, OWN) for command in ("up", "down")}


def test_ctrl_c_in_up(
    sunspot: Installed, clusters: Clusters, seconds, moments: Moments, record: Record
):
    def one(moment: float) -> Iterator[str]:
        before = clusters.census()
        ended = sunspot.cut("up", OWN, at=[moment])
        yield from wrong_answer(ended, f"{OWN} is up")
        if ended.code == 130 and f"sunspot down {OWN}" not in ended.errors:
            yield from clusters.swept(before)
        yield from clusters.take_down(OWN, before)

    nothing_wrong(moments.at_each(seconds["up"], one))
    record(Row(fault=CTRL_C, to="up", code=INTERRUPTED, says="interrupted", left=NOTHING))


def test_kill_in_up(
    sunspot: Installed, clusters: Clusters, seconds, moments: Moments, record: Record
):
    def one(moment: float) -> Iterator[str]:
        before = clusters.census()
        ended = sunspot.cut("up", OWN, at=[moment], number=signal.SIGKILL)
        yield from wrong_end(ended, f"{OWN} is up")
        yield from wrong_status(sunspot, OWN)
        yield from clusters.take_down(OWN, before)

    nothing_wrong(moments.at_each(seconds["up"], one))
    says = "`status`: its start was interrupted"
    record(Row(fault=KILL, to="up", code=KILLED, says=says, left=AFTER_DOWN))


def test_ctrl_c_in_down(
    sunspot: Installed, clusters: Clusters, seconds, moments: Moments, record: Record
):
    """A `down` that goes on, since it has begun, gets the next interrupts as well."""
    before = clusters.census()
    pending, found = moments.of(seconds["down"]), []
    while pending:
        if clusters.problem(OWN):
            sunspot.ok("up", OWN)
        whole = clusters.census()
        ended = sunspot.cut("down", OWN, at=pending)
        found += [f"at {pending[0]:.2f} s: {wrong}" for wrong in wrong_answer(ended, "is down")]
        pending = pending[max(1, ended.hits) :]
        if ended.code == 130 and clusters.changes(whole, within_s=1):
            if f"sunspot down {OWN}" not in ended.errors:
                found.append(f"not told what is left: {ended}")
            found += clusters.take_down(OWN, before)
        elif ended.code == 0:
            found += clusters.swept(before)
    found += clusters.take_down(OWN, before)
    nothing_wrong(found)
    record(
        Row(
            fault=CTRL_C,
            to="down",
            code="130, or 0",
            says="interrupted, or is down",
            left="as it was, or nothing",
        )
    )


def test_kill_in_down(
    sunspot: Installed, clusters: Clusters, seconds, moments: Moments, record: Record
):
    before = clusters.census()

    def one(moment: float) -> Iterator[str]:
        if clusters.problem(OWN):
            sunspot.ok("up", OWN)
        whole = clusters.census()
        ended = sunspot.cut("down", OWN, at=[moment], number=signal.SIGKILL)
        yield from wrong_end(ended, f"{OWN} is down")
        if clusters.changes(whole, within_s=1):
            yield from wrong_status(sunspot, OWN)
            yield from clusters.take_down(OWN, before)

    found = moments.at_each(seconds["down"], one)
    nothing_wrong([*found, *clusters.take_down(OWN, before)])
    record(Row(fault=KILL, to="down", code=KILLED, says="", left=AFTER_DOWN))


# Scale, submit and logs, in the cluster that is shared


@pytest.fixture(scope="module")
def scaling_s(sunspot: Installed, clusters: Clusters) -> float:
    """How long it takes to get a second worker."""
    before = clusters.share()
    duration = timed(sunspot, "scale", "workers=2")
    nothing_wrong(scale_back(sunspot, clusters, before))
    return duration


def test_ctrl_c_in_scale(
    sunspot: Installed, clusters: Clusters, scaling_s: float, moments: Moments, record: Record
):
    def one(moment: float) -> Iterator[str]:
        before = clusters.share()
        ended = sunspot.cut("scale", "workers=2", at=[moment])
        yield from wrong_answer(ended, "has 2 workers")
        if ended.code == 130 and "sunspot scale" not in ended.errors:
            if (minimum := clusters.minimum()) != 1:
                yield f"the minimum is {minimum}, and not told: {ended.errors!r}"
            yield from changed(clusters, before)
        yield from scale_back(sunspot, clusters, before)

    nothing_wrong(moments.at_each(scaling_s, one))
    record(Row(fault=CTRL_C, to="scale", code=INTERRUPTED, says="interrupted", left=AS_IT_WAS))


def test_kill_in_scale(
    sunspot: Installed, clusters: Clusters, scaling_s: float, moments: Moments, record: Record
):
    def one(moment: float) -> Iterator[str]:
        before = clusters.share()
        ended = sunspot.cut("scale", "workers=2", at=[moment], number=signal.SIGKILL)
        yield from wrong_end(ended, "has 2 workers")
        yield from wrong_status(sunspot, SHARED)
        yield from scale_back(sunspot, clusters, before)

    nothing_wrong(moments.at_each(scaling_s, one))
    left = f"{AS_IT_WAS}, after `sunspot scale` with the former number"
    record(Row(fault=KILL, to="scale", code=KILLED, says="", left=left))


def scale_back(sunspot: Installed, clusters: Clusters, before: dict[str, str]) -> Iterator[str]:
    """Takes the second worker away, if there is one; yields what differs then.

    Twice if need be: a tick of the autoscaler that read the higher minimum may start a worker after
    the first time, which would go by itself when it has been idle for five minutes.
    """
    for _ in range(2):
        if clusters.minimum() != 1 or clusters.changes(before, within_s=0):
            back = sunspot.cut("scale", "workers=1")
            if back.code != 0:
                yield f"scaling back: {back}"
        if not clusters.changes(before):
            return
    yield from changed(clusters, before)


def changed(clusters: Clusters, before: dict[str, str]) -> Iterator[str]:
    if changes := clusters.changes(before):
        yield f"changed: {changes}"


@pytest.fixture
def numbered() -> Iterator[int]:
    return itertools.count()


def submit(name: str) -> list[str]:
    return ["submit", "--name", name, "--", *FOREVER]


@pytest.fixture(scope="module")
def submitting_s(sunspot: Installed, clusters: Clusters) -> float:
    """How long `submit` takes, with a job that ends at once."""
    clusters.share()
    return timed(sunspot, "submit", "--", "echo", "done")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl_c", "kill"])
def test_submit(
    sunspot: Installed,
    clusters: Clusters,
    submitting_s: float,
    moments: Moments,
    numbered,
    record: Record,
    number: signal.Signals,
):
    def one(moment: float) -> Iterator[str]:
        before, name = clusters.share(), f"{number.name.lower()}-{next(numbered)}"
        ended = sunspot.cut(*submit(name), at=[moment], number=number)
        if number == signal.SIGKILL:
            yield from wrong_end(ended, "never")
        else:
            yield from wrong_answer(ended, "never")
        if not (ended.code == 130 and name not in ended.error):
            yield from stopped(sunspot, name, by=ended)
        yield from changed(clusters, before)

    nothing_wrong(moments.at_each(submitting_s, one))
    if number == signal.SIGKILL:
        left = "its job, until `sunspot stop`"
        record(Row(fault=KILL, to="submit", code=KILLED, says="", left=left))
    else:
        says = "interrupted; its job is stopped"
        record(Row(fault=CTRL_C, to="submit", code=INTERRUPTED, says=says, left=AS_IT_WAS))


def stopped(sunspot: Installed, name: str, by: Ended) -> Iterator[str]:
    """Stops a job that `submit` left, also one that the head made only after the end of that."""

    def found() -> list[Job]:
        return [job for job in sunspot.client(SHARED).list() if job.id == name]

    with contextlib.suppress(AssertionError):
        wait_for("a job", found, LATE_S)
    if any(not job.has_ended for job in found()):
        if by.code == 130 and "may still run" not in by.error:
            yield f"job {name} runs: {by}"
        done = sunspot.cut("stop", name)
        if done.code != 0:
            yield f"stop: {done}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl_c", "kill"])
def test_logs(
    sunspot: Installed, clusters: Clusters, moments: Moments, record: Record, number: signal.Signals
):
    clusters.share()
    name = f"read-{number.name.lower()}"
    sunspot.ok("submit", "--detach", *submit(name)[1:])
    wait_for("the job to begin", lambda: "begun" in sunspot.ok("logs", name))

    def one(moment: float) -> Iterator[str]:
        before = clusters.census()
        ended = sunspot.cut("logs", name, "-f", at=[moment], number=number)
        if number == signal.SIGKILL:
            yield from wrong_end(ended, "never")
        else:
            yield from wrong_answer(ended, "never")
        yield from changed(clusters, before)

    # Following begins where reading once would end.
    found = moments.at_each(2 * timed(sunspot, "logs", name), one)
    sunspot.ok("stop", name)
    nothing_wrong(found)
    code, says = (KILLED, "") if number == signal.SIGKILL else (INTERRUPTED, "interrupted")
    fault = KILL if number == signal.SIGKILL else CTRL_C
    record(Row(fault=fault, to="logs -f", code=code, says=says, left="the job, which runs on"))
