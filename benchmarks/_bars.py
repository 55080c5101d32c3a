"""Draws phases as bars over one axis of seconds, in an SVG."""

import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workloads"))
import _chart

ROW, BAR = 22, 14
LEFT, RIGHT, TOP = 110, 70, 56


class Phase(NamedTuple):
    """A phase's name, when it began, and how long it took, in seconds."""

    name: str
    start: float
    seconds: float


def picture(title: str, groups: Mapping[str, Sequence[Phase]]) -> str:
    """Return the SVG: a heading and a colour per group, and a bar per phase in order of start."""
    latest = max(one.start + one.seconds for phases in groups.values() for one in phases)
    scale = (_chart.WIDTH - LEFT - RIGHT) / latest
    drawn: list[str] = []
    y = TOP
    for (heading, phases), colour in zip(groups.items(), _chart.COLOURS, strict=False):
        drawn.append(_text(16, y + BAR, heading, "title"))
        y += ROW + 4
        for phase in sorted(phases, key=lambda one: one.start):
            drawn.append(_bar(phase, y, scale, colour))
            y += ROW
        y += ROW // 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_chart.WIDTH} {y}" '
        f'width="{_chart.WIDTH}" height="{y}" role="img" aria-label="{escape(title)}">\n'
        f"<style>{_chart.STYLE}</style>\n"
        f'<rect class="card" x=".5" y=".5" width="{_chart.WIDTH - 1}" height="{y - 1}" rx="8"/>\n'
        f"{_text(16, 32, title, 'muted')}\n" + "\n".join(drawn) + "\n</svg>\n"
    )


def _bar(phase: Phase, y: int, scale: float, colour: str) -> str:
    x, width = LEFT + phase.start * scale, max(1.0, phase.seconds * scale)
    return (
        _text(16, y + BAR - 2, phase.name)
        + f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
        + _text(x + width + 6, y + BAR - 2, f"{phase.seconds:.0f} s", "muted")
    )


def _text(x: float, y: float, text: str, css: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{css}">{escape(text)}</text>'
