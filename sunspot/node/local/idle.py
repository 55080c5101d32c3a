"""Looks after a local cluster that may be idle: `python -m sunspot.node.local.idle FOLDER COMMAND`

It is one of the cluster's processes, follows the policy in the cluster's record, and ends with the
cluster's head. COMMAND suspends the cluster, and ends this process with all others.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sunspot.node.events import EventRecord
from sunspot.node.idle import Action, NotDoneError, Policy, watch
from sunspot.node.local import ray_start, sizes
from sunspot.node.local.folder import (
    CLUSTER_VARIABLE,
    HEAD,
    BrokenRecordError,
    ClusterFolder,
)
from sunspot.node.notices import Notices
from sunspot.node.processes import Process
from sunspot.node.usage import Dashboard, Seen, UnseenError

NAME = "idle"
"""The name under which this process is recorded, beside those of nodes."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LocalCluster:
    """A cluster of this machine. `suspend` is the command that suspends it."""

    folder: ClusterFolder
    suspend: Sequence[str]

    @property
    def name(self) -> str:
        return self.folder.cluster().name

    @property
    def events(self) -> EventRecord:
        return self.folder.events

    @property
    def notices(self) -> Notices:
        return self.folder.notices

    def policy(self) -> Policy | None:
        return Policy.of(self.folder.cluster().stack.get("idle"))

    def look(self) -> Seen | None:
        port = self.folder.cluster().dashboard_port
        try:
            return Dashboard(host=ray_start.LOOPBACK, port=port, token=self.folder.token).look()
        except UnseenError as error:
            log.warning("%s", error)
            return None

    def act(self, action: Action) -> None:
        if action == "workers":
            try:
                sizes.sleep(self.folder)
            except (BrokenRecordError, OSError) as error:
                raise NotDoneError(str(error)) from error
            return
        # Not one of the cluster's processes, all of which it ends.
        own = {name: value for name, value in os.environ.items() if name != CLUSTER_VARIABLE}
        done = subprocess.run(
            self.suspend, env=own, check=False, start_new_session=True, stdin=subprocess.DEVNULL
        )
        raise NotDoneError(f"{' '.join(self.suspend)} ended with {done.returncode}")

    def wake(self) -> None:
        try:
            sizes.wake(self.folder)
        except (BrokenRecordError, OSError) as error:
            raise NotDoneError(str(error)) from error


def main(arguments: list[str]) -> int:
    """Looks after the cluster until its head is gone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    folder, *suspend = arguments
    cluster = LocalCluster(ClusterFolder(Path(folder)), suspend)
    cluster.folder.record_process(NAME, Process.current())
    watch(cluster, lambda: cluster.folder.is_running(HEAD))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
