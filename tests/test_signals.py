"""Signals that wait for the end of a block, or are ignored in it."""

import os
import signal
import threading

import pytest

from sunspot.signals import deferred, terminating, uninterrupted


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


@pytest.fixture
def default():
    """Python's own handler of SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_sigterm_leaves_the_block(default):
    with pytest.raises(SystemExit) as caught, terminating():
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_another_handler_of_sigterm_stays(default, when):
    def own(*_):
        pass

    if when == "before":
        signal.signal(signal.SIGTERM, own)
    with terminating():
        if when == "meanwhile":
            signal.signal(signal.SIGTERM, own)
        assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGTERM) is own


def test_beside_the_main_thread_sigterm_stays_as_it_is(default):
    def run():
        with terminating():
            handlers.append(signal.getsignal(signal.SIGTERM))

    handlers = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]
