"""Looks after a cluster on Azure that may be idle, on its head: `python -m sunspot.node.azure.idle`

It runs in a container of Ray's image, beside Ray's own. The VM's SSH sessions are in a file that a
process of the VM itself writes (usage.py).
The policy is in the VM's user data, like all that a running cluster may change. Workers of the
autoscaler go because a lease in the head's record says so, which the autoscaler's provider reads;
those of fixed groups because their scale sets get the capacity 0. A head that stops is deallocated
through Azure Resource Manager, with the head's own identity.

    python -m sunspot.node.azure.idle --keep-alive SECONDS

keeps the cluster for so long, and prints when that ends, in seconds since the epoch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sunspot.node.asleep import How
from sunspot.node.azure.arm import Answer, Arm, ArmError, OperationFailedError
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.live import Live
from sunspot.node.azure.record import HeadRecord
from sunspot.node.azure.vms import Vm, capacity_of, vm_of
from sunspot.node.events import EventRecord
from sunspot.node.files import write_private
from sunspot.node.idle import Action, NotDoneError, Policy, keep_alive, watch
from sunspot.node.notices import Notices
from sunspot.node.usage import Dashboard, Seen, UnseenError, told_sessions

COMPUTE_VERSION = "2024-11-01"
# How long workers may take to go, and a change of Azure's.
GO_S, CHANGE_S, POLL_S = 900.0, 300.0, 5.0
DRAIN_S = 30.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the cluster is in Azure: the ARM id of its resource group, the name of its head."""

    group_id: str
    head: str

    @property
    def compute(self) -> str:
        """What the ids of its machines begin with."""
        return f"{self.group_id}/providers/Microsoft.Compute"


class Drain:
    """Drains nodes of the cluster whose GCS is at HOST:PORT."""

    def __init__(self, gcs: str) -> None:
        self._gcs = gcs

    def __call__(self, names: Sequence[str], seconds: float) -> None:
        """Lets tasks on these nodes end, which an idle cluster has none of but the newest."""
        if not names:
            return
        from sunspot.node import drain, gcs

        try:
            client = gcs.connect(self._gcs)
            alive = gcs.alive_nodes(client)
            ids = {alive[name] for name in names if name in alive}
            drain.drain(client, ids, seconds, "removed: nothing uses the cluster")
        except Exception:  # Ray's errors have no common class; the nodes go all the same
            log.exception("could not drain %s", ", ".join(names))


