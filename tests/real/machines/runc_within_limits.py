#!/usr/bin/python3
"""runc for machines whose root may not raise limits: asks for no more than there is.

Stands in for runc in an engine of the tests where root has no CAP_SYS_RESOURCE and our units ask
for what takes it: more open files (`--ulimit`) than this machine's limit, a better place with the
out-of-memory killer (`--oom-score-adj`). Everything else is runc's.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

LIMITS = {"RLIMIT_NOFILE": resource.RLIMIT_NOFILE}


def lower(process: dict[str, Any]) -> None:
    """Lowers the limits of a container's process to this process's own."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    if process.get("oomScoreAdj", own) < own:
        process["oomScoreAdj"] = own
    for limit in process.get("rlimits") or []:
        if limit["type"] in LIMITS:
            _, most = resource.getrlimit(LIMITS[limit["type"]])
            limit |= {"soft": min(limit["soft"], most), "hard": min(limit["hard"], most)}


def main(arguments: list[str]) -> None:
    """Changes what runc will read: a container's configuration, or that of a process in it."""
    if "create" in arguments:
        path = Path(arguments[arguments.index("--bundle") + 1], "config.json")
        document = json.loads(path.read_text())
        lower(document["process"])
        path.write_text(json.dumps(document))
    elif "exec" in arguments:
        path = Path(arguments[arguments.index("--process") + 1])
        process = json.loads(path.read_text())
        lower(process)
        path.write_text(json.dumps(process))
    os.execv("/usr/sbin/runc", ["runc", *arguments])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
