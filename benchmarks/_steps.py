"""Draws values that change in steps over one axis of time, a row for each kind, in an SVG."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workloads"))
import _chart

Step = tuple[float, float]

LEFT, RIGHT, TOP = 64, 150, 62
HEIGHT, GAP = 120, 44


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A value that holds from each of its moments (seconds, value) until the next one."""

    label: str
    steps: Sequence[Step]
    sloped: bool = False  # whether the value changes evenly in between


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: its heading, its values, and moments that are marked in it."""

    heading: str
    values: Sequence[Steps]
    marks: Sequence[float] = ()
    marked: str = ""


def picture(title: str, rows: Sequence[Row], seconds: float) -> str:
    """Return the SVG; each row has an axis of its own, from 0 to its largest value."""
    height = TOP + len(rows) * (HEIGHT + GAP)
    scale = (_chart.WIDTH - LEFT - RIGHT) / seconds
    drawn: list[str] = []
    colours = iter(_chart.COLOURS)
    for number, row in enumerate(rows):
        drawn += _row(row, TOP + number * (HEIGHT + GAP), seconds, scale, colours)
    bottom = height - GAP + 18
    drawn += [
        _text(LEFT + tick * scale, bottom, f"{tick:g} s", "muted", "middle")
        for tick in _chart.ticks(seconds)
        if tick <= seconds
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_chart.WIDTH} {height}" '
        f'width="{_chart.WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{_chart.STYLE}</style>\n"
        f'<rect class="card" x=".5" y=".5" width="{_chart.WIDTH - 1}" height="{height - 1}" '
        f'rx="8"/>\n{_text(16, 28, title, "title")}\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _row(row: Row, top: float, seconds: float, scale: float, colours: Iterator[str]) -> list[str]:
    most = max((value for one in row.values for _, value in one.steps), default=0) or 1
    bottom = top + HEIGHT
    drawn = [
        _text(LEFT, top - 8, row.heading, "muted"),
        (
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + seconds * scale:.1f}" '
            f'y1="{bottom}" y2="{bottom}"/>'
        ),
        _text(LEFT - 8, top + 4, f"{most:.3g}", "muted", "end"),
        _text(LEFT - 8, bottom + 4, "0", "muted", "end"),
    ]
    drawn += [
        f'<line class="mark" x1="{LEFT + at * scale:.1f}" x2="{LEFT + at * scale:.1f}" '
        f'y1="{top}" y2="{bottom}" stroke-dasharray="2 4"/>'
        for at in row.marks
    ]
    for number, (one, colour) in enumerate(zip(row.values, colours, strict=False)):
        points = _points(one, seconds)
        path = " ".join(
            f"{LEFT + at * scale:.1f},{bottom - value / most * HEIGHT:.1f}" for at, value in points
        )
        drawn.append(f'<polyline points="{path}" stroke="{colour}"/>')
        x, y = _chart.WIDTH - RIGHT + 14, top + 10 + number * _chart.ROW
        drawn.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        drawn.append(_text(x + 16, y, one.label))
    if row.marks:
        y = top + 10 + len(row.values) * _chart.ROW
        drawn.append(_text(_chart.WIDTH - RIGHT + 14, y, f"┊ {row.marked}", "muted"))
    return drawn


def _points(one: Steps, seconds: float) -> list[Step]:
    points: list[Step] = []
    value = 0.0
    for at, new in one.steps:
        if not one.sloped:
            points.append((at, value))
        points.append((at, new))
        value = new
    return [*points, (seconds, value)]


def _text(x: float, y: float, text: str, css: str = "", anchor: str = "start") -> str:
    kind = f' class="{css}"' if css else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
