"""Turns a notice of eviction into a drain: `python -m sunspot.node.azure.eviction --name NAME`

It asks IMDS for scheduled events every second. When Azure is about to take this VM (Preempt,
Terminate) or to restart it (Reboot, Redeploy), the Ray node drains: it takes no new work, what
runs may end, Ray Train makes a checkpoint. When the node is idle, or shortly before the deadline,
the raylet is stopped, so that the cluster knows at once that it is gone; then Azure is told that
it may go on. A Freeze (a pause of seconds) is logged. Events of other VMs are left alone.

Reads the token's variables (RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH) from the environment.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from sunspot.node import metrics
from sunspot.node.azure.imds import BASE_URL, Event, Imds, ImdsError
from sunspot.node.collector import NodeCollector
from sunspot.node.leaving import Head, Marks, Node, Worker, attempt
from sunspot.node.metrics import Journal, Record

# Those after which the VM is gone or starts anew (Microsoft, "Scheduled Events for Linux VMs").
LEAVING_TYPES = {"Preempt", "Terminate", "Reboot", "Redeploy"}
TOO_MANY_REQUESTS = 429

# A record takes seconds to write where the GCS is slow: never within so many of a deadline.
WRITE_TIME_S = 10.0

log = logging.getLogger("sunspot.eviction")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds. Microsoft advises a poll a second; IMDS takes five requests a second from a VM.

    `margin_s` is how long before the deadline the node is stopped. `default_notice_s` stands in
    for a deadline that an event does not give: the shortest notice there is, Preempt's.
    `first_answer_s` is for the call that turns the service on, up to two minutes; `answer_s` for
    the later ones, `leaving_answer_s` while a deadline runs. `throttled_s` is the pause after
    a 429. `return_after_s`: an event that has been gone this long did not take the VM.
    """

    poll_s: float = 1.0
    margin_s: float = 5.0
    default_notice_s: float = 30.0
    first_answer_s: float = 130.0
    answer_s: float = 10.0
    leaving_answer_s: float = 1.0
    throttled_s: float = 5.0
    return_after_s: float = 120.0


@dataclass(kw_only=True)
class Departure:
    """A node on its way out. Times are in seconds since the epoch."""

    record: Record
    stop_at: float
    drained_until: float | None = None
    stopping: bool = False
    has_left: bool = False
    events: dict[str, Event] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)


