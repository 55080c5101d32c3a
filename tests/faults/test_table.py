"""The committed table has the rows that the suite has shown. This file's name is the last."""

from __future__ import annotations

from pathlib import Path

import fault_table
import pytest
from fault_table import ROWS, WRITE
from own_machine import Machine


def test_the_table_has_the_rows_that_were_shown(machine: Machine, request: pytest.FixtureRequest):
    shown = request.config.stash[ROWS]
    if not _is_whole(request.session):
        pytest.skip("only the whole suite shows all rows")
    if request.config.getoption(WRITE):
        fault_table.write(shown)
    assert fault_table.committed() == fault_table.lines(shown)


def _is_whole(session: pytest.Session) -> bool:
    """Whether no test of the suite was left out."""
    config = session.config
    files = {item.path for item in session.items}
    chosen = "::" in " ".join(config.args) or config.option.keyword or config.option.markexpr
    return not chosen and files >= set(Path(__file__).parent.glob("test_*.py"))
