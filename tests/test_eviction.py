"""The watcher, against a stand-in for IMDS and a node that only takes notes."""

import ast
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import fake_imds
import pytest

from sunspot.node import eviction
from sunspot.node.eviction import Timing, Watcher
from sunspot.node.imds import Imds
from sunspot.node.leaving import Head, Marks
from sunspot.node.metrics import Record

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
    azure: fake_imds.FakeAzure
    node: Notes
    marks: Marks
    folder: Path
    records: dict[str, Record] = field(default_factory=dict)
    timing: Timing = Timing(margin_s=5, answer_s=5, leaving_answer_s=5)  # noqa: RUF009 - frozen

    def watcher(self) -> Watcher:
        return Watcher(
            name=NAME,
            group="spot",
            imds=Imds(self.azure.url),
            node=self.node,
            marks=self.marks,
            report=lambda record: self.records.update({record.event: record}),
            timing=self.timing,
        )

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with fake_imds.serving(fake_imds.FakeAzure(name=NAME)) as azure:
        yield Bench(azure, Notes(), Marks(tmp_path), tmp_path)


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Reboot", "Redeploy"])
def test_a_notice_drains_the_node_until_shortly_before_the_deadline(
    bench: Bench, kind: str
) -> None:
    event = bench.azure.announce(kind, 600)
    watcher = bench.watcher()
    watcher.turn()
    watcher.turn()
    assert bench.node.calls == ["drain"]
    assert bench.node.untils[0] == pytest.approx(time.time() + 595, abs=60)
    assert bench.azure.acknowledged == {}
    assert bench.files() == {"leaving"}
    record = bench.records[event]
    assert (record.type, record.group, record.outcome, record.drain_s) == (
        kind,
        "spot",
        "noticed",
        None,
    )


def test_at_the_deadline_less_the_margin_the_node_is_stopped_and_azure_may_go_on(
    bench: Bench,
) -> None:
    event = bench.azure.announce(notice_s=4)
    watcher = bench.watcher()
    watcher.turn()
    assert bench.node.calls == ["drain", "stop"]
    assert bench.azure.acknowledged == {}  # not before it is known to be gone
    watcher.turn()
    assert list(bench.azure.acknowledged) == [event]
    assert bench.records[event].outcome == "deadline"
    assert bench.records[event].drain_s is not None


def test_a_node_that_is_idle_leaves_at_once_and_azure_may_go_on(bench: Bench) -> None:
    bench.node.idle = True
    event = bench.azure.announce(notice_s=900)
    bench.watcher().turn()
    assert bench.node.calls == ["drain"]
    assert list(bench.azure.acknowledged) == [event]
    assert bench.records[event].outcome == "idle"


def test_a_freeze_is_noted_and_no_more(bench: Bench) -> None:
    event = bench.azure.announce("Freeze", 900)
    bench.watcher().turn()
    assert bench.node.calls == []
    assert bench.files() == set()
    assert bench.azure.acknowledged == {}
    assert bench.records[event].type == "Freeze"


def test_an_event_of_another_vm_is_none_of_ours(bench: Bench) -> None:
    bench.azure.announce(notice_s=1, resources=["spot_1", "spot_01"])
    bench.watcher().turn()
    assert bench.node.calls == []
    assert bench.records == {}
    assert bench.azure.acknowledged == {}


def test_azure_may_write_the_name_in_another_case(bench: Bench) -> None:
    bench.azure.announce(resources=["SPOT_0"])
    bench.watcher().turn()
    assert bench.node.calls == ["drain"]


def test_an_event_that_other_vms_share_is_not_started_for_them(bench: Bench) -> None:
    bench.node.idle = True
    bench.azure.announce("Reboot", 900, resources=[NAME, "spot_1"])
    watcher = bench.watcher()
    watcher.turn()
    watcher.turn()
    assert bench.node.left
    assert bench.azure.acknowledged == {}


def test_an_event_that_started_leaves_no_time(bench: Bench) -> None:
    bench.azure.announce(notice_s=None, status="Started")
    watcher = bench.watcher()
    watcher.turn()
    assert bench.node.calls == ["drain", "stop"]  # the drain tells Ray why the work is lost
    watcher.turn()
    assert bench.azure.acknowledged == {}  # there is nothing left to start


def test_an_event_that_starts_early_cuts_the_drain(bench: Bench) -> None:
    event = bench.azure.announce(notice_s=600)
    watcher = bench.watcher()
    watcher.turn()
    bench.azure.announce(notice_s=None, status="Started", id=event)
    watcher.turn()
    assert bench.node.calls == ["drain", "drain", "stop"]


