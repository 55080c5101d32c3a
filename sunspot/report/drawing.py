"""Tasks over time as SVG: draws a timeline for the page or as a separate picture."""

from sunspot.report.model import Report
from sunspot.report.text import esc, plural, seconds
from sunspot.report.theme import picture_css
from sunspot.report.timeline import (
    BAND_ROW,
    NODE_GAP,
    THIN,
    Band,
    Bar,
    Block,
    Flag,
    Timeline,
    lay_out,
    ticks,
)

GUTTER_WIDTH = 150
PAGE_PLOT_WIDTH = 970
PICTURE_PLOT_WIDTH = 762

_PAD = 24
_FLAG_ROW = 13
_PID_LABEL_LANE = 11  # a lower lane has no room for its label, which only the tooltip shows then


def gutter(timeline: Timeline) -> str:
    """The left part: each node with its market, each worker with its process id."""
    parts: list[str] = []
    for block in timeline.blocks:
        node, y = block.node, block.top + NODE_GAP / 2
        parts.append(_rule(block.top, GUTTER_WIDTH))
        parts.append(
            f'<g class="node"><title>{esc(node.name)}, group {esc(node.group)}, '
            f'{esc(node.market)}</title><text class="strong" x="0" y="{y + 13:g}">'
            f"{esc(node.name, 14)}</text>{_pill(node.market, y + 20)}</g>"
        )
        parts.extend(
            f'<text class="pid" text-anchor="end" x="{GUTTER_WIDTH - 8}" '
            f'y="{y + (n + 0.5) * timeline.lane_height + 3.5:g}">{lane.worker}</text>'
            for n, lane in enumerate(block.lanes)
            if lane.worker is not None and timeline.lane_height >= _PID_LABEL_LANE
        )
    parts.append(_rule(timeline.bottom, GUTTER_WIDTH))
    if timeline.lane_height >= _PID_LABEL_LANE and timeline.bands:
        parts.append(
            f'<text class="pid" text-anchor="end" x="{GUTTER_WIDTH - 8}" '
            f'y="{timeline.top - 6:g}">process id</text>'
        )
    return "\n".join(parts)


def plot(timeline: Timeline) -> str:
    """The right part: bands, axis and bars."""
    parts = [_band(timeline, band) for band in timeline.bands]
    parts.extend(_rule(block.top, timeline.width) for block in timeline.blocks)
    parts.extend(_lane_tracks(timeline, block) for block in timeline.blocks)
    parts.extend(
        f'<rect class="{band.css} tint" x="{band.left:.1f}" y="{timeline.top:g}" '
        f'width="{max(band.right - band.left, 1):.1f}" '
        f'height="{timeline.bottom - timeline.top:g}"/>'
        for band in timeline.bands
    )
    parts.append(_axis(timeline))
    parts.extend(_lane_bars(timeline, block) for block in timeline.blocks)
    parts.extend(_flag(timeline, flag) for flag in timeline.flags)
    if not timeline.bands:
        middle = (timeline.top + timeline.bottom) / 2 + 4
        parts.append(f'<text class="muted" x="16" y="{middle:g}">No task was recorded.</text>')
    return "\n".join(parts)


def description(report: Report) -> str:
    """The picture in words, for readers who do not see it."""
    workers = len({(span.node, span.worker) for span in report.spans})
    names = ", ".join(dict.fromkeys(span.workload for span in report.spans)) or "none"
    happened = "".join(f" {mark.node}: {mark.label}." for mark in report.marks)
    return (
        f"Timeline of {plural(len(report.spans), 'task attempt')} on "
        f"{plural(report.nodes_used, 'node')} and "
        f"{plural(workers, 'worker process', 'worker processes')}. Workloads: {names}.{happened}"
    )


def picture(report: Report) -> str:
    """The timeline as a separate SVG file with its own background, for light and dark pages."""
    timeline = lay_out(report, PICTURE_PLOT_WIDTH)
    head = 58
    width = GUTTER_WIDTH + timeline.width + 2 * _PAD
    height = head + timeline.height + _PAD - 8
    headline = f"{plural(report.tasks, 'task')} on {plural(report.nodes_used, 'node')}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{headline}</title>\n<desc id="d">{esc(description(report))}</desc>\n'
        f"<style>\n{picture_css()}\n</style>\n"
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" '
        f'rx="12"/>\n<text class="title" x="{_PAD}" y="38">{headline}</text>\n'
        f'<text class="muted" text-anchor="end" x="{width - _PAD:g}" y="37">'
        f"stack {esc(report.stack, 40)}</text>\n"
        f'<g transform="translate({_PAD},{head})">\n{gutter(timeline)}\n</g>\n'
        f'<g transform="translate({_PAD + GUTTER_WIDTH},{head})">\n{plot(timeline)}\n</g>\n</svg>\n'
    )


def _rule(y: float, width: float) -> str:
    return f'<line class="rule" x1="0" x2="{width:g}" y1="{y:g}" y2="{y:g}"/>'


