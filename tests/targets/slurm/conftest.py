"""A Slurm site for each test, of which nothing is left at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_site
from slurm_site import SlurmSite
from waiting import wait_for


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SlurmSite]:
    made = slurm_site.make(tmp_path)
    yield made
    made("down")
    wait_for("every process to end", lambda: not made.processes(), 30)
    assert not made.tokens()