def test_a_later_event_with_less_time_wins(bench: Bench) -> None:
    first = bench.azure.announce("Reboot", 900)
    watcher = bench.watcher()
    watcher.turn()
    second = bench.azure.announce("Preempt", 30)
    watcher.turn()
    assert bench.node.calls == ["drain", "drain"]
    assert bench.node.untils[0] - bench.node.untils[1] > 800
    bench.node.left = True
    watcher.turn()
    assert set(bench.azure.acknowledged) == {first, second}


def test_without_a_time_the_shortest_notice_is_assumed_once(bench: Bench) -> None:
    bench.azure.announce(notice_s=None)
    watcher = bench.watcher()
    watcher.turn()
    assert bench.node.untils[0] == pytest.approx(time.time() + 25, abs=20)
    watcher.turn()
    assert bench.node.calls == ["drain"]


def test_the_next_turn_does_not_miss_the_deadline(bench: Bench) -> None:
    bench.timing = replace(bench.timing, poll_s=1000, margin_s=0)
    bench.azure.announce(notice_s=500)
    assert bench.watcher().turn() <= 500


@pytest.mark.parametrize("broken", ["drain", "stop", "has_left"])
def test_what_fails_is_tried_again(bench: Bench, broken: str) -> None:
    bench.node.fails[broken] = 2
    event = bench.azure.announce(notice_s=4)
    watcher = bench.watcher()
    for _ in range(6):
        watcher.turn()
    assert bench.node.left
    assert list(bench.azure.acknowledged) == [event]


def test_a_node_that_does_not_stop_is_never_acknowledged(bench: Bench) -> None:
    bench.node.hangs = True
    bench.azure.announce(notice_s=1)
    watcher = bench.watcher()
    for _ in range(3):
        watcher.turn()
    assert bench.node.calls == ["drain", "stop", "stop", "stop"]
    assert bench.azure.acknowledged == {}


def test_a_node_that_joins_again_while_it_should_leave_leaves_again(bench: Bench) -> None:
    bench.azure.announce(notice_s=4)
    watcher = bench.watcher()
    watcher.turn()
    watcher.turn()
    bench.node.left = False
    watcher.turn()
    watcher.turn()
    assert bench.node.calls == ["drain", "stop", "drain", "stop"]
    assert bench.node.left


def test_records_that_cannot_be_written_stop_nothing_and_are_written_later(bench: Bench) -> None:
    refused: list[Record] = []

    def refuse(record: Record) -> None:
        refused.append(record)
        raise RuntimeError("no GCS")

    event = bench.azure.announce(notice_s=1)
    watcher = bench.watcher()
    report, watcher._report = watcher._report, refuse
    watcher.turn()
    assert refused == []  # no time for that so close to the deadline
    watcher.turn()
    assert list(bench.azure.acknowledged) == [event]
    assert len(refused) == 1
    watcher._report = report
    watcher.turn()
    watcher.turn()
    assert bench.records[event].outcome == "deadline"


def test_a_folder_that_is_not_there_stops_nothing(bench: Bench) -> None:
    bench.marks = Marks(bench.folder / "missing")
    event = bench.azure.announce(notice_s=1)
    watcher = bench.watcher()
    watcher.turn()
    watcher.turn()
    assert bench.node.calls == ["drain", "stop"]
    assert list(bench.azure.acknowledged) == [event]


@pytest.mark.parametrize("code", [429, 503])
def test_an_acknowledgement_that_fails_is_sent_again(
    bench: Bench, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, codes = bench.azure._start, [code, code]
    monkeypatch.setattr(
        bench.azure, "_start", lambda body: (codes.pop(0), "") if codes else start(body)
    )
    bench.node.idle = True
    event = bench.azure.announce()
    watcher = bench.watcher()
    for _ in range(3):
        watcher.turn()
    assert list(bench.azure.acknowledged) == [event]


def test_an_acknowledgement_that_is_refused_is_sent_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.azure, "_start", lambda _: (400, "no"))
    bench.node.idle = True
    bench.azure.announce()
    watcher = bench.watcher()
    for _ in range(3):
        watcher.turn()
    assert [m for _, m, _, _ in bench.azure.requests].count("POST") == 1


# IMDS in its bad hours


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 429},
        {"status": 410},
        {"status": 500},
        {"body": "<html>"},
        {"body": '{"Events": 3}'},
        {"body": ""},
        {"delay_s": 1},
    ],
    ids=str,
)
def test_a_bad_answer_is_survived(bench: Bench, answer: dict[str, object]) -> None:
    bench.timing = replace(bench.timing, first_answer_s=0.2, answer_s=0.2, leaving_answer_s=5)
    bench.azure.answers += [answer, answer]
    bench.azure.announce()
    watcher = bench.watcher()
    watcher.turn()
    watcher.turn()
    assert bench.node.calls == []
    watcher._timing = replace(bench.timing, first_answer_s=5, answer_s=5)
    watcher.turn()
    assert bench.node.calls == ["drain"]


