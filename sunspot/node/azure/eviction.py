"""Turns an eviction notice into a drain: `python -m sunspot.node.azure.eviction --name NAME`

It polls IMDS for scheduled events every second. When Azure is about to take this VM (Preempt,
Terminate) or to restart it (Reboot, Redeploy), the Ray node drains: it takes no new work, running
tasks may end, Ray Train saves a checkpoint. When the node is idle, or shortly before the deadline,
the raylet is stopped, so that the cluster learns at once that the node is gone; then the event is
acknowledged. A Freeze (a pause of seconds) is only logged. Events of other VMs are ignored.

Reads the token's variables (RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH) from the environment.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from sunspot.node import metrics
from sunspot.node.attendance import Attendance
from sunspot.node.azure.imds import BASE_URL, Event, Imds, ImdsError
from sunspot.node.azure.live import Live
from sunspot.node.azure.record import HeadRecord
from sunspot.node.collector import NodeCollector
from sunspot.node.leaving import Head, Marks, Node, Worker, attempt
from sunspot.node.members import GcsMembers
from sunspot.node.metrics import Entry, EventLog
from sunspot.node.record_metrics import RecordCollector

# The events that remove or restart the VM (Microsoft, "Scheduled Events for Linux VMs").
LEAVING_TYPES = {"Preempt", "Terminate", "Reboot", "Redeploy"}
TOO_MANY_REQUESTS = 429

# An entry takes seconds to write if the GCS is slow, so none is written this close to a deadline.
WRITE_TIME_S = 10.0

log = logging.getLogger("sunspot.eviction")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Durations in seconds.

    Attributes:
        poll_s: between two polls. Microsoft advises one per second; IMDS allows a VM five.
        margin_s: how long before the deadline the node is stopped.
        default_notice_s: the notice of an event without a deadline: the shortest, Preempt's.
        first_answer_s: timeout of the call that enables the service, which takes up to 2 minutes.
        answer_s: timeout of later calls.
        leaving_answer_s: timeout of calls before a deadline.
        throttled_s: the pause after a 429.
        return_after_s: an event that has been gone this long did not take the VM.
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
    """A node that is leaving. Times are in seconds since the epoch."""

    entry: Entry
    stop_at: float
    drained_until: float | None = None
    stopping: bool = False
    has_left: bool = False
    events: dict[str, Event] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)


class Watcher:
    """Watches the events of the VM `name`; each `turn` polls them once and acts on the answer.

    Args:
        name: the VM's name.
        group: the node's group, or its node type.
        imds: the client of IMDS.
        node: this machine's Ray node.
        marks: the files that signal to the container's host.
        report: writes an entry of the event log.
        timing: durations.
    """

    def __init__(
        self,
        *,
        name: str,
        group: str,
        imds: Imds,
        node: Node,
        marks: Marks,
        report: Callable[[Entry], None],
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
        self._unwritten: dict[str, Entry] = {}
        self._departure: Departure | None = None
        self._answered = False
        self._failures = 0
        self._announced = False
        self._last_event_at = time.time()

    def run(self) -> None:
        """Watches forever."""
        while True:
            began, pause = time.monotonic(), self._timing.poll_s
            try:
                pause = self.turn()
            except Exception:  # after any error, the next notice must still be seen
                log.exception("a turn failed")
            time.sleep(max(0.0, pause - (time.monotonic() - began)))

    def turn(self) -> float:
        """Polls once and acts on the answer; returns the seconds from its start to the next."""
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
        # The stop must not be late; once it has begun there is no other deadline.
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
                log.warning("no answer from IMDS, %d in a row: %s", self._failures, error)
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
        entry = self._new_entry(event, now)
        if known is None:
            log.info("%s %s (%s), %s", event.type, event.id, event.status, _notice_text(entry))
            self._unwritten[event.id] = entry
        if event.type not in LEAVING_TYPES:
            return
        self._announced, self._last_event_at = True, now
        stop_at = self._stop_at(event, now)
        if self._departure is None:
            self._departure = Departure(entry=entry, stop_at=stop_at)
        elif event.status == "Started" or event.not_before is not None or known is None:
            # An event without a time keeps the deadline from when it was first seen.
            self._departure.stop_at = min(self._departure.stop_at, stop_at)
        self._departure.events[event.id] = event

    def _stop_at(self, event: Event, now: float) -> float:
        if event.status == "Started":
            return now
        ends = event.not_before or now + self._timing.default_notice_s
        return ends - self._timing.margin_s

    def _leave(self, departure: Departure) -> None:
        """Drains the node, or stops it at its deadline; notes when it has left."""
        now = time.time()
        if departure.drained_until is None or departure.stop_at < departure.drained_until:
            attempt("mark that the node leaves", lambda: self._marks.set("leaving"))
            until, kind = departure.stop_at, departure.entry.type
            message = f"Azure announced {kind} for {self._name}"
            if attempt("drain", lambda: self._node.drain(until, message)):
                departure.drained_until = until
        left = self._has_left()
        if left is False and departure.has_left:
            log.warning("the node joined again although it was leaving")
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
        seconds = time.time() - departure.entry.noticed_at
        outcome = "deadline" if departure.stopping else "idle"
        departure.entry = replace(departure.entry, outcome=outcome, drain_s=round(seconds, 3))
        log.info("the node left after %.1f s (%s)", seconds, outcome)
        self._unwritten[departure.entry.event] = departure.entry

    def _write(self) -> None:
        """Writes the new entries of the event log; those that fail are left for the next turn."""
        for event_id, entry in list(self._unwritten.items()):
            if attempt("write to the event log", partial(self._report, entry)):
                del self._unwritten[event_id]

    def _acknowledge(self, departure: Departure) -> None:
        """Lets Azure start the events of only this VM: an acknowledgement is for all VMs in one."""
        for event in departure.events.values():
            if event.id in departure.acknowledged or event.status == "Started":
                continue
            if len(event.resources) > 1:
                log.info("%s is not acknowledged: it affects other VMs as well", event.id)
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
        """Rejoins if an event passed without taking the VM, also if an earlier watcher saw it."""
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

    def _new_entry(self, event: Event, now: float) -> Entry:
        return Entry(
            node=self._name,
            group=self._group,
            event=event.id,
            type=event.type,
            noticed_at=now,
            notice_s=None if event.not_before is None else round(event.not_before - now, 3),
        )


def _notice_text(entry: Entry) -> str:
    return "no time given" if entry.notice_s is None else f"in {entry.notice_s:.0f} s"


def main(arguments: list[str]) -> int:
    """Watches until the process is killed."""
    parser = argparse.ArgumentParser(
        prog="sunspot.node.azure.eviction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    env = os.environ.get
    option = parser.add_argument
    option("--name", default=env("RAY_CLOUD_INSTANCE_ID"), help="this VM's name, Ray's node name")
    option("--role", choices=["worker", "head"], default="worker")
    option("--group", default=env("RAY_NODE_TYPE_NAME", ""), help="the node's group in metrics")
    option("--gcs", default=env("RAY_ADDRESS"), metavar="HOST:PORT", help="default: RAY_ADDRESS")
    option("--imds", default=BASE_URL, metavar="URL", help="default: %(default)s")
    option("--margin", type=float, default=Timing.margin_s, metavar="S", help="before the deadline")
    option("--marks", type=Path, metavar="DIR", help="files for the host; see leaving.Marks")
    option("--record", type=Path, metavar="DIR", help="the cluster's record (the head)")
    option("--metrics-port", type=int, help="serve the cluster's counters on loopback (the head)")
    given = parser.parse_args(arguments)
    for needed in ("name", "gcs"):
        if not getattr(given, needed):
            parser.error(f"--{needed} is missing, and the environment does not have it either")
    if given.role == "head" and given.marks is None:
        parser.error("a head needs --marks: its host stops Ray's unit")
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    # Ray reads this when it loads; its default of 30 s is a whole notice. Loading takes seconds.
    os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "3")
    import ray._raylet  # noqa: F401

    event_log, marks, imds = EventLog(given.gcs), Marks(given.marks), Imds(given.imds)
    live = Live(imds)
    collectors: list[object] = [
        metrics.EvictionCollector(event_log),
        NodeCollector(given.gcs, lambda: live.latest().prices),
    ]
    if given.record is not None:
        record = HeadRecord(given.record)
        attendance = Attendance(
            head=given.name,
            members=GcsMembers(given.gcs),
            events=record.events,
            scaled=lambda: live.latest().elastic_types(),
            beat=record.beat,
        )
        collectors.append(RecordCollector(record, live.latest, lambda: attendance.markets))
        threading.Thread(target=attendance.run, name="attendance", daemon=True).start()
    if given.metrics_port is not None:
        metrics.serve(collectors, given.metrics_port)
    Watcher(
        name=given.name,
        group=given.group,
        imds=imds,
        node=Head(marks) if given.role == "head" else Worker(given.gcs, given.name),
        marks=marks,
        report=event_log.write,
        timing=Timing(margin_s=given.margin),
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
