"""A full disk of the state directory, a full /tmp, a state directory that cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from cut_off import Ended, Installed
from fault_clusters import OWN, SHARED, Clusters
from fault_table import AS_IT_WAS, NOTHING, Row
from own_machine import Machine, read_only

Record = Callable[[Row], None]

NO_SPACE = "No space left|is full"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A place that cannot be written to while a command runs.

    Attributes:
        name: what the table calls it.
        where: which place.
        cause: what the message must say, one of these, with "|" between them.
        works: the commands that write nothing there.
    """

    name: str
    where: Literal["state", "tmp"]
    cause: str
    works: tuple[str, ...]

    def run(self, sunspot: Installed, machine: Machine, *arguments: str) -> Ended:
        """Runs a command in this trouble."""
        if self is READ_ONLY:
            return sunspot.cut(*arguments, through=partial(read_only, sunspot.state))
        with machine.full(self.place(machine)):
            return sunspot.cut(*arguments)

    def place(self, machine: Machine) -> Path:
        return machine.tmp if self.where == "tmp" else machine.disk

    def is_named(self, ended: Ended, machine: Machine) -> bool:
        """Whether the message says where it cannot write, and why."""
        place = str(self.place(machine))
        return place in ended.errors and any(one in ended.errors for one in self.cause.split("|"))

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


READ_ONLY = Trouble(
    name="a state directory that is read-only",
    where="state",
    cause="Read-only file system",
    works=("submit", "logs"),
)
FULL_STATE = Trouble(
    name="a full disk of the state directory",
    where="state",
    cause=NO_SPACE,
    works=("submit", "logs", "down"),
)
FULL_TMP = Trouble(name="a full /tmp", where="tmp", cause=NO_SPACE, works=("logs", "down"))
TROUBLES = (READ_ONLY, FULL_STATE, FULL_TMP)

COMMANDS = {
    "scale": ("scale", "workers=2"),
    "submit": ("submit", "--", "echo", "done"),
    "logs": ("logs", "earlier"),
    "down": ("down", SHARED),
}


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
def test_up(
    sunspot: Installed, clusters: Clusters, machine: Machine, trouble: Trouble, record: Record
):
    before = clusters.census()
    ended = trouble.run(sunspot, machine, "up", OWN)
    wrong = ended.troubles()
    if ended.code not in (1, 2) or not trouble.is_named(ended, machine):
        wrong.append(str(ended))
    assert [*wrong, *clusters.swept(before)] == []
    record(refusal(trouble, "up", ended, NOTHING))


@pytest.mark.parametrize(
    ("trouble", "command"),
    [(trouble, command) for trouble in TROUBLES for command in COMMANDS],
    ids=str,
)
def test_of_a_running_cluster(
    sunspot: Installed,
    clusters: Clusters,
    machine: Machine,
    trouble: Trouble,
    command: str,
    record: Record,
):
    clusters.share()
    if "earlier" not in [job.id for job in sunspot.client(SHARED).list()]:
        sunspot.ok("submit", "--name", "earlier", "--", "echo", "done")
    before = clusters.without_jobs()
    ended = trouble.run(sunspot, machine, *COMMANDS[command])
    assert ended.troubles() == []
    if command in trouble.works:
        assert ended.code == 0, ended
        is_gone = command == "down"
        assert clusters.changes(clusters.nothing if is_gone else before) == []
        says = f"{SHARED} is down" if is_gone else "done"
        assert says in ended.out
        left = NOTHING if is_gone else AS_IT_WAS
        record(Row(fault=trouble.name, to=command, code="0", says="it works", left=left))
    else:
        assert ended.code in (1, 2), ended
        assert trouble.is_named(ended, machine), ended
        assert clusters.changes(before) == []
        assert clusters.minimum() == 1
        record(refusal(trouble, command, ended, AS_IT_WAS))


def refusal(trouble: Trouble, command: str, ended: Ended, left: str) -> Row:
    says = next(one for one in trouble.cause.split("|") if one in ended.errors)
    return Row(fault=trouble.name, to=command, code=str(ended.code), says=says, left=left)