class Watcher:
    """Watches the events of the VM `name`; `turn` is one look at them and what follows from it."""

    def __init__(
        self,
        *,
        name: str,
        group: str,
        imds: Imds,
        node: Node,
        marks: Marks,
        report: Callable[[Record], None],
        timing: Timing,
    ) -> None:
        self._name = name
        self._group = group
        self._imds = imds
        self._node = node
        self._marks = marks
        self._report = report
        self._timing = timing
        self._seen: dict[str, Event] = {}
        self._unwritten: dict[str, Record] = {}
        self._departure: Departure | None = None
        self._answered = False
        self._failures = 0
        self._announced = False
        self._last_event_at = time.time()

    def run(self) -> None:
        """Watches for ever."""
        while True:
            began, pause = time.monotonic(), self._timing.poll_s
            try:
                pause = self.turn()
            except Exception:  # whatever it was, the next notice must still be seen
                log.exception("a turn failed")
            time.sleep(max(0.0, pause - (time.monotonic() - began)))

    def turn(self) -> float:
        """Asks once, acts on the answer; returns the seconds from its begin to the next turn."""
        pause = self._look()
        departure = self._departure
        if departure is None:
            self._write()
            self._come_back()
            return pause
        self._leave(departure)
        time_left = departure.stop_at - time.time()
        if departure.has_left:
            self._write()
            self._acknowledge(departure)
            self._come_back()
            return pause
        if time_left > WRITE_TIME_S:
            self._write()
        # Not a second late; once it is being stopped there is nothing to be in time for.
        return pause if departure.stopping else min(pause, max(0.0, time_left))

    def _look(self) -> float:
        timeout_s = self._timing.answer_s if self._answered else self._timing.first_answer_s
        if self._departure is not None:
            timeout_s = self._timing.leaving_answer_s
        try:
            events = self._imds.events(timeout_s)
        except ImdsError as error:
            self._failures += 1
            if self._failures in {1, 10} or self._failures % 100 == 0:
                log.warning("no answer of IMDS, %d in a row: %s", self._failures, error)
            throttled = error.status == TOO_MANY_REQUESTS and self._departure is None
            return self._timing.throttled_s if throttled else self._timing.poll_s
        if self._failures or not self._answered:
            log.info("IMDS answers; %d events", len(events))
        self._answered, self._failures, self._announced = True, 0, False
        for event in events:
            if self._name.lower() in map(str.lower, event.resources):
                self._notice(event)
        return self._timing.poll_s

    def _notice(self, event: Event) -> None:
        now = time.time()
        known = self._seen.get(event.id)
        self._seen[event.id] = event
        record = self._record(event, now)
        if known is None:
            log.info("%s %s (%s), %s", event.type, event.id, event.status, _notice_text(record))
            self._unwritten[event.id] = record
        if event.type not in LEAVING_TYPES:
            return
        self._announced, self._last_event_at = True, now
        stop_at = self._stop_at(event, now)
        if self._departure is None:
            self._departure = Departure(record=record, stop_at=stop_at)
        elif event.status == "Started" or event.not_before is not None or known is None:
            # One that gives no time keeps the deadline that its first sight gave it.
            self._departure.stop_at = min(self._departure.stop_at, stop_at)
        self._departure.events[event.id] = event

    def _stop_at(self, event: Event, now: float) -> float:
        if event.status == "Started":
            return now
        ends = event.not_before or now + self._timing.default_notice_s
        return ends - self._timing.margin_s

    def _leave(self, departure: Departure) -> None:
        """Drains the node, or stops it when its time is up; notes when it has left."""
        now = time.time()
        if departure.drained_until is None or departure.stop_at < departure.drained_until:
            attempt("mark that the node leaves", lambda: self._marks.set("leaving"))
            until, kind = departure.stop_at, departure.record.type
            message = f"Azure announced {kind} for {self._name}"
            if attempt("drain", lambda: self._node.drain(until, message)):
                departure.drained_until = until
        left = self._has_left()
        if left is False and departure.has_left:
            log.warning("the node joined again while it was to leave")
            departure.has_left, departure.drained_until = False, None
        elif left and not departure.has_left:
            departure.has_left = True
            self._finish(departure)
        elif not left and now >= departure.stop_at:
            departure.stopping = True
            attempt("stop the node", self._node.stop)

    def _has_left(self) -> bool | None:
        try:
            return self._node.has_left()
        except Exception as error:  # Ray's errors have no common class
            log.warning("could not see whether the node left: %s", error)
            return None

    def _finish(self, departure: Departure) -> None:
        seconds = time.time() - departure.record.noticed_at
        outcome = "deadline" if departure.stopping else "idle"
        departure.record = replace(departure.record, outcome=outcome, drain_s=round(seconds, 3))
        log.info("the node left after %.1f s (%s)", seconds, outcome)
        self._unwritten[departure.record.event] = departure.record

    def _write(self) -> None:
        """Writes down what happened, a turn later where that fails."""
        for event_id, record in list(self._unwritten.items()):
            if attempt("write down what happened", partial(self._report, record)):
                del self._unwritten[event_id]

    def _acknowledge(self, departure: Departure) -> None:
        """Lets Azure go on, for events of this VM alone: a start is a start for all VMs in it."""
        for event in departure.events.values():
            if event.id in departure.acknowledged or event.status == "Started":
                continue
            if len(event.resources) > 1:
                log.info("%s is left to its time: it is other VMs' as well", event.id)
            else:
                try:
                    self._imds.acknowledge(event.id)
                except ImdsError as error:
                    log.warning("could not acknowledge %s: %s", event.id, error)
                    if error.may_pass:
                        continue
                else:
                    log.info("acknowledged %s", event.id)
            departure.acknowledged.add(event.id)

    def _come_back(self) -> None:
        """Joins again where an event passed and did not take the VM, also an earlier watcher's."""
        gone_for = time.time() - self._last_event_at
        marked = self._departure is not None or self._marks.has("leaving")
        sure = self._answered and not self._failures and not self._announced
        if marked and sure and gone_for > self._timing.return_after_s:
            log.info("the event passed %.0f s ago: the node comes back", gone_for)
            self._departure = None
            self._seen.clear()
            self._node.forget()
            self._marks.clear("leaving")
            self._marks.set("return")

    def _record(self, event: Event, now: float) -> Record:
        return Record(
            node=self._name,
            group=self._group,
            event=event.id,
            type=event.type,
            noticed_at=now,
            notice_s=None if event.not_before is None else round(event.not_before - now, 3),
        )


def _notice_text(record: Record) -> str:
    return "no time given" if record.notice_s is None else f"in {record.notice_s:.0f} s"


def main(arguments: list[str]) -> int:
    """Watches until the process is ended."""
    parser = argparse.ArgumentParser(
        prog="sunspot.node.azure.eviction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    env = os.environ.get
    option = parser.add_argument
    option("--name", default=env("RAY_CLOUD_INSTANCE_ID"), help="this VM's name, Ray's node name")
    option("--role", choices=["worker", "head"], default="worker")
    option("--group", default=env("RAY_NODE_TYPE_NAME", ""), help="as metrics label the node")
    option("--gcs", default=env("RAY_ADDRESS"), metavar="HOST:PORT", help="default: RAY_ADDRESS")
    option("--imds", default=BASE_URL, metavar="URL", help="default: %(default)s")
    option("--margin", type=float, default=Timing.margin_s, metavar="S", help="stop it so early")
    option("--marks", type=Path, metavar="DIR", help="where to tell the machine; see leaving.Marks")
    option("--metrics-port", type=int, help="serve the cluster's counters on loopback (the head)")
    option("--prices", type=json.loads, default={}, metavar="JSON", help="USD an hour by group")
    given = parser.parse_args(arguments)
    for needed in ("name", "gcs"):
        if not getattr(given, needed):
            parser.error(f"--{needed} is missing, and the environment does not say it either")
    if given.role == "head" and given.marks is None:
        parser.error("a head needs --marks: Ray's unit is stopped by the machine")
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    # Read when Ray loads: its 30 s would be a whole notice. It loads now, for that takes seconds.
    os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "3")
    import ray._raylet  # noqa: F401

    journal, marks = Journal(given.gcs), Marks(given.marks)
    if given.metrics_port is not None:
        collectors = [metrics.Collector(journal), NodeCollector(given.gcs, given.prices)]
        metrics.serve(collectors, given.metrics_port)
    Watcher(
        name=given.name,
        group=given.group,
        imds=Imds(given.imds),
        node=Head(marks) if given.role == "head" else Worker(given.gcs, given.name),
        marks=marks,
        report=journal.write,
        timing=Timing(margin_s=given.margin),
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
