"""Tasks over time: a lane for each worker process, under its node, on one axis of real seconds."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sunspot.report.model import NodeInfo, Report, TaskSpan
from sunspot.report.text import esc, plural, seconds
from sunspot.report.theme import picture_css, workload_class

GUTTER_WIDTH = 150
PAGE_PLOT_WIDTH = 970
PICTURE_PLOT_WIDTH = 762
MAX_BARS = 3500  # about 0.6 MB of SVG
THIN = 3.0  # pixels: neighbours that fit in this together become one bar

_PAD = 24
_BAND_ROW = 18
_NODE_GAP = 14
_MIN_NODE_HEIGHT = 44
_AXIS_HEIGHT = 34
_CHARACTER = 6.9  # the width of an average character of a label
_LANE_HEIGHTS = ((12, 22), (24, 16), (48, 12))  # up to so many lanes: so many pixels each
_LOWEST_LANE = 8
_PID_LABEL_LANE = 11  # below this a lane has no room for its label; its tooltip has it


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Tasks of one workload and outcome that are drawn as one; pixels from the plot's left."""

    left: float
    right: float
    first: TaskSpan
    end: float
    count: int = 1

    def joined(self, other: "Bar") -> "Bar":
        """This bar and a later one as one."""
        return Bar(
            left=self.left,
            right=max(self.right, other.right),
            first=self.first,
            end=max(self.end, other.end),
            count=self.count + other.count,
        )


# By lane (node, worker), then by outcome and workload (failed, workload).
_Series = dict[tuple[str, int], dict[tuple[bool, str], list[Bar]]]


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One worker process (None: the node ran nothing)."""

    worker: int | None
    bars: Sequence[Bar]


@dataclass(frozen=True, kw_only=True)
class Block:
    """One node: its lanes, and where it starts."""

    node: NodeInfo
    lanes: Sequence[Lane]
    top: float
    height: float


@dataclass(frozen=True, kw_only=True)
class Band:
    """One workload from its first task to its last; its label sits in one of several rows."""

    workload: str
    css: str
    left: float
    right: float
    label: str
    label_x: float
    row: int


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Where everything goes. `gutter` and `plot` draw it, side by side, at equal height."""

    width: float
    start: float
    duration: float
    lane_height: float
    bands: Sequence[Band]
    blocks: Sequence[Block]
    classes: dict[str, str]

    @property
    def top(self) -> float:
        """Where the lanes start."""
        return self.blocks[0].top if self.blocks else 0

    @property
    def bottom(self) -> float:
        """Where the lanes end and the axis starts."""
        return self.blocks[-1].top + self.blocks[-1].height if self.blocks else 0

    @property
    def merged(self) -> bool:
        """Whether some bar stands for several tasks."""
        lanes = (lane for block in self.blocks for lane in block.lanes)
        return any(bar.count > 1 for lane in lanes for bar in lane.bars)

    @property
    def height(self) -> float:
        """The whole height, with labels and axis."""
        return self.bottom + _AXIS_HEIGHT


def lay_out(report: Report, width: float) -> Timeline:
    """Place the report's spans on a plot that is `width` pixels wide."""
    spans = sorted(report.spans, key=lambda span: (span.start, span.node, span.worker, span.name))
    start = spans[0].start if spans else 0.0
    duration = max((span.end for span in spans), default=start) - start
    scale = width / duration if duration > 0 else 0.0
    classes = {name: workload_class(index) for index, name in enumerate(report.workloads)}
    lanes = _lanes(spans, start, scale)
    bands = _bands(spans, start, scale, width, classes)
    nodes = report.all_nodes
    lane_height = _lane_height(sum(len(lanes[node.name]) or 1 for node in nodes))
    rows = max((band.row for band in bands), default=-1) + 1
    return Timeline(
        width=width,
        start=start,
        duration=duration,
        lane_height=lane_height,
        bands=bands,
        blocks=_blocks(nodes, lanes, lane_height, rows * _BAND_ROW + 10),
        classes=classes,
    )


def ticks(duration: float, most: int = 10) -> list[float]:
    """Round seconds (1, 2 or 5 times a power of ten) from 0 to the duration, at most `most`."""
    if duration <= 0:
        return []
    power = 10 ** math.floor(math.log10(duration / most))
    step = next(power * m for m in (1, 2, 5, 10, 20) if duration / (power * m) <= most - 1)
    return [round(n * step, 9) for n in range(int(duration / step + 1e-9) + 1)]


def merge(bars: Iterable[Bar], limit: float) -> list[Bar]:
    """Join neighbours that are, together, no wider than `limit` pixels and nearly touch."""
    merged: list[Bar] = []
    for bar in bars:
        last = merged[-1] if merged else None
        near = last is not None and bar.left - last.right <= max(1.0, limit / 4)
        if last is not None and near and max(bar.right, last.right) - last.left <= limit:
            merged[-1] = last.joined(bar)
        else:
            merged.append(bar)
    return merged


