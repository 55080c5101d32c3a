"""Draws the workloads' line charts as SVG, with the standard library only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 56, 52  # margins; the right one holds the legend
COLOURS = ("#cf7a00", "#2f6fb3", "#16847a", "#9a4078", "#6d7a1c", "#5b6472")
MOST_TICKS = 8
LEGEND_ROWS = 16
ROW = 19
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #221c12; }
.title { font-size: 17px; font-weight: 650; } .muted { fill: #6b6253; }
.card { fill: #fff; stroke: #e6ddcd; } .grid { stroke: #e6ddcd; } .mark { stroke: #b45309; }
polyline { fill: none; stroke-width: 2; } .faint { opacity: .45; }
@media (prefers-color-scheme: dark) {
  text { fill: #f3ecdf; } .muted { fill: #aba18f; } .mark { stroke: #f6b042; }
  .card { fill: #1d1912; stroke: #3a3326; } .grid { stroke: #3a3326; }
}
"""

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart, with a dot at each of its points."""

    label: str
    points: Sequence[Point]
    faint: bool = False
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over one pair of axes that start at 0; the x axis counts whole things."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    mark: tuple[float, str] | None = None
    """A vertical line: its position on the x axis and its label."""

    def svg(self) -> str:
        """Return the chart as SVG, which loads no font, script or other file."""
        drawn = "\n".join([*self._axes(), *self._marked(), *self._drawn(), *self._legend()])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(self.title)}">\n'
            f"<style>{STYLE}</style>\n"
            f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>\n'
            f"{_text(LEFT, 32, self.title, 'title')}\n{drawn}\n</svg>\n"
        )

    def write(self, path: Path) -> None:
        """Write the chart to a file."""
        path.write_text(self.svg(), encoding="utf-8")

    def _x(self, value: float) -> float:
        return LEFT + value / self._x_ticks()[-1] * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._y_ticks()[-1] * (HEIGHT - TOP - BOTTOM)

    def _x_ticks(self) -> list[float]:
        furthest = max((x for line in self.lines for x, _ in line.points), default=0)
        return ticks(max(furthest, self.mark[0] if self.mark else 0), whole=True)

    def _y_ticks(self) -> list[float]:
        return ticks(max((y for line in self.lines for _, y in line.points), default=0))

    def _axes(self) -> list[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = []
        for tick in self._y_ticks():
            y = self._y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(_text(LEFT - 8, y + 4, f"{tick:,g}", "muted", "end"))
        parts += [
            _text(self._x(tick), bottom + 18, f"{tick:,g}", "muted", "middle")
            for tick in self._x_ticks()
        ]
        parts.append(_text((LEFT + right) / 2, HEIGHT - 14, self.x_label, "muted", "middle"))
        parts.append(_text(LEFT, TOP - 6, self.y_label, "muted"))
        return parts

    def _marked(self) -> list[str]:
        if self.mark is None:
            return []
        x = self._x(self.mark[0])
        ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
        return [
            f'<line class="mark" {ends} stroke-dasharray="2 4"/>',
            _text(x + 6, HEIGHT - BOTTOM - 8, self.mark[1], "muted"),
        ]

    def _drawn(self) -> list[str]:
        parts = []
        for number, line in enumerate(self.lines):
            colour, kind = COLOURS[number % len(COLOURS)], ' class="faint"' if line.faint else ""
            at = [(f"{self._x(x):.1f}", f"{self._y(y):.1f}") for x, y in line.points]
            dash = ' stroke-dasharray="6 4"' if line.dashed else ""
            path = " ".join(f"{x},{y}" for x, y in at)
            dots = "".join(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in at)
            parts.append(
                f'<g{kind}><title>{escape(line.label)}</title><polyline points="{path}" '
                f'stroke="{colour}"{dash}/>{dots}</g>'
            )
        return parts

    def _legend(self) -> list[str]:
        x, shown = WIDTH - RIGHT + 16, self.lines[:LEGEND_ROWS]
        parts = []
        for number, line in enumerate(shown):
            y = TOP + 8 + number * ROW
            colour = COLOURS[number % len(COLOURS)]
            parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
            parts.append(_text(x + 16, y, line.label, "muted" if line.faint else ""))
        if left := len(self.lines) - len(shown):
            parts.append(_text(x + 16, TOP + 8 + len(shown) * ROW, f"and {left} more", "muted"))
        return parts


def ticks(furthest: float, *, whole: bool = False) -> list[float]:
    """Return round values (1, 2 or 5 times a power of ten) from 0 to at least ``furthest``.

    Args:
        furthest: The largest value on the axis.
        whole: Whether to leave out fractions, since there is no half epoch and no half CPU.
    """
    if furthest <= 0:
        return [0.0, 1.0]
    power = 10 ** math.floor(math.log10(furthest / MOST_TICKS))
    step = next(power * m for m in (1, 2, 5, 10, 20) if furthest / (power * m) <= MOST_TICKS)
    step = max(step, 1) if whole else step
    return [round(n * step, 9) for n in range(math.ceil(furthest / step - 1e-9) + 1)]


def _text(x: float, y: float, text: str, css: str = "", anchor: str = "start") -> str:
    kind = f' class="{css}"' if css else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
