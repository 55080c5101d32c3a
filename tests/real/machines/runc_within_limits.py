#!/usr/bin/python3
"""runc for machines whose root may not raise limits: asks for no more than there is.

Stands in for runc in an engine of the tests where the limit of open files that our units ask for
(`--ulimit`) is above this machine's and root has no CAP_SYS_RESOURCE. Everything else is runc's.
"""

import json
import os
import resource
import sys
from pathlib import Path

LIMITS = {"RLIMIT_NOFILE": resource.RLIMIT_NOFILE}


def lower(config: Path) -> None:
    """Lowers the limits of a container's configuration to this process's own."""
    document = json.loads(config.read_text())
    for limit in document["process"].get("rlimits") or []:
        if limit["type"] in LIMITS:
            _, most = resource.getrlimit(LIMITS[limit["type"]])
            limit |= {"soft": min(limit["soft"], most), "hard": min(limit["hard"], most)}
    config.write_text(json.dumps(document))


if __name__ == "__main__":
    if "create" in sys.argv:
        lower(Path(sys.argv[sys.argv.index("--bundle") + 1], "config.json"))
    os.execv("/usr/sbin/runc", ["runc", *sys.argv[1:]])  # noqa: S606
