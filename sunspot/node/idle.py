"""Decides that a cluster is idle, says so in time, and has something done about it.

The same for all targets. `judge` is a function of numbers; `Watch` remembers when the cluster was
last used, and tells a `Cluster` what to say and to do; each target has its own `Cluster`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sunspot.node.events import Event, EventRecord
from sunspot.node.notices import Notice, Notices
from sunspot.node.usage import Seen

Action = Literal["workers", "stop-head", "warn"]
Phase = Literal["used", "quiet", "soon", "due"]

ABOUT = "idle"
KEEP_ALIVE = "keep-alive"

# It is said five minutes before; of a limit below ten minutes, after half of it.
NOTICE_S = 300.0
# How often is looked: twenty times within the limit, at least every half minute.
LOOKS, LEAST_POLL_S, MOST_POLL_S = 20, 0.5, 30.0
# What Azure refuses now, it may do later.
AGAIN_S = 300.0

WILL: Mapping[Action, str] = {
    "workers": "the workers are removed until the next use",
    "stop-head": "the cluster is suspended",
    "warn": "it counts as idle",
}
DONE: Mapping[Action, str] = {
    "workers": "the workers were removed; they come back with the next job, driver or keep-alive",
    "stop-head": "the cluster is being suspended; it comes back with: sunspot start {name}",
    "warn": "nobody needs it, as it seems: sunspot down {name}, or sunspot suspend {name}",
}

log = logging.getLogger(__name__)


class NotDoneError(Exception):
    """What was to be done to an idle cluster could not be done."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """After how many seconds without use what is done."""

    after_s: float
    action: Action

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Policy | None:
        """The policy of a stack's `sunspot:idle`, as plain values; None without one.

        Raises:
            KeyError, TypeError, ValueError: it is not one.
        """
        if given is None:
            return None
        after_s = float(given["after_minutes"]) * 60
        if given["action"] not in WILL or not 0 < after_s < math.inf:
            raise ValueError(f"{given!r} is not a policy for idle clusters")
        return cls(after_s=after_s, action=given["action"])

    @property
    def notice_s(self) -> float:
        """How long before it is said."""
        return min(NOTICE_S, self.after_s / 2)

    @property
    def poll_s(self) -> float:
        """How often to look."""
        return min(max(self.after_s / LOOKS, LEAST_POLL_S), MOST_POLL_S)


def judge(policy: Policy, idle_s: float, kept_s: float) -> tuple[Phase, float]:
    """What is so of a cluster, and in how many seconds something is done about it.

    Args:
        policy: the policy.
        idle_s: for how many seconds nothing has used it.
        kept_s: for how many seconds more somebody wants to keep it; 0 for not any longer.
    """
    left_s = max(policy.after_s - idle_s, kept_s, 0.0)
    if idle_s <= 0:
        return "used", left_s
    if left_s <= 0:
        return "due", left_s
    return ("soon" if left_s <= policy.notice_s else "quiet"), left_s


class Cluster(Protocol):
    """What a target's head knows of its cluster, and can do to it."""

    @property
    def name(self) -> str:
        """The stack's name."""
        ...

    @property
    def events(self) -> EventRecord:
        """What happened to it."""
        ...

    @property
    def notices(self) -> Notices:
        """What is said of it now."""
        ...

    def policy(self) -> Policy | None:
        """What is to be done when it is idle; None for nothing."""
        ...

    def look(self) -> Seen | None:
        """How it is used now; None if that cannot be seen."""
        ...

    def act(self, action: Action) -> None:
        """Removes the workers, or suspends the cluster; `action` is not "warn".

        Raises:
            NotDoneError: it could not.
        """
        ...

    def wake(self) -> None:
        """Lets the workers come back that `act` has removed; nothing if it has not.

        Raises:
            NotDoneError: it could not.
        """
        ...


