"""What is printed never steers the terminal; and what a progress shows there."""

import io
from types import SimpleNamespace

import pytest
from rich.text import Text
from waiting import wait_for

from sunspot import console

HOSTILE = "job\x1b]0;mine\x07\x1b[2J\r\x9b"
SHOWN = r"job\x1b]0;mine\x1b[2J\x9b"  # rich itself drops the bell and the carriage return


@pytest.mark.parametrize("made", [str, Text], ids=["text", "rich"])
def test_what_steers_a_terminal_is_shown(capsys, made):
    console.out.print(made(HOSTILE), markup=False)
    console.fail(HOSTILE)
    said = capsys.readouterr()
    assert said.out == f"{SHOWN}\n"
    assert said.err == f"error: {SHOWN}\n"


def test_lines_tabs_and_letters_stay(capsys):
    console.note("größer\n\tthan [this]")
    assert capsys.readouterr().err.split() == ["größer", "than", "[this]"]


def test_the_seconds_go_on_while_a_step_takes_long(monkeypatch):
    file, now = io.StringIO(), [0.0]
    monkeypatch.setattr(console, "err", console._Printable(file=file, force_terminal=True))
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with console.progress("bringing up x", redirect=False) as step:
        step("the [head] starts")
        wait_for("the step", lambda: "0 s · the [head] starts" in file.getvalue())
        now[0] = 60.0
        wait_for("the seconds", lambda: "60 s · the [head] starts" in file.getvalue())
