"""The report: what the page, the picture and the table say, and that they are well formed."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from sunspot.errors import UsageError
from sunspot.report import NodeInfo, Report, TaskSpan, WorkloadResult, table, write
from sunspot.report.drawing import picture
from sunspot.report.timeline import MAX_BARS, lay_out, ticks

START = 1_760_000_000.0
SVG = "{http://www.w3.org/2000/svg}"
MARKETS = {"head": "on-demand", "workers-0": "spot", "workers-1": "spot"}
# workload: first second, tasks of each worker, seconds of a task
PLAN = {
    "where": (0.0, 4, 0.05),
    "primes": (1.5, 8, 0.9),
    "pi": (10.0, 20, 0.3),
    "object_store": (17.5, 3, 1.2),
}
MEMORY = {
    "ray": {
        "array_mb": 256.0,
        "workers": [
            {"node": node, "pid": 4000 + n, "pss_mb": 145.0 + n, "rss_mb": 320.0}
            for n, node in enumerate(name for name in MARKETS for _ in range(2))
        ],
    },
    "multiprocessing": {
        "array_mb": 256.0,
        "workers": [
            {"node": "this machine", "pid": 5000 + n, "pss_mb": 290.0 + n, "rss_mb": 300.0}
            for n in range(6)
        ],
    },
}


def nodes() -> list[NodeInfo]:
    return [
        NodeInfo(name=name, group=name.split("-")[0], market=market, cpus=2, memory_gb=4)
        for name, market in MARKETS.items()
    ]


def spans() -> list[TaskSpan]:
    """Six workers on three nodes; each workload has its own processes, as with Ray's jobs."""
    made = []
    for w, (workload, (first, tasks, length)) in enumerate(PLAN.items()):
        for n, (node, market) in enumerate(MARKETS.items()):
            for slot in range(2):
                for task in range(tasks):
                    start = START + first + 0.04 * (2 * n + slot) + task * length * 1.04
                    made.append(
                        TaskSpan(
                            workload=workload,
                            name=f"{workload}_task",
                            node=node,
                            group=node.split("-")[0],
                            market=market,
                            worker=1000 + 100 * n + 10 * w + slot,
                            start=start,
                            end=start + length * (0.9 + 0.02 * (task % 5)),
                            failed=(workload, node, slot, task) == ("pi", "workers-1", 1, 7),
                        )
                    )
    return made


def results() -> list[WorkloadResult]:
    return [
        WorkloadResult(
            workload=workload,
            tasks=tasks * 6,
            nodes=3,
            workers=6,
            seconds=tasks * length * 1.04,
            one_worker_seconds=None if workload == "where" else tasks * length * 1.9,
            summary=f"{workload} did what it should: 638 primes between 9,000,000 and 9,010,000.",
            details={"memory": MEMORY} if workload == "object_store" else {},
        )
        for workload, (_, tasks, length) in PLAN.items()
    ]


@pytest.fixture
def report() -> Report:
    return Report(
        stack="dev",
        cores=2,
        nodes=nodes(),
        results=results(),
        spans=spans(),
        bring_up_seconds=4.21,
        created=datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    )


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Report], str]:
    """Writes a report (look at it: `pytest --basetemp=FOLDER`) and gives the page's text."""

    def _written(report: Report) -> str:
        text = write(report, tmp_path / "sunspot-report").read_text(encoding="utf-8")
        parse(text)  # stricter than HTML: every element closed, nested, quoted
        return text

    return _written


