"""The reaction to a refused launch: on-demand machines instead of spot, and a pause.

Ray requests a refused type again at every tick, and prefers the type with the higher `priority`.
It re-reads its config file at every tick (both: ray/autoscaler/v2, 2.60), so we control it by
writing to that file.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from sunspot.node.asleep import CLOSED
from sunspot.node.autoscaler_config import COOLED_PRIORITY, PAUSED_PRIORITY, SPOT_PRIORITY
from sunspot.node.files import write_private
from sunspot.node.machines import (
    AtMaximumError,
    LaunchDeniedError,
    LaunchRefusedError,
    Machine,
)

COOL_DOWN_S = 600.0
"""How long on-demand machines are preferred after spot was refused."""

ASK_AGAIN_S = 60.0
"""How long a type that was just refused or denied is not requested again."""

log = logging.getLogger(__name__)


class Fallback:
    """Keeps the autoscaler's config file up to date with the recent refusals. Thread-safe.

    While spot is refused, its on-demand twin has the higher priority, and provides the workers of
    the group's minimum that spot does not. Nodes above a maximum that was lowered are not stopped.

    Args:
        config_file: the autoscaler's config file.
        twins: the on-demand node types by their spot types.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        config_file: Path,
        twins: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = config_file
        self._twins = dict(twins)
        self._clock = clock
        self._lock = threading.Lock()
        self._refused_at: dict[str, float] = {}
        self._denied: dict[str, tuple[float, str]] = {}  # when, and why
        self._full: dict[str, tuple[float, str, int]] = {}  # and with how many machines
        self._short: set[str] = set()  # spot types that are below their minimum
        self._here: Counter[str] = Counter()  # machines by node type, at the last tick
        self._paused: Set[str] = frozenset()
        self._most: dict[str, int] = {}  # machines of each type that is followed
        self._closed = False

    def check(self, node_type: str) -> None:
        """Checks that a type may be requested now.

        Raises:
            LaunchRefusedError: the type was refused too recently to request it again.
            AtMaximumError: its group was full too recently, and no machine has gone since.
            LaunchDeniedError: it was denied too recently, for this reason; or it is an on-demand
                one whose spot type is not refused, which Ray wants when all spot ones are there.
        """
        with self._lock:
            if self._is_needless(node_type):
                raise LaunchDeniedError(f"{node_type}: only while Azure refuses spot")
            wait = self._since_refusal(node_type, ASK_AGAIN_S)
            denied_at, reason = self._denied.get(node_type, (-math.inf, ""))
            full_at, full, count = self._full.get(node_type, (-math.inf, "", 0))
            is_full = count == self._here_of_group(node_type)
        if self._clock() < denied_at + ASK_AGAIN_S:
            raise LaunchDeniedError(reason)
        if is_full and self._clock() < full_at + ASK_AGAIN_S:
            raise AtMaximumError(full)
        if wait > 0:
            raise LaunchRefusedError(
                f"{node_type}: refused recently, requested again in {wait:.0f} s"
            )

    def refused(self, node_type: str) -> bool:
        """Notes a refusal, for Ray's next tick to see its effect; whether it is the first one."""
        with self._lock:
            first = self._since_refusal(node_type, COOL_DOWN_S) == 0
            self._refused_at[node_type] = self._clock()
            self._short.add(node_type)
            self._write()
            return first

    def denied(self, node_type: str, reason: str) -> bool:
        """Notes that the head may not create the type; whether it is the first time.

        Priorities stay as they are.
        """
        with self._lock:
            first = node_type not in self._denied
            self._denied[node_type] = (self._clock(), reason)
            return first

    def full(self, node_type: str, reason: str) -> None:
        """Notes that the type's group has its maximum, until one of its machines goes."""
        with self._lock:
            self._full[node_type] = (self._clock(), reason, self._here_of_group(node_type))

    def pause(self, node_types: Set[str]) -> None:
        """Notes the types that get no machines for now: Ray prefers every other one that fits.

        Their maximum stays: Ray ends a task that no node type can ever hold.
        """
        with self._lock:
            if node_types != self._paused:
                self._paused = frozenset(node_types)
                self._write()

    def granted(self, node_type: str) -> None:
        """Notes that machines of the type were available."""
        with self._lock:
            self._refused_at.pop(node_type, None)
            self._denied.pop(node_type, None)

    def update(self, machines: Sequence[Machine]) -> None:
        """Notes the machines, at each tick; restores priorities whose cool-down is over."""
        with self._lock:
            self._here = Counter(machine.node_type for machine in machines)
            self._write()

    def follow(self, config: Mapping[str, Any]) -> None:
        """Writes another config for Ray's next tick.

        Types that it lacks stay in the file, with no more nodes than there are: Ray fails at each
        tick at a listed node whose type is not in the file (2.60). Those that are fixed from now on
        go, since their nodes are no longer listed.
        """
        with self._lock:
            before = json.loads(self._file.read_text(encoding="utf-8"))["available_node_types"]
            for name in config["provider"]["fixed"]:
                before.pop(name, None)
            gone = {"min_workers": 0, "max_workers": 0}
            types = {name: {**kind, **gone} for name, kind in before.items()}
            types |= {name: dict(kind) for name, kind in config["available_node_types"].items()}
            self._twins = dict(config["provider"]["twins"])
            self._denied.clear()  # the edit may have been the answer
            self._full.clear()
            for name, kind in types.items():
                if name in before and before[name]["resources"] != kind["resources"]:
                    self._refused_at.pop(name, None)
                    self._short.discard(name)
            head = config["head_node_type"]
            self._most = {name: one["max_workers"] for name, one in types.items() if name != head}
            self._closed = config["provider"].get(CLOSED, False)
            self._steer_all(types)
            self._save({**config, "available_node_types": types})

    def _here_of_group(self, node_type: str) -> int:
        """How many machines of the type's group there were at the last tick."""
        pairs = [{spot, twin} for spot, twin in self._twins.items() if node_type in {spot, twin}]
        return sum(self._here[name] for name in {node_type}.union(*pairs))

    def _is_needless(self, node_type: str) -> bool:
        """Whether it is an on-demand type whose spot type was not refused lately."""
        spot = {twin: spot for spot, twin in self._twins.items()}.get(node_type)
        if spot is None or spot in self._short:
            return False
        return self._since_refusal(spot, COOL_DOWN_S) == 0

    def _since_refusal(self, node_type: str, period: float) -> float:
        """The seconds of `period` that are left since the type was refused; 0 if none."""
        at = self._refused_at.get(node_type)
        return 0.0 if at is None else max(0.0, at + period - self._clock())

    def _write(self) -> None:
        if not self._twins and not self._paused and not self._most:
            return
        text = self._file.read_text(encoding="utf-8")
        config = json.loads(text)
        before = json.dumps(config["available_node_types"])
        self._steer_all(config["available_node_types"])
        if json.dumps(config["available_node_types"]) != before:
            self._save(config)

    def _save(self, config: Mapping[str, Any]) -> None:
        if self._most:
            most = sum(kind["max_workers"] for kind in config["available_node_types"].values())
            config = {**config, "max_workers": most}
        write_private(self._file, json.dumps(config, separators=(",", ":")))

    def _steer_all(self, types: dict[str, dict[str, Any]]) -> None:
        # Ray stops the nodes above a maximum whatever runs on them (RayStopper, 2.60): those that
        # are there may stay until they are idle, or drained.
        for name in self._most.keys() & types.keys():
            types[name]["max_workers"] = max(self._most[name], self._here[name])
        for spot, twin in self._twins.items():
            self._steer(types, spot, twin)
        for name in self._paused & types.keys():
            types[name]["priority"] = PAUSED_PRIORITY
        if self._closed:  # nothing uses the cluster: a worker that is never idle goes as well
            for name in self._most.keys() & types.keys():
                types[name]["max_workers"] = 0

    def _steer(self, types: dict[str, dict[str, Any]], spot: str, twin: str) -> None:
        cooled = self._since_refusal(spot, COOL_DOWN_S) > 0
        missing = max(0, types[spot]["min_workers"] - self._here[spot])
        if not missing and not cooled:
            self._short.discard(spot)
        types[spot]["priority"] = COOLED_PRIORITY if cooled else SPOT_PRIORITY
        types[twin]["min_workers"] = missing if spot in self._short else 0
        if self._most:
            # Otherwise Ray asks at each tick for what more work waits than all spot ones can take.
            left = 0 if self._is_needless(twin) else self._most[spot] - self._here[spot]
            least = max(self._here[twin], types[twin]["min_workers"])
            types[twin]["max_workers"] = max(left, least)
