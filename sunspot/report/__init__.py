"""A report of what ran where: a page with pictures, and a table for the terminal.

    report = Report(stack="dev", cores=2, nodes=nodes, results=results, spans=spans, ...)
    index = write(report, Path("sunspot-report"))
    console.print(table(report))

The page is self-contained: no script, no font and no address outside the file.
"""

from sunspot.report.model import NodeInfo, NodeMark, Report, TaskSpan, WorkloadResult
from sunspot.report.output import INDEX, TIMELINE, check_folder, table, write
from sunspot.report.page import core_limit

__all__ = [
    "INDEX",
    "TIMELINE",
    "NodeInfo",
    "NodeMark",
    "Report",
    "TaskSpan",
    "WorkloadResult",
    "check_folder",
    "core_limit",
    "table",
    "write",
]