class Text(HTMLParser):
    """What a reader sees, and the elements as a browser's parser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.seen = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parse(xml: str) -> ElementTree.Element:
    return ElementTree.fromstring(xml)  # noqa: S314  our own


def bars(svg: str) -> list[ElementTree.Element]:
    root = parse(svg)
    return [rect for rect in root.iter(f"{SVG}rect") if rect.get("class", "").startswith("bar ")]


def printed(report: Report) -> str:
    out = StringIO()
    Console(file=out, width=100).print(table(report))
    return out.getvalue()


def test_page_says_what_ran_where(report, written):
    text = Text(written(report))
    assert text.tags.count("h1") == 1
    assert "210 tasks on 3 nodes" in text.seen
    for name, market in MARKETS.items():
        group = name.split("-")[0]
        assert re.search(rf"{name} 70 tasks {market} group {group} 2 CPUs · 4 GiB", text.seen)
    for span in report.spans:
        assert f"{span.node}: worker {span.worker}" in text.seen
    for workload in PLAN:
        assert workload in text.seen
    assert "2 cores, so 6 logical CPUs" in text.seen


def test_page_keeps_the_promised_order(report, written):
    ids = re.findall(r'<h2 id="(\w+)"', written(report))
    assert ids == ["cluster", "timeline", "results", "memory"]


def test_page_needs_nothing_from_outside(report, written):
    page = written(report)
    assert "<script" not in page
    assert "@import" not in page
    # Names of namespaces are the only addresses, and nothing fetches those.
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_memory_totals(report, written):
    text = Text(written(report))
    assert "885 MB" in text.seen
    assert "1,755 MB" in text.seen
    assert "2.0 times less" in text.seen


def test_memory_is_absent_where_it_was_not_measured(report, written):
    page = written(replace(report, results=report.results[:3]))
    assert 'id="memory"' not in page


def test_memory_is_absent_where_the_system_does_not_tell_it(report, written):
    untold = {"array_mb": 1.0, "workers": [{"node": "head", "pid": 1, "pss_mb": None}]}
    skipped = {"array_mb": 1.0, "skipped": "no room", "workers": []}
    for peer in (untold, skipped):
        memory = {"ray": untold, "multiprocessing": peer}
        result = replace(report.results[3], details={"memory": memory})
        assert 'id="memory"' not in written(replace(report, results=[result]))


def test_bars_stand_where_the_time_says(report):
    timeline = lay_out(report, 1000)
    first = min(span.start for span in report.spans)
    last = max(span.end for span in report.spans)
    placed = [bar for block in timeline.blocks for lane in block.lanes for bar in lane.bars]
    for bar in placed:
        assert bar.left == pytest.approx(1000 * (bar.first.start - first) / (last - first))
        assert bar.right == pytest.approx(1000 * (bar.end - first) / (last - first))
    assert sum(bar.count for bar in placed) == len(report.spans)


def test_drawn_bars_share_the_axis_of_the_ticks(report):
    svg = picture(report)
    at_ten = re.search(r'x="([\d.]+)" y="[\d.]+">10 s<', svg)
    assert at_ten
    of_pi = [bar for bar in bars(svg) if "pi: pi_task" in "".join(bar.itertext())]
    assert min(float(bar.get("x", "")) for bar in of_pi) == pytest.approx(float(at_ten[1]), abs=0.2)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (0, []),
        (0.9, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        (4, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]),
        (23, [0, 5, 10, 15, 20]),
        (100, [0, 20, 40, 60, 80, 100]),
    ],
)
def test_ticks_are_round(duration, expected):
    assert ticks(duration) == expected


def test_names_are_escaped(report, written):
    evil = "<script>alert('&\"')</script>\x1b[31m\x00"
    node = NodeInfo(name=evil, group=evil, market=evil, cpus=1, memory_gb=1)
    span = replace(report.spans[0], workload=evil, name=evil, node=evil, group=evil, market=evil)
    result = replace(report.results[0], workload=evil, summary=evil)
    bad = replace(
        report, stack=evil, nodes=[*nodes(), node], spans=[span], results=[result, *results()]
    )
    page = written(bad)
    assert "script" not in Text(page).tags
    assert "&lt;script&gt;" in page
    parse(picture(bad))
    assert "[31m" in printed(bad)


def test_rich_markup_in_a_name_is_text(report):
    named = replace(report, results=[replace(report.results[0], workload="[red]x[/red]")])
    assert "[red]x[/red]" in printed(named)


@pytest.mark.parametrize("workers", [6, 48])
def test_ten_thousand_tasks_stay_small(report, written, workers):
    many = [
        TaskSpan(
            workload="primes",
            name="count_the_primes_of_this_batch",
            node=f"workers-{n % workers % 3}",
            group="workers",
            market="spot",
            worker=n % workers,
            start=START + n * 0.003,
            end=START + n * 0.003 + 0.003 * workers * 0.9,
            failed=n % 997 == 0,
        )
        for n in range(10_000)
    ]
    big = replace(report, spans=many)
    assert len(written(big).encode()) < 1_000_000
    drawn = bars(picture(big))
    assert len(drawn) <= MAX_BARS
    shown = sum(bar.get("class") == "bar failed" for bar in drawn)
    assert 0 < shown <= sum(span.failed for span in many)


def test_a_failed_attempt_is_shown(report, written):
    page = written(report)
    assert page.count('class="bar failed"') == 1
    assert "pi_task failed" in page
    assert "failed attempts" in page


def test_no_spans(report, written):
    text = Text(written(replace(report, spans=[])))
    assert "210 tasks on 3 nodes" in text.seen
    assert "No task was recorded." in text.seen


def test_nothing_at_all(report, written):
    empty = replace(report, spans=[], results=[], nodes=[], bring_up_seconds=None)
    assert "0 tasks on 0 nodes" in written(empty)


def test_one_instant(report, written):
    at_once = [replace(report.spans[0], end=report.spans[0].start - 1)]
    assert "NaN" not in written(replace(report, spans=at_once))


def test_a_node_that_only_the_tasks_know(report, written):
    lost = replace(report.spans[-1], node="workers-7", worker=9999)
    assert "workers-7: worker 9999" in Text(written(replace(report, spans=[lost]))).seen


def test_fewer_times_than_tasks_is_said(report, written):
    text = Text(written(replace(report, spans=report.spans[:100])))
    assert "Ray kept the times of 100 task attempts; the workloads counted 210 tasks." in text.seen


def test_no_remark_on_cores_where_there_are_enough(report, written):
    assert "cannot be faster" not in written(replace(report, cores=8))


def test_same_report_same_bytes(report, tmp_path):
    for folder in ("a", "b"):
        write(report, tmp_path / folder)
    for name in ("index.html", "timeline.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_table_rows(report):
    lines = [line.split() for line in printed(report).splitlines()]
    heading = "workload tasks nodes used seconds speed-up over one worker"
    assert lines[0] == heading.split(" ")
    assert lines[1] == ["where", "24", "3", "0.21", "—"]
    assert lines[2] == ["primes", "48", "3", "7.49", "1.8x"]
    assert len(lines) == 5


def test_result_from_json():
    result = WorkloadResult.from_json(
        {
            "workload": "object_store",
            "tasks": 12,
            "nodes": 3,
            "workers": 6,
            "seconds": 2,
            "one_worker_seconds": 5,
            "summary": "one copy a node",
            "by_node": {"head": 4},
            "memory": MEMORY,
        }
    )
    assert result.speed_up == 2.5
    assert result.details["by_node"] == {"head": 4}
    assert result.memory["ray"].total_mb == 885


@pytest.mark.parametrize(
    ("change", "message"),
    [({"tasks": "many"}, "pi.*wrong type"), ({"tasks": None}, "pi.*wrong type"), ({}, "'tasks'")],
)
def test_result_from_json_names_what_is_wrong(change, message):
    data = {"workload": "pi", "nodes": 1, "workers": 1, "seconds": 1.0, "summary": ""}
    with pytest.raises(UsageError, match=message):
        WorkloadResult.from_json(data | change)


def test_speed_up_of_no_time_is_not_measured():
    assert replace(results()[1], seconds=0.0).speed_up is None


def test_memory_that_cannot_be_read_names_the_workload():
    broken = replace(results()[3], details={"memory": {"ray": {"workers": [{}]}}})
    with pytest.raises(UsageError, match="object_store"):
        _ = broken.memory