def _lanes(spans: Sequence[TaskSpan], start: float, scale: float) -> dict[str, list[Lane]]:
    """Each node's lanes, first worker first, with bars thick and few enough to draw."""
    raw: _Series = defaultdict(lambda: defaultdict(list))
    for span in spans:
        end = max(span.start, span.end)
        raw[span.node, span.worker][span.failed, span.workload].append(
            Bar(
                left=(span.start - start) * scale,
                right=(end - start) * scale,
                first=span,
                end=end,
            )
        )
    limit = THIN
    drawn = _merged(raw, limit)
    while sum(map(len, drawn.values())) > MAX_BARS and scale and limit < 10_000:
        limit *= 1.5
        drawn = _merged(raw, limit)
    lanes: dict[str, list[Lane]] = defaultdict(list)
    for (node, worker), bars in drawn.items():
        lanes[node].append(Lane(worker=worker, bars=bars))
    return lanes


def _merged(raw: _Series, limit: float) -> dict[tuple[str, int], list[Bar]]:
    """Every lane's bars, the failed ones last: on top, and never hidden in a longer bar."""
    return {
        lane: [bar for key in sorted(series) for bar in merge(series[key], limit)]
        for lane, series in raw.items()
    }


def _bands(
    spans: Sequence[TaskSpan], start: float, scale: float, width: float, classes: dict[str, str]
) -> list[Band]:
    runs: dict[str, list[TaskSpan]] = defaultdict(list)
    for span in spans:
        runs[span.workload].append(span)
    bands: list[Band] = []
    ends: list[float] = []  # how far each row of labels is taken
    for workload, run in runs.items():
        left = (run[0].start - start) * scale
        right = (max(max(span.start, span.end) for span in run) - start) * scale
        label = _band_label(workload, run, right - left)
        label_x = max(0.0, min(left, width - len(label) * _CHARACTER))
        row = next((n for n, end in enumerate(ends) if end <= label_x), len(ends))
        ends[row : row + 1] = [max(right, label_x + len(label) * _CHARACTER + 10)]
        bands.append(
            Band(
                workload=workload,
                css=classes[workload],
                left=left,
                right=right,
                label=label,
                label_x=label_x,
                row=row,
            )
        )
    return bands


def _band_label(workload: str, run: Sequence[TaskSpan], width: float) -> str:
    """The workload's name, and its number of tasks where the band has the room."""
    name = workload if len(workload) <= 28 else workload[:27] + "…"
    longer = f"{name} · {plural(len(run), 'task')}"
    return longer if len(longer) * _CHARACTER <= width else name


def _lane_height(lanes: int) -> float:
    return next((height for most, height in _LANE_HEIGHTS if lanes <= most), _LOWEST_LANE)


def _blocks(
    nodes: Sequence[NodeInfo], lanes: dict[str, list[Lane]], lane_height: float, top: float
) -> list[Block]:
    blocks: list[Block] = []
    for node in nodes:
        own = lanes[node.name] or [Lane(worker=None, bars=())]
        height = max(len(own) * lane_height, _MIN_NODE_HEIGHT) + _NODE_GAP
        blocks.append(Block(node=node, lanes=own, top=top, height=height))
        top += height
    return blocks


def gutter(timeline: Timeline) -> str:
    """The left part: each node with its market, each worker with its process id."""
    parts: list[str] = []
    for block in timeline.blocks:
        node, y = block.node, block.top + _NODE_GAP / 2
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
    if not timeline.bands:
        middle = (timeline.top + timeline.bottom) / 2 + 4
        parts.append(f'<text class="muted" x="16" y="{middle:g}">No task was recorded.</text>')
    return "\n".join(parts)


def description(report: Report) -> str:
    """The picture in words, for those who do not see it."""
    workers = len({(span.node, span.worker) for span in report.spans})
    names = ", ".join(dict.fromkeys(span.workload for span in report.spans)) or "none"
    return (
        f"Timeline of {plural(len(report.spans), 'task attempt')} on "
        f"{plural(report.nodes_used, 'node')} and "
        f"{plural(workers, 'worker process', 'worker processes')}. Workloads: {names}."
    )


def picture(report: Report) -> str:
    """The timeline as an SVG file of its own, on its own ground: right on white and on black."""
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
    """The market as a word in a pill: solid for on-demand, dashed for what may be taken away."""
    kind = "on-demand" if market == "on-demand" else "spot"
    word = esc(market, 14)
    width = min(len(market), 14) * 6.6 + 18
    return (
        f'<rect class="pill {kind}" x="0.6" y="{y:g}" width="{width:g}" height="17" rx="8.5"/>'
        f'<text class="word {kind}" text-anchor="middle" x="{width / 2:g}" y="{y + 12:g}">'
        f"{word}</text>"
    )


def _band(timeline: Timeline, band: Band) -> str:
    """The label in its row, and the line that says how long the workload ran."""
    y = band.row * _BAND_ROW
    return (
        f'<g class="band"><text class="strong" x="{band.label_x:.1f}" y="{y + 11:g}">'
        f'{esc(band.label)}</text><rect class="{band.css}" x="{band.left:.1f}" '
        f'y="{timeline.top - 3:g}" width="{max(band.right - band.left, 2):.1f}" height="3"/></g>'
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
    """Top and height of a lane's bars, which leave some air between lanes."""
    air = 2 if timeline.lane_height >= 12 else 1
    top = block.top + _NODE_GAP / 2 + index * timeline.lane_height + air
    return top, timeline.lane_height - 2 * air


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
    # A hair of air between bars shows that they are several; thin ones must stay visible.
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
