"""What a followed job waits for in vain: an address, nodes that cannot be, or only free CPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sunspot.ray import demand, hints
from sunspot.ray.addresses import AddressWatch
from sunspot.ray.demand import TIMEOUT_S, Waiting
from sunspot.ray.feasibility import NodeType
from sunspot.ray.jobs import Job, JobClient

# `ray stop`, in a shell's words or in a list's; not behind a comment sign.
_STOPS_RAY = re.compile(r"""^[^#\n]*\bray(?:[ \t]+|["'],\s*["'])stop\b""", re.MULTILINE)
_PROGRAMS = (".py", ".sh")


class JobWatch:
    """Looks on while a job is followed, and tells each thing once; a `following.Watch`.

    Args:
        client: the job API of the job's cluster.
        types: the node types that the cluster's stack declares.
        note: gets what is usual and passes.
        warn: gets what does not pass.
    """

    def __init__(
        self,
        client: JobClient,
        types: Sequence[NodeType],
        note: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._client, self._types, self._note, self._warn = client, types, note, warn
        self._addresses = AddressWatch(client.handle, warn)
        self._warned: set[str] = set()
        self._noted = False
        self._before: set[str] = set()

    def program(self, entrypoint: Sequence[str], directory: Path) -> None:
        """Looks at the program before it runs."""
        self._addresses.program(entrypoint, directory)
        if any(map(_STOPS_RAY.search, _texts(entrypoint, directory))):
            self._warn(
                "the program says `ray stop`, which ends all of Ray on the machine where it runs: "
                "this cluster's nodes, and the job. Remove it; ray.init() finds the cluster"
            )

    def printed(self, text: str) -> None:
        """Looks at the next piece of what the job prints."""
        self._addresses.printed(text)

    def running(self, job: Job) -> None:
        """Asks the cluster what the job's tasks, actors and placement groups wait for.

        Raises:
            SunspotError: the cluster does not answer.
        """
        asked = demand.waiting(self._client, job.ray_id) if job.ray_id else []
        nodes = self._client.state("nodes", timeout=TIMEOUT_S) if asked else []
        types = demand.cluster_types(self._types, nodes)
        waits = []
        for one in asked:
            if why := demand.never(one, types):
                self._tell_never(job, one, why)
            else:
                waits.append(one)
        alive = sum(node["state"] == "ALIVE" for node in nodes)
        self._tell_full(waits, alive, sum(one.most for one in types))

    def of_failure(self, job: Job) -> list[str]:
        """What to say about a job that has failed."""
        return hints.of_failure(job.message, self._types)

    def _tell_never(self, job: Job, asked: Waiting, why: str) -> None:
        key = _key(asked)
        if key not in self._warned:
            self._warned.add(key)
            self._warn(
                f"the job waits for what this cluster can never give: {asked}. {why}. "
                f"{demand.REMEDY}; to stop it: sunspot stop {job.id}"
            )

    def _tell_full(self, waits: Sequence[Waiting], alive: int, most: int) -> None:
        """Tells once of what waits for the second time, while no node has room for it."""
        old = [one for one in waits if _key(one) in self._before]
        self._before = {_key(one) for one in waits}
        if self._noted or not old:
            return
        free = demand.free(self._client.node_summary())
        for one in old:
            if not demand.has_room(one.bundles[0], free):
                self._noted = True
                self._note(
                    f"waiting for free {demand.scarce(one.bundles[0])}: {one} "
                    f"({alive} of at most {most} nodes are up)"
                )
                return


def _texts(entrypoint: Sequence[str], directory: Path) -> Iterator[str]:
    """The command line, and the programs in it that can be read."""
    yield " ".join(entrypoint)
    for word in entrypoint:
        if word.endswith(_PROGRAMS):
            try:
                yield (directory / word).read_text(encoding="utf-8")
            except (OSError, ValueError):
                continue  # the job itself says what is wrong with it


def _key(asked: Waiting) -> str:
    return f"{asked.kind} {asked.name} {demand.shape(asked.bundles)}"
