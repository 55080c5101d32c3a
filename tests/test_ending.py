"""The helpers that look at processes, and for what they leave: both may go away meanwhile."""

import os
import subprocess
import sys
from functools import partial

import psutil
import pytest
from ending import below, has_ended, kill, name_of, variables_of, words_of
from leftovers import paths_below, pids_with_files_in
from waiting import wait_for


@pytest.fixture
def ended():
    """A process that was seen, and has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        seen = psutil.Process(process.pid)
        assert not has_ended(seen.pid)
        # It has no words for a moment, while it begins.
        words = wait_for("its words", lambda: words_of(seen))
        assert words[1:] == ["-c", "input()"]
        process.communicate()
    return seen


def test_one_that_has_ended_is_no_error(ended):
    assert has_ended(ended.pid)
    assert (name_of(ended), words_of(ended), variables_of(ended)) == ("", [], {})
    assert below(ended.pid) == []


def test_all_are_killed_though_one_has_ended(ended):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        kill([ended, psutil.Process(other.pid)])
    assert other.returncode < 0


def test_what_goes_away_while_it_is_listed_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "stays" / "within").mkdir(parents=True)
    (tmp_path / "gone").mkdir()
    gone = {f"/proc/{os.getpid()}/fd", str(tmp_path / "gone")}

    def without(listed, path):
        if str(path) in gone:
            raise FileNotFoundError(path)
        return listed(path)

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, partial(without, getattr(os, name)))
    names = {str(path.relative_to(tmp_path)) for path in paths_below(tmp_path)}
    assert names == {"stays", "stays/within", "gone"}
    assert pids_with_files_in(tmp_path) == set()
