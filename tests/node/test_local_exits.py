"""Why a node ended, from the end of its log."""

import pytest

from sunspot.node.local.exits import ending

STARTED = ["Ray runtime started.", "", "--block", "Process exit logs will be saved to: /x.log"]
PREFIX = "2026-11-22 06:46:30,477\tERR scripts.py:1307 -- "
KILLED = [
    "Some Ray subprocesses exited unexpectedly:",
    "  raylet [exit code=-9]",
    "",
    "----- BEGIN raylet.out tail (exit code(s)=-9 (SIGKILL)) -----",
    "",
    "[2026-11-22] (raylet) another node's line",
    "",
    "----- END raylet.out tail (exit code(s)=-9 (SIGKILL)) -----",
    "Remaining processes will be killed.",
]


def test_the_cause_comes_first_and_other_nodes_logs_are_left_out():
    shown = ending([*STARTED, *(PREFIX + line for line in KILLED)], 3)
    assert shown == [
        "raylet was killed by signal 9 (SIGKILL)",
        "  raylet [exit code=-9]",
        "",
        "Remaining processes will be killed.",
    ]


@pytest.mark.parametrize(
    ("code", "words"),
    [("1", "exited with code 1"), ("-11", "signal 11 (SIGSEGV)"), ("-64", "signal 64")],
)
def test_how_a_process_ended(code, words):
    first, *_ = ending([f"  gcs_server [exit code={code}]"], 1)
    assert first.startswith("gcs_server ")
    assert words in first


def test_one_that_was_killed_with_all_its_processes_leaves_no_line():
    first, *rest = ending(STARTED, 12)
    assert "killed" in first
    assert rest == []


def test_one_that_was_killed_while_it_started_is_told_too():
    first, *_ = ending(["2026-11-22 INFO usage stats", "Local node IP: 127.0.0.1", ""], 12)
    assert "killed" in first
    assert ending(["Local node IP: 127.0.0.1", "no space left"], 1) == ["no space left"]


def test_one_that_never_started_has_only_its_log():
    assert ending(["address already in use"], 12) == ["address already in use"]
    assert ending([], 12) == []
