"""What is printed never steers the terminal."""

import pytest
from rich.text import Text

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
