"""The watcher where the node, IMDS or its event log do not do what they should."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from azure_model.http_service import Reply
from azure_model.imds import EVENTS, Scripted
from watcher_bench import Bench, benched

from sunspot.node.leaving import Marks
from sunspot.node.metrics import Entry


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with benched(tmp_path) as made:
        yield made


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


def test_entries_that_cannot_be_written_stop_nothing_and_are_written_later(bench: Bench) -> None:
    refused: list[Entry] = []

    def refuse(entry: Entry) -> None:
        refused.append(entry)
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
    assert bench.entries[event].outcome == "deadline"


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
        bench.azure, "_start", lambda asked: Reply(codes.pop(0)) if codes else start(asked)
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
    monkeypatch.setattr(bench.azure, "_start", lambda _: Reply(400, "no"))
    bench.node.idle = True
    bench.azure.announce()
    watcher = bench.watcher()
    for _ in range(3):
        watcher.turn()
    assert [asked.method for asked in bench.azure.requests].count("POST") == 1


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
def test_a_bad_answer_is_survived(bench: Bench, answer: Scripted) -> None:
    bench.timing = replace(bench.timing, first_answer_s=0.2, answer_s=0.2, leaving_answer_s=5)
    bench.azure.answers[EVENTS] += [answer, answer]
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
    bench.azure.answers[EVENTS] += [Scripted(delay_s=1)] * 2
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
    bench.azure.answers[EVENTS] += [Scripted(status=410)] * 1000
    deadline = time.monotonic() + 60
    while not bench.node.left and time.monotonic() < deadline:
        time.sleep(watcher.turn())
    assert bench.node.calls == ["drain", "stop"]


def test_it_asks_less_often_when_azure_says_that_it_is_too_often(bench: Bench) -> None:
    bench.azure.answers[EVENTS].append({"status": 429})
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