class HeadCluster:
    """The cluster of this head.

    Args:
        place: where it is in Azure.
        live: its settings.
        look: how the cluster is used now, as its dashboard says.
        arm: the client of ARM.
        record: the head's record.
        drain: drains the nodes of these names for at most so many seconds.
        sessions: the file with the SSH sessions on the head's VM.
    """

    def __init__(
        self,
        *,
        place: Place,
        live: Live,
        look: Callable[[], Seen],
        arm: Arm,
        record: HeadRecord,
        drain: Callable[[Sequence[str], float], None],
        sessions: Path,
    ) -> None:
        self._place = place
        self._live = live
        self._look = look
        self._arm = arm
        self._record = record
        self._drain = drain
        self._sessions = sessions
        self._how: How | None = None
        self._given: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        return str(self._given.get("stack", ""))

    @property
    def events(self) -> EventRecord:
        return self._record.events

    @property
    def notices(self) -> Notices:
        return self._record.notices

    def policy(self) -> Policy | None:
        self._renew()
        given = self._live.latest().idle
        self._given = given or {}
        return Policy.of(given)

    def look(self) -> Seen | None:
        self._renew()
        try:
            return self._look() + told_sessions(self._sessions)
        except UnseenError as error:
            log.warning("%s", error)
            return None

    def act(self, action: Action) -> None:
        """Removes the workers; for "stop-head", deallocates the head when they are gone."""
        try:
            self._hold("asleep" if action == "workers" else "closed")
            self._empty_fixed_sets()
            if action == "stop-head":
                self._wait_until_alone()
                self._stop_head()
        except (ArmError, OSError, NotDoneError) as error:
            with contextlib.suppress(NotDoneError):
                self.wake()
            raise NotDoneError(str(error)) from error

    def wake(self) -> None:
        """Lets the autoscaler go on, and gives fixed groups the workers that they had."""
        self._how = None
        self._record.lease.drop()
        try:
            for name, capacity in self._kept().items():
                if self._capacity(name) == 0:  # nobody has given it workers meanwhile
                    log.info("%s gets its %d workers back", name, capacity)
                    self._resize(name, capacity)
            self._record.fixed.unlink(missing_ok=True)
        except (ArmError, OSError) as error:
            raise NotDoneError(str(error)) from error

    def _hold(self, how: How) -> None:
        self._how = how
        self._record.lease.put(how)

    def _renew(self) -> None:
        """Holds the lease on; where this process ends, the autoscaler goes on after a while."""
        if self._how is not None:
            self._record.lease.put(self._how)

    # Fixed groups

    def _empty_fixed_sets(self) -> None:
        found = {name: self._capacity(name) for name in self._given.get("fixed", ())}
        full = {name: count for name, count in found.items() if count}
        if not full:
            return
        write_private(self._record.fixed, json.dumps({**self._kept(), **full}))
        wanted = {name.lower() for name in full}
        self._drain([vm.name for vm in self._vms() if vm.scale_set.lower() in wanted], DRAIN_S)
        for name in full:
            self._resize(name, 0)

    def _kept(self) -> dict[str, int]:
        """The capacities of fixed sets before they were emptied."""
        try:
            return {str(k): int(v) for k, v in json.loads(self._record.fixed.read_text()).items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def _capacity(self, scale_set: str) -> int:
        path = f"{self._place.compute}/virtualMachineScaleSets/{scale_set}"
        return capacity_of(self._arm.get(path, COMPUTE_VERSION).body)

    def _resize(self, scale_set: str, capacity: int) -> None:
        path = f"{self._place.compute}/virtualMachineScaleSets/{scale_set}"
        found = self._arm.get(path, COMPUTE_VERSION)
        if capacity_of(found.body) == capacity:
            return
        body = {"sku": {**found.body["sku"], "capacity": capacity}}
        self._follow(self._arm.send("PATCH", path, COMPUTE_VERSION, body, found.etag))

    def _follow(self, answer: Answer) -> None:
        """Waits for a change that Azure has begun, as long as it can be seen how far it is.

        That needs a right beside the change's own (taskcluster/taskcluster#8594:
        locations/operations/read), which a role for one resource does not give.
        """
        try:
            self._arm.wait(answer, CHANGE_S)
        except OperationFailedError:
            raise
        except ArmError as error:
            log.warning("Azure has begun, and its progress cannot be seen: %s", error)

    # The head

    def _vms(self) -> Iterator[Vm]:
        for page in self._arm.pages(f"{self._place.compute}/virtualMachines", COMPUTE_VERSION):
            yield from (vm for vm in map(vm_of, page) if vm.scale_set)

    def _wait_until_alone(self) -> None:
        """Waits until every worker is gone, or about to be.

        Raises:
            NotDoneError: that took too long, or the cluster is used again.
        """
        deadline = time.monotonic() + GO_S
        while left := [vm.name for vm in self._vms() if vm.state != "deleting"]:
            seen = self.look()
            if seen is not None and seen.uses:
                raise NotDoneError(f"it is used again, by {seen.uses[0]}")
            if time.monotonic() > deadline:
                raise NotDoneError(f"{', '.join(left)} did not go within {GO_S:.0f} s")
            time.sleep(POLL_S)

    def _stop_head(self) -> None:
        log.warning("the head deallocates itself; bring it back with: sunspot start %s", self.name)
        path = f"{self._place.compute}/virtualMachines/{self._place.head}/deallocate"
        self._follow(self._arm.send("POST", path, COMPUTE_VERSION, None))


def main(arguments: list[str]) -> int:
    """Looks after the cluster until the process is killed, or keeps the cluster."""
    parser = argparse.ArgumentParser(
        prog="sunspot.node.azure.idle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option, record = parser.add_argument, HeadRecord()
    option("--keep-alive", type=float, metavar="SECONDS", help="keep the cluster for so long")
    option("--group-id", default="", help="the ARM id of the resource group")
    option("--identity", default="", help="the client id of the head's identity")
    option("--imds", default="", metavar="URL")
    option("--dashboard-port", type=int, default=8265)
    option("--sessions", type=Path, default=Path("/run/sunspot/sessions/ssh"))
    given = parser.parse_args(arguments)
    if given.keep_alive is not None:
        print(keep_alive(record.notices, given.keep_alive))
        return 0
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    imds = Imds(given.imds, given.identity)
    cluster = HeadCluster(
        place=Place(group_id=given.group_id, head=os.environ["RAY_CLOUD_INSTANCE_ID"]),
        live=Live(imds),
        look=Dashboard(
            host="127.0.0.1",
            port=given.dashboard_port,
            token=Path(os.environ["RAY_AUTH_TOKEN_PATH"]),
        ).look,
        arm=Arm(imds),
        record=record,
        drain=Drain(os.environ["RAY_ADDRESS"]),
        sessions=given.sessions,
    )
    # What a head before this one, or this process before its restart, has emptied.
    with contextlib.suppress(NotDoneError):
        cluster.wake()
    watch(cluster, lambda: True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