def _pill(market: str, y: float) -> str:
    """The market as a word in a pill: solid for on-demand, dashed for what may be evicted."""
    kind = "on-demand" if market == "on-demand" else "spot"
    word = esc(market, 14)
    width = min(len(market), 14) * 6.6 + 18
    return (
        f'<rect class="pill {kind}" x="0.6" y="{y:g}" width="{width:g}" height="17" rx="8.5"/>'
        f'<text class="word {kind}" text-anchor="middle" x="{width / 2:g}" y="{y + 12:g}">'
        f"{word}</text>"
    )


def _band(timeline: Timeline, band: Band) -> str:
    """The label in its row, and the line that shows how long the workload ran."""
    y = band.row * BAND_ROW
    return (
        f'<g class="band"><text class="strong" x="{band.label_x:.1f}" y="{y + 11:g}">'
        f'{esc(band.label)}</text><rect class="{band.css}" x="{band.left:.1f}" '
        f'y="{timeline.top - 3:g}" width="{max(band.right - band.left, 2):.1f}" height="3"/></g>'
    )


def _flag(timeline: Timeline, flag: Flag) -> str:
    """A line across a node's lanes, and its label beside it, on the side that has room."""
    anchor, shift = ("end", -5) if flag.x > timeline.width / 2 else ("start", 5)
    top, bottom = flag.block.top + 2, flag.block.top + flag.block.height - 2
    return (
        f'<g class="flag"><title>{esc(flag.mark.node)}: {esc(flag.mark.label)} at '
        f'{seconds(flag.seconds)} s</title><line x1="{flag.x:.1f}" x2="{flag.x:.1f}" '
        f'y1="{top:g}" y2="{bottom:g}"/><text text-anchor="{anchor}" '
        f'x="{flag.x + shift:.1f}" y="{bottom - 4 - flag.row * _FLAG_ROW:g}">'
        f"{esc(flag.mark.label)}</text></g>"
    )


def _axis(timeline: Timeline) -> str:
    marks = ticks(timeline.duration)
    parts: list[str] = []
    for mark in marks:
        x = mark / timeline.duration * timeline.width
        # The ends would be cut off when centred.
        anchor = "start" if x < 12 else "end" if x > timeline.width - 16 else "middle"
        parts.append(
            f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{timeline.top:g}" '
            f'y2="{timeline.bottom + 5:g}"/><text class="muted tick" text-anchor="{anchor}" '
            f'x="{x:.1f}" y="{timeline.bottom + 18:g}">{mark:,.6g} s</text>'
        )
    return "\n".join(parts)


def _lane_y(timeline: Timeline, block: Block, index: int) -> tuple[float, float]:
    """Top and height of a lane's bars, which leave a gap between lanes."""
    gap = 2 if timeline.lane_height >= 12 else 1
    top = block.top + NODE_GAP / 2 + index * timeline.lane_height + gap
    return top, timeline.lane_height - 2 * gap


def _lane_tracks(timeline: Timeline, block: Block) -> str:
    parts: list[str] = []
    for index, lane in enumerate(block.lanes):
        y, height = _lane_y(timeline, block, index)
        what = "no task ran here" if lane.worker is None else f"worker {lane.worker}"
        parts.append(
            f'<rect class="track" x="0" y="{y:g}" width="{timeline.width:g}" height="{height:g}" '
            f'rx="2"><title>{esc(block.node.name)}: {what}</title></rect>'
        )
    return "\n".join(parts)


def _lane_bars(timeline: Timeline, block: Block) -> str:
    parts: list[str] = []
    for index, lane in enumerate(block.lanes):
        y, height = _lane_y(timeline, block, index)
        parts.extend(_bar(timeline, bar, y, height) for bar in lane.bars)
    return "\n".join(parts)


def _bar(timeline: Timeline, bar: Bar, y: float, height: float) -> str:
    # A hairline gap separates adjacent bars; thin ones must stay visible.
    width = bar.right - bar.left
    width = width - 0.6 if width > THIN else max(width, 4.0 if bar.first.failed else 1.0)
    left = min(bar.left, timeline.width - width)
    css = "bar " + ("failed" if bar.first.failed else timeline.classes[bar.first.workload])
    return (
        f'<rect class="{css}" x="{left:.1f}" y="{y:g}" width="{width:.1f}" '
        f'height="{height:g}"><title>{_tooltip(timeline, bar)}</title></rect>'
    )


def _tooltip(timeline: Timeline, bar: Bar) -> str:
    span = bar.first
    name = esc(span.name, 60) if bar.count == 1 else f"{bar.count:,} tasks"
    failed = " failed" if span.failed else ""
    begin, length = span.start - timeline.start, bar.end - span.start
    return (
        f"{esc(span.workload, 40)}: {name}{failed}, {seconds(length)} s from {seconds(begin)} s "
        f"on {esc(span.node, 40)}, worker {span.worker}"
    )
