"""What happened to nodes, on the report's timeline."""

from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from sunspot.report import NodeInfo, NodeMark, Report, TaskSpan
from sunspot.report.drawing import PICTURE_PLOT_WIDTH, picture
from sunspot.report.page import page
from sunspot.report.timeline import lay_out

START = 1_760_000_000.0
NODES = [
    NodeInfo(name=name, group="workers", market="spot", cpus=2, memory_gb=4) for name in ("a", "b")
]
SPAN = TaskSpan(
    workload="primes",
    name="primes",
    node="a",
    group="workers",
    market="spot",
    worker=7,
    start=START,
    end=START + 10,
)


def mark(at, node="a", label="left"):
    return NodeMark(node=node, label=label, time=START + at)


def made(*marks, spans=(SPAN,)):
    return Report(
        stack="dev",
        cores=2,
        nodes=NODES,
        results=[],
        spans=spans,
        bring_up_seconds=None,
        created=datetime(2026, 1, 1, tzinfo=UTC),
        marks=marks,
    )


def test_a_mark_is_at_its_time_across_its_node():
    (flag,) = lay_out(made(mark(5)), 100).flags
    assert (flag.x, flag.seconds, flag.block.node.name) == (pytest.approx(50), 5, "a")


def test_the_axis_reaches_to_a_mark_after_the_last_task():
    timeline = lay_out(made(mark(20, "b", "joined")), 100)
    assert timeline.duration == 20
    assert timeline.flags[0].x == pytest.approx(100)


@pytest.mark.parametrize(
    "report",
    [
        made(mark(-1)),  # before the first task
        made(mark(5, "nobody")),
        made(mark(5), spans=()),
        made(),
    ],
)
def test_what_cannot_be_placed_is_not_drawn(report):
    assert lay_out(report, 100).flags == []
    assert 'class="flag"' not in page(report)
    assert "A red line" not in page(report)


def test_page_and_picture_show_marks_and_say_what_they_are():
    report = made(mark(2, label="eviction notice"), mark(9, "b", "<joined>"))
    for text in (page(report), picture(report)):
        assert text.count('class="flag"') == 2
        assert "a: eviction notice at 2" in text
        assert "&lt;joined&gt;" in text
        assert "<joined>" not in text
    assert "A red line" in page(report)
    ElementTree.fromstring(picture(report))  # noqa: S314 - our own


def test_labels_of_one_node_are_not_on_each_other():
    first, second, other = lay_out(made(mark(5), mark(5.1), mark(5.1, "b")), 100).flags
    assert (first.row, second.row, other.row) == (0, 1, 0)


@pytest.mark.parametrize("at", [0, 1, 5, 9, 10])
def test_a_label_stays_within_the_picture(at):
    drawn = ElementTree.fromstring(picture(made(mark(at, label="eviction notice"))))  # noqa: S314
    (flag,) = (one for one in drawn.iter() if one.get("class") == "flag")
    (text,) = (one for one in flag if one.tag.endswith("text"))
    x, width = float(text.get("x", "")), len("eviction notice") * 7.5
    left = x - width if text.get("text-anchor") == "end" else x
    assert left >= 0
    assert left + width <= PICTURE_PLOT_WIDTH


def test_who_does_not_see_the_picture_is_told():
    description = picture(replace(made(), marks=(mark(5),)))
    assert "a: left." in description
