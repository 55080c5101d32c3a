"""The watcher, against a stand-in for IMDS and a node that only takes notes."""

import ast
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from azure_model.imds import EVENTS, Scripted
from watcher_bench import NAME, Bench, benched

from cloud_init.render import NODE_SOURCES
from sunspot.node.azure import eviction
from sunspot.node.azure.eviction import Watcher
from sunspot.node.leaving import Head


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with benched(tmp_path) as made:
        yield made


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
    entry = bench.entries[event]
    assert (entry.type, entry.group, entry.outcome, entry.drain_s) == (
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
    assert bench.entries[event].outcome == "deadline"
    assert bench.entries[event].drain_s is not None


def test_a_node_that_is_idle_leaves_at_once_and_azure_may_go_on(bench: Bench) -> None:
    bench.node.idle = True
    event = bench.azure.announce(notice_s=900)
    bench.watcher().turn()
    assert bench.node.calls == ["drain"]
    assert list(bench.azure.acknowledged) == [event]
    assert bench.entries[event].outcome == "idle"


def test_a_freeze_is_noted_and_no_more(bench: Bench) -> None:
    event = bench.azure.announce("Freeze", 900)
    bench.watcher().turn()
    assert bench.node.calls == []
    assert bench.files() == set()
    assert bench.azure.acknowledged == {}
    assert bench.entries[event].type == "Freeze"


def test_an_event_of_another_vm_is_ignored(bench: Bench) -> None:
    bench.azure.announce(notice_s=1, resources=["spot_1", "spot_01"])
    bench.watcher().turn()
    assert bench.node.calls == []
    assert bench.entries == {}
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
    bench.azure.answers[EVENTS] += [Scripted(status=410)] * 2
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


@pytest.mark.parametrize("name", ["azure/eviction", "leaving", "metrics", "gcs", "azure/imds"])
def test_it_runs_in_an_image_with_only_python_310_and_ray(name: str) -> None:
    source = (NODE_SOURCES / f"{name}.py").read_text()
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
