"""The locks agree with each other, so that one environment can have every extra."""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def test_a_package_has_the_same_versions_in_every_lock():
    found: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for file in ROOT.glob("requirements*.txt"):
        for name, version in PINNED.findall(file.read_text()):
            found[name].setdefault(file.name, set()).add(version)
    differing = {
        name: versions
        for name, versions in found.items()
        if any(one != next(iter(versions.values())) for one in versions.values())
    }
    assert differing == {}
    assert len(found["jupyterlab"]) == 1
    assert len(found["ray"]) > 1