def test_the_first_answer_may_take_long_and_later_ones_may_not(bench: Bench) -> None:
    bench.timing = replace(bench.timing, first_answer_s=20, answer_s=0.1)
    bench.azure.answers += [{"delay_s": 1}, {"delay_s": 1}]
    watcher = bench.watcher()
    watcher.turn()
    assert watcher._answered
    watcher.turn()
    assert watcher._failures == 1


def test_bad_answers_during_a_drain_do_not_stop_the_clock(bench: Bench) -> None:
    bench.timing = replace(bench.timing, margin_s=0, poll_s=0.01)
    bench.azure.announce(notice_s=2)
    watcher = bench.watcher()
    watcher.turn()
    bench.azure.answers += [{"status": 410}] * 1000
    deadline = time.monotonic() + 60
    while not bench.node.left and time.monotonic() < deadline:
        time.sleep(watcher.turn())
    assert bench.node.calls == ["drain", "stop"]


def test_it_asks_less_often_when_azure_says_that_it_is_too_often(bench: Bench) -> None:
    bench.azure.answers.append({"status": 429})
    watcher = bench.watcher()
    assert watcher.turn() == bench.timing.throttled_s
    assert watcher.turn() == bench.timing.poll_s == 1


def test_the_loop_outlives_its_own_mistakes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def turn() -> float:
        turns.append(1)
        if len(turns) == 1:
            raise ZeroDivisionError
        raise KeyboardInterrupt

    bench.timing = replace(bench.timing, poll_s=0.01)
    watcher = bench.watcher()
    monkeypatch.setattr(watcher, "turn", turn)
    with pytest.raises(KeyboardInterrupt):
        watcher.run()
    assert len(turns) == 2


# an event that passes


def left_and_withdrawn(bench: Bench) -> Watcher:
    bench.node.idle = True
    event = bench.azure.announce("Reboot", 900)
    watcher = bench.watcher()
    watcher.turn()
    bench.azure.withdraw(event)
    return watcher


def test_a_vm_that_is_still_there_comes_back(bench: Bench) -> None:
    bench.timing = replace(bench.timing, return_after_s=0)
    watcher = left_and_withdrawn(bench)
    watcher.turn()
    assert bench.files() == {"return"}
    bench.azure.announce("Preempt", 900)
    bench.node.left = False
    watcher.turn()
    assert bench.node.calls == ["drain", "drain"]


def test_it_does_not_come_back_at_once(bench: Bench) -> None:
    watcher = left_and_withdrawn(bench)
    watcher.turn()
    assert bench.files() == {"leaving"}


def test_it_does_not_come_back_while_imds_is_silent(bench: Bench) -> None:
    bench.timing = replace(bench.timing, return_after_s=0)
    watcher = left_and_withdrawn(bench)
    bench.azure.answers += [{"status": 410}] * 2
    watcher.turn()
    watcher.turn()
    assert bench.files() == {"leaving"}


def test_a_new_watcher_brings_back_what_an_earlier_one_took_out(bench: Bench) -> None:
    bench.timing = replace(bench.timing, return_after_s=0)
    bench.marks.set("leaving")
    bench.watcher().turn()
    assert bench.files() == {"return"}


# the head


def test_the_head_is_not_drained_but_stopped_by_the_machine(bench: Bench) -> None:
    event = bench.azure.announce("Reboot", 600)
    watcher = bench.watcher()
    watcher._node = Head(bench.marks)
    watcher.turn()
    assert bench.files() == {"leaving"}
    bench.azure.announce("Reboot", 4, id=event)
    watcher.turn()
    watcher.turn()
    assert bench.files() == {"leaving", "stop"}
    assert bench.azure.acknowledged == {}
    (bench.folder / "stop").rename(bench.folder / "stopped")
    watcher.turn()
    assert list(bench.azure.acknowledged) == [event]


# the command


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--name is missing"),
        (["--name=a"], "--gcs is missing"),
        (["--name=a", "--gcs=h:1", "--role=head"], "a head needs --marks"),
    ],
)
def test_what_is_missing_is_said(
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RAY_CLOUD_INSTANCE_ID", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        eviction.main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("name", ["eviction", "leaving", "metrics", "gcs", "imds"])
def test_it_runs_in_an_image_with_python_310_and_ray_alone(name: str) -> None:
    source = (Path(eviction.__file__).parent / f"{name}.py").read_text()
    tree = ast.parse(source, feature_version=(3, 10))
    modules = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    foreign = {module for module in modules if module.split(".")[0] not in sys.stdlib_module_names}
    allowed = ("ray", "requests", "psutil", "prometheus_client", "sunspot.node")
    assert not {module for module in foreign if not module.startswith(allowed)}
