"""The folder that a report is written to."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sunspot.errors import SunspotError, UsageError
from sunspot.ray import packaging
from sunspot.report import NodeInfo, Report, TaskSpan, write


@pytest.fixture
def report() -> Report:
    node = NodeInfo(name="head", group="head", market="on-demand", cpus=2, memory_gb=4)
    span = TaskSpan(
        workload="primes",
        name="primes",
        node=node.name,
        group=node.group,
        market=node.market,
        worker=7,
        start=0.0,
        end=10.0,
    )
    return Report(
        stack="dev",
        cores=2,
        nodes=[node],
        results=[],
        spans=[span],
        bring_up_seconds=4.0,
        created=datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    )


def test_write_replaces_and_leaves_nothing_else(report, tmp_path):
    folder = tmp_path / "deep" / "sunspot-report"
    assert write(report, folder) == folder / "index.html"
    write(replace(report, stack="cpu"), folder)
    found = sorted(path.name for path in folder.iterdir())
    assert found == [".gitignore", "index.html", "timeline.svg"]
    assert "stack cpu" in (folder / "timeline.svg").read_text(encoding="utf-8")


def test_a_new_folder_goes_neither_into_git_nor_along_with_a_job(report, tmp_path):
    (tmp_path / "kept").mkdir()
    for name in ("new", "kept"):
        write(report, tmp_path / name)
    sent = {str(file.path) for file in packaging.collect(tmp_path)}
    assert sent == {"kept/index.html", "kept/timeline.svg"}


def test_a_file_in_the_way_is_a_usage_error(report, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match=r"taken.*Choose a folder"):
        write(report, tmp_path / "taken")


def test_a_full_disk_keeps_the_old_report(report, tmp_path, monkeypatch):
    old = write(report, tmp_path).read_bytes()

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SunspotError, match="No space left"):
        write(replace(report, stack="cpu"), tmp_path)
    assert (tmp_path / "index.html").read_bytes() == old
    with pytest.raises(SunspotError, match="No space left"):
        write(report, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "timeline.svg"]
