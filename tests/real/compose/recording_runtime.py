#!/usr/bin/python3
"""An OCI runtime that writes down what it was given: the devices and variables of each container.

It leaves out NVIDIA's hooks, since those that the tests have lead nowhere, and goes on as the
next runtime. FOLDER and NEXT are replaced when it is installed.
"""

import json
import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Records a container that is created, and goes on as the next runtime."""
    if "create" in arguments:
        path = Path(arguments[arguments.index("--bundle") + 1], "config.json")
        document = json.loads(path.read_text())
        hooks = document.get("hooks", {})
        before = hooks.get("prestart", [])
        # Docker's own gives the container its network.
        of_nvidia = [one for one in before if "nvidia" in Path(one["path"]).name]
        record = {
            "name": document["hostname"],
            "environment": document["process"]["env"],
            "devices": [one["path"] for one in document["linux"].get("devices", [])],
            "groups": document["process"]["user"].get("additionalGids", []),
            "hooks": [one["path"] for one in of_nvidia],
            "arguments": document["process"]["args"],
        }
        Path("FOLDER", f"{arguments[-1]}.json").write_text(json.dumps(record))
        if of_nvidia:
            hooks["prestart"] = [one for one in before if one not in of_nvidia]
        path.write_text(json.dumps(document))
    os.execv("NEXT", ["NEXT", *arguments])  # noqa: S606, S607


if __name__ == "__main__":
    main(sys.argv[1:])
