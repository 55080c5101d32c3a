"""The eviction watcher with what it looks at: a stand-in for IMDS, a node that takes notes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from azure_model.imds import FakeAzure, serving

from sunspot.node.azure.eviction import Timing, Watcher
from sunspot.node.azure.imds import Imds
from sunspot.node.leaving import Marks
from sunspot.node.metrics import Entry

NAME = "spot_0"


@dataclass
class Notes:
    """A node that does as it is told. `calls` are its drains' and stops' names; `fails` of them
    raise first. `idle` lets it leave by itself once it drains, `hangs` keeps it there for ever."""

    calls: list[str] = field(default_factory=list)
    untils: list[float] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    idle: bool = False
    hangs: bool = False
    left: bool = False

    def drain(self, until: float, message: str) -> None:
        assert NAME in message
        self._call("drain")
        self.untils.append(until)
        self.left = self.idle

    def stop(self) -> None:
        self._call("stop")
        self.left = not self.hangs

    def has_left(self) -> bool:
        if self.fails.get("has_left"):
            self.fails["has_left"] -= 1
            raise RuntimeError("no GCS")
        return self.left

    def forget(self) -> None:
        pass

    def _call(self, name: str) -> None:
        if self.fails.get(name):
            self.fails[name] -= 1
            raise RuntimeError(f"{name} did not work")
        self.calls.append(name)


@dataclass
class Bench:
    azure: FakeAzure
    node: Notes
    marks: Marks
    folder: Path
    entries: dict[str, Entry] = field(default_factory=dict)
    timing: Timing = Timing(margin_s=5, answer_s=5, leaving_answer_s=5)  # noqa: RUF009 - frozen

    def watcher(self) -> Watcher:
        return Watcher(
            name=NAME,
            group="spot",
            imds=Imds(self.azure.url),
            node=self.node,
            marks=self.marks,
            report=lambda entry: self.entries.update({entry.event: entry}),
            timing=self.timing,
        )

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@contextmanager
def benched(folder: Path) -> Iterator[Bench]:
    """A bench whose marks lie in the folder."""
    with serving(FakeAzure(name=NAME)) as azure:
        yield Bench(azure, Notes(), Marks(folder), folder)
