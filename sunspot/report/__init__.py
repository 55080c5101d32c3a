"""What ran where: a page with its pictures, and a table for the terminal.

    report = Report(stack="dev", cores=2, nodes=nodes, results=results, spans=spans, ...)
    index = write(report, Path("sunspot-report"))
    console.print(table(report))

The page needs nothing but itself: no script, no font, no address outside the file.
"""

from sunspot.report.model import NodeInfo, Report, TaskSpan, WorkloadResult
from sunspot.report.output import INDEX, TIMELINE, check_folder, table, write

__all__ = [
    "INDEX",
    "TIMELINE",
    "NodeInfo",
    "Report",
    "TaskSpan",
    "WorkloadResult",
    "check_folder",
    "table",
    "write",
]