class Watch:
    """Looks at a cluster again and again.

    Args:
        cluster: the cluster.
        clock: seconds that only grow.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._last_use = clock()
        self._not_before = -math.inf
        # Not None: what was said before the head stopped is taken back.
        self._said: str | None = ""
        self._announced_for: float | None = None
        self._done: Action | None = None

    def step(self) -> float:
        """Looks once, and does what has to be done; returns after how many seconds to look again.

        A cluster that cannot be seen is neither used nor due: its time goes on, and nothing is
        done until it is seen again.
        """
        policy = self._cluster.policy()
        if policy is None:
            self._wake()
            self._say(None)
            self._last_use = self._clock()
            return MOST_POLL_S
        seen, now, kept_s = self._cluster.look(), self._clock(), kept(self._cluster.notices)
        if seen is not None:
            self._last_use = max(self._last_use, now - (0.0 if seen.uses else seen.ended_s))
        idle_s = now - self._last_use
        phase, left_s = judge(policy, idle_s, kept_s)
        if self._done not in {None, policy.action} or phase != "due":
            self._wake()
        if phase in {"used", "quiet"}:
            self._say(None)
        elif phase == "soon":
            self._say(policy, left_s)
        elif seen is not None and self._done is None:
            self._due(policy, idle_s)
        return policy.poll_s

    def _due(self, policy: Policy, idle_s: float) -> None:
        """Acts, but never unannounced: a keep-alive may end long after the policy's time."""
        if self._announced_for is None:
            self._say(policy, policy.notice_s)
        elif self._clock() >= max(self._not_before, self._announced_for):
            self._act(policy, idle_s)

    def _act(self, policy: Policy, idle_s: float) -> None:
        minutes = f"nothing has used it for {idle_s / 60:.3g} minutes"
        done = DONE[policy.action].format(name=self._cluster.name)
        self._tell(f"{minutes}: {done}", "idle")
        try:
            if policy.action != "warn":
                self._cluster.act(policy.action)
        except NotDoneError as error:
            self._not_before = self._clock() + AGAIN_S
            self._tell(f"{minutes}, but {WILL[policy.action]} only later: {error}", "idle")
        else:
            self._done = policy.action

    def _wake(self) -> None:
        if self._done is None:
            return
        try:
            self._cluster.wake()
        except NotDoneError as error:
            log.error("the workers do not come back yet: %s", error)
            return
        if self._done == "workers":
            self._cluster.events.add(
                Event(kind="idle", group="", reason="used again: the workers come back")
            )
        self._done = None

    def _say(self, policy: Policy | None, left_s: float = 0.0) -> None:
        """Says what is about to be done, once; takes back what was said if that is nothing."""
        if policy is None:
            if self._said is not None:
                self._cluster.notices.drop(ABOUT)
            self._said = self._announced_for = None
        elif self._announced_for is None:
            self._announced_for = self._clock() + left_s
            at = time.strftime("%H:%M:%S %Z", time.localtime(time.time() + left_s))
            self._tell(
                f"nothing uses it: at {at} {WILL[policy.action]}. To keep it: sunspot keep-alive "
                f"{self._cluster.name} 2h",
                "idle",
            )

    def _tell(self, text: str, kind: Literal["idle"]) -> None:
        self._said = text
        log.warning("%s", text)
        self._cluster.notices.put(Notice(about=ABOUT, text=text))
        self._cluster.events.add(Event(kind=kind, group="", reason=text))


def watch(cluster: Cluster, goes_on: Callable[[], bool]) -> None:
    """Looks at a cluster again and again, as long as that makes sense."""
    watch = Watch(cluster)
    while goes_on():
        pause = MOST_POLL_S
        try:
            pause = watch.step()
        except Exception:  # such as a full disk: what comes next may be right again
            log.exception("could not look after the cluster")
        time.sleep(pause)


def kept(notices: Notices) -> float:
    """For how many seconds more somebody wants to keep a cluster."""
    ends = [one.until or 0.0 for one in notices.read() if one.about == KEEP_ALIVE]
    return max([0.0, *(end - time.time() for end in ends)])


def keep_alive(notices: Notices, seconds: float) -> float:
    """Keeps a cluster for so long, whether it is used or not; returns when that ends.

    The end is in seconds since the epoch. 0 seconds end what was said before.

    Raises:
        OSError: the notices cannot be written.
    """
    until = time.time() + seconds
    if seconds <= 0:
        notices.drop(KEEP_ALIVE)
        return until
    at = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(until))
    notices.put(Notice(about=KEEP_ALIVE, text=f"kept until {at}, idle or not", until=until))
    return until
