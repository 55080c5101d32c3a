"""The report as one self-contained HTML page."""

from collections import Counter
from collections.abc import Sequence

from sunspot.report.drawing import (
    GUTTER_WIDTH,
    PAGE_PLOT_WIDTH,
    description,
    gutter,
    plot,
)
from sunspot.report.model import MemoryUse, NodeInfo, Report, WorkloadResult
from sunspot.report.text import esc, number, plural, seconds, speed_up
from sunspot.report.theme import page_css, workload_class
from sunspot.report.timeline import Timeline, lay_out

# A sun with a spot: the name of the project.
_SUN = (
    '<svg class="sun" viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">'
    '<circle class="disc" cx="16" cy="16" r="14"/><circle class="spot" cx="20.5" cy="12" r="3.6"/>'
    '<circle class="spot" cx="14.2" cy="15.4" r="1.5"/></svg>'
)
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E"
    "%3Ccircle cx='16' cy='16' r='15' fill='%23f0a020'/%3E"
    "%3Ccircle cx='21' cy='12' r='4' fill='%235c3300'/%3E%3C/svg%3E"
)
_SYSTEMS = (
    ("ray", "Ray's object store", "one copy per node"),
    ("multiprocessing", "multiprocessing", "one copy per worker"),
)


def page(report: Report) -> str:
    """The whole page; the same report always gives the same bytes."""
    headline = f"{plural(report.tasks, 'task')} on {plural(report.nodes_used, 'node')}"
    sections = [
        _header(report, headline),
        _cluster(report),
        _timeline(report),
        _results(report),
        *(_memory(result) for result in report.results if _compares(result)),
        _notes(report),
    ]
    body = "\n".join(section for section in sections if section)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        '<meta name="color-scheme" content="light dark"/>\n'
        f'<title>{headline} · Sunspot</title>\n<link rel="icon" href="{_ICON}"/>\n'
        f"<style>\n{page_css()}\n</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _header(report: Report, headline: str) -> str:
    created = report.created
    when = f"{created.day} {created:%B %Y, %H:%M}{created:%z}".replace("+0000", " UTC")
    facts = _facts(report)
    items = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in facts)
    return (
        f'<header>\n<p class="brand">{_SUN}<span>Sunspot</span></p>\n<h1>{headline}</h1>\n'
        f'<p class="lead">Stack <b>{esc(report.stack)}</b>, '
        f'<time datetime="{created.isoformat()}">{when}</time></p>\n'
        f'<dl class="facts">{items}</dl>\n</header>'
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    workers = len({(span.node, span.worker) for span in report.spans})
    spot = sum(_kind(node.market) == "spot" for node in report.nodes)
    facts = [
        ("workloads", str(len(report.workloads))),
        ("worker processes", f"{workers:,}"),
        ("spot nodes", f"{spot} of {len(report.nodes)}"),
    ]
    # Where one follows the other, as in the demo.
    if any(result.one_worker_seconds is not None for result in report.results):
        whole = seconds(sum(result.seconds for result in report.results))
        facts.append(("time of all workloads", f"{whole} s"))
    if report.bring_up_seconds is not None:
        facts.insert(0, ("cluster up in", f"{seconds(report.bring_up_seconds)} s"))
    failed = sum(span.failed for span in report.spans)
    if failed:
        facts.append(("failed attempts", f"{failed:,}"))
    return facts


def _cluster(report: Report) -> str:
    ran = Counter(span.node for span in report.spans)
    cards = "\n".join(_card(node, ran[node.name]) for node in report.all_nodes)
    return _section("cluster", "The cluster", f'<ul class="nodes">\n{cards}\n</ul>')


def _card(node: NodeInfo, tasks: int) -> str:
    kind = _kind(node.market)
    size = [_units(node.cpus, "CPU")] if node.cpus or node.memory_gb else []
    size += [_units(node.gpus, "GPU")] if node.gpus else []
    size += [f"{number(node.memory_gb)} GiB"] if node.memory_gb else []
    return (
        f'<li class="{kind}"><div><h3>{esc(node.name)}</h3>'
        f'<span class="small">{plural(tasks, "task")}</span></div>'
        f'<p><span class="badge {kind}">{esc(node.market)}</span> group {esc(node.group)}</p>'
        f'<p class="small">{" · ".join(size)}</p></li>'
    )


def _units(value: float, noun: str) -> str:
    """`0 CPUs`, `0.5 CPU`, `1 CPU`, `8 CPUs`."""
    return f"{number(value)} {noun}" + ("" if 0 < value <= 1 else "s")


def _kind(market: str) -> str:
    return "on-demand" if market == "on-demand" else "spot"


def _timeline(report: Report) -> str:
    timeline = lay_out(report, PAGE_PLOT_WIDTH)
    text = "Each lane is one worker process, each bar a task; point at a bar for its name. "
    if any(result.one_worker_seconds is not None for result in report.results):
        text += "Between two workloads the next job starts, and runs its work once on one worker. "
    text += '<span class="narrow">Scroll the picture sideways.</span>'
    if timeline.merged:
        text += " Tasks too short to show separately share a bar."
    if any(span.failed for span in report.spans):
        text += ' <span class="key-failed"></span> Red with an outline: failed.'
    if timeline.flags:
        text += " A red line across a node: an eviction notice, its end, or when it joined."
    chart = (
        f'<div class="scroll chart" tabindex="0" role="region" aria-label="Timeline">'
        f"{_svg(timeline, 'gutter', GUTTER_WIDTH, gutter(timeline), '')}"
        f"{_svg(timeline, 'plot', timeline.width, plot(timeline), description(report))}</div>"
    )
    return _section("timeline", "Tasks over time", f'<p class="small">{text}</p>\n{chart}')


def _svg(timeline: Timeline, css: str, width: float, content: str, label: str) -> str:
    share = 100 * width / (GUTTER_WIDTH + timeline.width)
    spoken = f'role="img" aria-label="{esc(label)}"' if label else 'aria-hidden="true"'
    return (
        f'<svg class="{css}" xmlns="http://www.w3.org/2000/svg" {spoken} width="{width:g}" '
        f'height="{timeline.height:g}" viewBox="0 0 {width:g} {timeline.height:g}" '
        f'style="--share:{share:.3f}%">\n{content}\n</svg>'
    )


def _results(report: Report) -> str:
    if not report.results:
        return ""
    colours = {name: workload_class(index) for index, name in enumerate(report.workloads)}
    rows = "\n".join(_row(result, colours[result.workload]) for result in report.results)
    headings = "".join(
        f'<th scope="col">{heading}</th>'
        for heading in ("workload", "tasks", "nodes used", "seconds", "speed-up over one worker")
    )
    return _section(
        "results",
        "Results",
        '<div class="scroll" tabindex="0" role="region" aria-label="Results"><table>\n'
        f"<thead><tr>{headings}</tr></thead>\n{rows}\n</table></div>",
    )


def _row(result: WorkloadResult, colour: str) -> str:
    summary = f'<tr class="summary"><td colspan="5">{esc(result.summary)}</td></tr>'
    return (
        f'<tbody><tr><th scope="row"><span class="swatch {colour}"></span>{esc(result.workload)}'
        f"</th><td>{result.tasks:,}</td><td>{result.nodes}</td><td>{seconds(result.seconds)}</td>"
        f"<td>{speed_up(result.speed_up)}</td></tr>{summary if result.summary else ''}</tbody>"
    )


def _compares(result: WorkloadResult) -> bool:
    memory = result.memory
    return all(system in memory and memory[system].workers for system, _, _ in _SYSTEMS)


def _memory(result: WorkloadResult) -> str:
    """Two totals on one scale, then each worker on another."""
    memory = result.memory
    totals = max(use.total_mb for use in memory.values())
    single = max(worker.pss_mb for use in memory.values() for worker in use.workers)
    total_bars = "".join(
        f'<div class="total {system}"><dt>{title} <span class="small">{note}</span></dt><dd>'
        f"{_bar(memory[system].total_mb, totals)}<b>{_mb(memory[system].total_mb)}</b></dd></div>"
        for system, title, note in _SYSTEMS
    )
    columns = "".join(
        f'<div class="{system}"><h3>{title}</h3>{_workers(memory[system], single)}</div>'
        for system, title, _ in _SYSTEMS
    )
    return _section(
        "memory",
        "One array, many readers",
        f"<p>{_memory_sentence(memory['ray'], memory['multiprocessing'])}</p>\n"
        f'<dl class="totals">{total_bars}</dl>\n<div class="columns">{columns}</div>',
    )


def _memory_sentence(ray: MemoryUse, peer: MemoryUse) -> str:
    sentence = (
        f"The same array of {_mb(ray.array_mb)}, read by {plural(len(ray.workers), 'worker')} "
        f"with Ray and by {len(peer.workers)} with multiprocessing. Memory is proportional: each "
        "process counts only its share of a page that several processes share."
    )
    if peer.total_mb > ray.total_mb > 0:
        times = peer.total_mb / ray.total_mb
        sentence += f" Together, Ray's workers hold <b>{times:.1f} times less</b>."
    return sentence


def _workers(use: MemoryUse, largest: float) -> str:
    by_node: dict[str, list[str]] = {}
    for worker in sorted(use.workers, key=lambda worker: (worker.node, worker.pid)):
        by_node.setdefault(worker.node, []).append(
            f"<div><dt>{worker.pid}</dt><dd>{_bar(worker.pss_mb, largest)}"
            f"{_mb(worker.pss_mb)}</dd></div>"
        )
    return "".join(
        f'<h4>{esc(node)}</h4><dl class="workers">{"".join(rows)}</dl>'
        for node, rows in by_node.items()
    )


def _bar(value: float, largest: float) -> str:
    share = 100 * value / largest if largest > 0 else 0
    return f'<span class="track"><span style="width:{max(share, 0):.1f}%"></span></span>'


def _mb(value: float) -> str:
    return f"{value:,.0f} MB"


def _notes(report: Report) -> str:
    notes = "\n".join(f"<p>{note}</p>" for note in _note_texts(report))
    return f"<footer>\n{notes}\n</footer>" if notes else ""


def core_limit(report: Report) -> str | None:
    """How far this machine's cores limit the speed-up; None if each CPU of the cluster has one."""
    logical = sum(node.cpus for node in report.nodes)
    if report.cores is None or logical <= report.cores:
        return None
    cores, cpus = plural(report.cores, "core"), number(logical)
    return f"This machine has {cores}, so {cpus} logical CPUs cannot be faster than {cores}."


def _note_texts(report: Report) -> Sequence[str]:
    notes = [limit] if (limit := core_limit(report)) else []
    lanes = {(span.node, span.worker) for span in report.spans}
    by_workload = {(span.node, span.worker, span.workload) for span in report.spans}
    if len({span.workload for span in report.spans}) > 1 and len(lanes) == len(by_workload):
        notes.append("Ray starts new worker processes for each job, so each workload has its own.")
    if report.spans and len(report.spans) < report.tasks:
        notes.append(
            f"Ray kept the times of {plural(len(report.spans), 'task attempt')}; "
            f"the workloads counted {plural(report.tasks, 'task')}."
        )
    return [*notes, *(esc(note) for note in report.notes)]


def _section(name: str, title: str, content: str) -> str:
    return (
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{content}\n</section>'
    )
