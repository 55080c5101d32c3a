"""The layout of a timeline: a lane for each worker process, grouped by node, in real seconds.

`drawing.py` draws it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sunspot.report.model import NodeInfo, NodeMark, Report, TaskSpan
from sunspot.report.text import plural
from sunspot.report.theme import workload_class

MAX_BARS = 3500  # about 0.6 MB of SVG
MOST_TICKS = 10
THIN = 3.0  # pixels: adjacent bars that fit in this together become one

BAND_ROW = 18
NODE_GAP = 14
_MIN_NODE_HEIGHT = 44
_AXIS_HEIGHT = 34
_CHARACTER = 6.9  # the width of an average character of a label
_LANE_HEIGHTS = ((12, 22), (24, 16), (48, 12))  # (up to this many lanes, pixels of each)
_LOWEST_LANE = 8


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Tasks of one workload and outcome that are drawn as one; pixels from the plot's left."""

    left: float
    right: float
    first: TaskSpan
    end: float
    count: int = 1

    def joined(self, other: "Bar") -> "Bar":
        """This bar and a later one, merged."""
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
    """One node: its lanes, and its position."""

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
class Flag:
    """A mark across a node's lanes, `x` pixels from the plot's left; `seconds` from its start.

    Labels of one node are in different rows, the first at the bottom.
    """

    mark: NodeMark
    block: Block
    x: float
    seconds: float
    row: int


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The whole layout: a plot, and left of it a gutter of equal height."""

    width: float
    start: float
    duration: float
    lane_height: float
    bands: Sequence[Band]
    blocks: Sequence[Block]
    classes: dict[str, str]
    flags: Sequence[Flag] = ()

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
        """Whether any bar stands for several tasks."""
        lanes = (lane for block in self.blocks for lane in block.lanes)
        return any(bar.count > 1 for lane in lanes for bar in lane.bars)

    @property
    def height(self) -> float:
        """The total height, including labels and axis."""
        return self.bottom + _AXIS_HEIGHT


def lay_out(report: Report, width: float) -> Timeline:
    """Lays out the report's spans on a plot that is `width` pixels wide."""
    spans = sorted(report.spans, key=lambda span: (span.start, span.node, span.worker, span.name))
    start = spans[0].start if spans else 0.0
    ends = [span.end for span in spans] + [mark.time for mark in report.marks if spans]
    duration = max(ends, default=start) - start
    scale = width / duration if duration > 0 else 0.0
    classes = {name: workload_class(index) for index, name in enumerate(report.workloads)}
    lanes = _lanes(spans, start, scale)
    bands = _bands(spans, start, scale, width, classes)
    nodes = report.all_nodes
    lane_height = _lane_height(sum(len(lanes[node.name]) or 1 for node in nodes))
    rows = max((band.row for band in bands), default=-1) + 1
    blocks = _blocks(nodes, lanes, lane_height, rows * BAND_ROW + 10)
    return Timeline(
        width=width,
        start=start,
        duration=duration,
        lane_height=lane_height,
        bands=bands,
        blocks=blocks,
        classes=classes,
        flags=_flags(report.marks, blocks, start, scale),
    )


def ticks(duration: float) -> list[float]:
    """Round seconds (1, 2 or 5 times a power of ten) from 0 to the duration, at most MOST_TICKS."""
    if duration <= 0:
        return []
    power = 10 ** math.floor(math.log10(duration / MOST_TICKS))
    step = next(power * m for m in (1, 2, 5, 10, 20) if duration / (power * m) <= MOST_TICKS - 1)
    return [round(n * step, 9) for n in range(int(duration / step + 1e-9) + 1)]


def merge(bars: Iterable[Bar], limit: float) -> list[Bar]:
    """Merges adjacent bars that nearly touch and are together at most `limit` pixels wide."""
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
    """Each node's lanes, first worker first, with bars that are thick and few enough to draw."""
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
    """Every lane's bars, the failed ones last, so that they are on top and none is hidden."""
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
    ends: list[float] = []  # where the last label of each row ends
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
    """The workload's name, and its number of tasks if the band has room for it."""
    name = workload if len(workload) <= 28 else workload[:27] + "…"
    longer = f"{name} · {plural(len(run), 'task')}"
    return longer if len(longer) * _CHARACTER <= width else name


def _flags(
    marks: Sequence[NodeMark], blocks: Sequence[Block], start: float, scale: float
) -> list[Flag]:
    """The marks of nodes that are drawn, without those before the first task."""
    by_node = {block.node.name: block for block in blocks}
    flags: list[Flag] = []
    for mark in marks:
        if mark.node in by_node and mark.time >= start and scale:
            row = sum(flag.mark.node == mark.node for flag in flags)
            since = mark.time - start
            block = by_node[mark.node]
            flags.append(Flag(mark=mark, block=block, x=since * scale, seconds=since, row=row))
    return flags


def _lane_height(lanes: int) -> float:
    return next((height for most, height in _LANE_HEIGHTS if lanes <= most), _LOWEST_LANE)


def _blocks(
    nodes: Sequence[NodeInfo], lanes: dict[str, list[Lane]], lane_height: float, top: float
) -> list[Block]:
    blocks: list[Block] = []
    for node in nodes:
        own = lanes[node.name] or [Lane(worker=None, bars=())]
        height = max(len(own) * lane_height, _MIN_NODE_HEIGHT) + NODE_GAP
        blocks.append(Block(node=node, lanes=own, top=top, height=height))
        top += height
    return blocks
