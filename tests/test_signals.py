"""Signals that wait for the end of a block, or are ignored in it."""

import os
import signal

import pytest

from sunspot.signals import deferred, uninterrupted


def _run(then):
    """A block that is interrupted, and goes on."""
    with deferred():
        os.kill(os.getpid(), signal.SIGINT)
        then()


def _fail():
    raise ValueError("of the block")


def test_an_interrupt_comes_after_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt):
        _run(lambda: done.append("all"))
    assert done == ["all"]


def test_an_interrupt_is_not_lost_where_the_block_fails():
    with pytest.raises(KeyboardInterrupt) as caught:
        _run(_fail)
    assert str(caught.value.__cause__) == "of the block"


def test_without_an_interrupt_an_error_stays():
    with pytest.raises(ValueError, match="of the block"), deferred():
        _fail()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_cuts_a_clean_up_short(number):
    before = signal.getsignal(number)
    with uninterrupted():
        assert signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is before
