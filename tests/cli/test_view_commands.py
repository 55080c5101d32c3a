"""`sunspot top` and `sunspot report`, without Ray: what they show, and what they refuse."""

import io
import shutil

import pytest
from cli_runs import run
from local_stacks import WORKERS, stack, write
from rich.console import Console
from rich.text import Text

from sunspot import top
from sunspot.errors import UsageError
from sunspot.node.events import Event
from sunspot.targets.local.target import LocalTarget

pytestmark = pytest.mark.usefixtures("place")


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=90, height=20)


@pytest.fixture
def target(clusters):
    """A cluster "dev" whose head does not answer."""
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    (folder.path / "token").write_text("t" * 32)
    folder.events.path.unlink(missing_ok=True)
    for number in range(10):
        folder.events.add(Event(kind="joined", group="workers", node=f"workers-{number}", time=1.0))
    return LocalTarget(folder.path.parent)


def test_the_picture_has_the_status_what_is_wrong_and_the_latest_events(target):
    text = top.picture(target, "dev", terminal()).plain
    assert "dev" in text
    assert "does not answer:" in text
    assert "workers-1 " not in text
    assert [line.split()[3] for line in text.splitlines() if " joined " in line] == [
        f"workers-{number}" for number in range(2, 10)
    ]


def test_the_events_stay_where_there_are_more_nodes_than_lines(target):
    console = terminal()
    console.height = 12
    text = top.picture(target, "dev", console).plain
    assert len(text.splitlines()) <= 12
    assert text.count(" joined ") == 8


def test_it_ends_when_the_cluster_is_taken_down(target, monkeypatch):
    drawn = []

    def picture(*_):
        drawn.append(len(drawn))
        if len(drawn) == 2:
            shutil.rmtree(target.clusters / "dev")
        return Text(f"picture {len(drawn)}")

    monkeypatch.setattr(top, "picture", picture)
    console = terminal()
    top.watch(target, "dev", 0.001, console)
    assert len(drawn) == 2
    assert isinstance(console.file, io.StringIO)
    assert "picture 2" in console.file.getvalue()


def test_without_a_terminal_it_says_what_serves_a_program(target):
    with pytest.raises(UsageError, match="sunspot status dev --json"):
        top.watch(target, "dev", 1.0, Console(file=io.StringIO()))


@pytest.mark.parametrize("interval", ["0", "-1", "soon", "nan", "inf"])
def test_what_is_not_an_interval_is_refused(interval):
    result = run("top", "dev", "--interval", interval)
    assert result.exit_code == 2
    assert "--interval" in result.output


def test_a_report_that_could_not_be_written_is_refused_first(target, tmp_path):
    (tmp_path / "file").write_text("")
    result = run("report", "dev", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "Choose a folder you may write to" in result.output


def test_a_report_that_fails_makes_no_folder(target, tmp_path):
    assert run("report", "dev", "--out", str(tmp_path / "new" / "report")).exit_code == 1
    assert not (tmp_path / "new").exists()


def test_a_report_of_a_head_that_does_not_answer_says_so(target, tmp_path):
    result = run("report", "dev", "--out", str(tmp_path / "report"))
    assert result.exit_code == 1
    assert "does not answer" in result.output
