"""The helper that the tests wait with."""

import threading
import time
from itertools import pairwise

import pytest
from waiting import wait_for


def test_the_first_true_answer_is_returned():
    answers = iter([0, None, 7, 8])
    assert wait_for("a number", lambda: next(answers), poll_s=0) == 7


def test_the_deadline_names_what_and_shows_the_last_answer():
    with pytest.raises(AssertionError) as caught:
        wait_for("two nodes", list, 0, seen=lambda: "the log's end")
    for part in ("two nodes", "[]", "the log's end"):
        assert part in str(caught.value)


def test_an_exception_ends_the_waiting_unless_it_only_means_not_yet():
    def failing():
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError):
        wait_for("an answer", failing, 60)
    with pytest.raises(AssertionError, match="refused"):
        wait_for("an answer", failing, 0, not_yet=(OSError,))


def test_what_takes_long_to_answer_is_asked_less_often():
    looks = []

    def slow():
        looks.append(time.monotonic())
        threading.Event().wait(0.1)
        return len(looks) == 3

    wait_for("a third look", slow, poll_s=0)
    assert min(after - before for before, after in pairwise(looks)) >= 0.5
