"""What all tests share."""

import atexit
import dataclasses
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# A console of rich keeps the COLUMNS that it finds when it is made, and looks at later ones only
# if there was none then. So Sunspot's are made here, before a test sets the variable.
os.environ.pop("COLUMNS", None)
import sunspot.console  # noqa: F401
from sunspot import catalog
from sunspot.catalog import sizes
from sunspot.cli import GC_THRESHOLD

# What is loaded and collected stays to the end. To collect garbage from it as often as by default
# would take a fifth of the unit tests' CPU time.
gc.set_threshold(GC_THRESHOLD)
atexit.register(gc.freeze)


_SESSION = pytest.StashKey[pytest.Session]()


def _leave(config: pytest.Config) -> None:
    """Ends the process where Ray was in it, without the destructors of C++ objects.

    Each `ray.init` leaves a thread that goes on with them (OpenCensus's RunHarvesterLoop, Ray
    2.60): now and then a process crashed that way, after it had passed all tests.
    """
    if "ray._raylet" in sys.modules and _SESSION in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(config.stash[_SESSION].exitstatus))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # a worker of xdist has no exit code that counts
        session.config.stash[_SESSION] = session


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    atexit.register(_leave, config)  # early, so that it is one of the last
    config.addinivalue_line("markers", "integration: needs real Ray clusters on this machine")
    # Ignored under nohup and in the background of a script, also in what the tests start.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Adds the tests that were tried again (--reruns) to the list that .ci/run prints."""
    if path := os.environ.get("SUNSPOT_TESTS_TRIED_AGAIN"):
        with Path(path).open("a") as tried_again:
            for report in terminalreporter.stats.get("rerun", ()):
                print(report.nodeid, file=tried_again)


@pytest.fixture
def amd_without_infiniband(monkeypatch):
    """The one size with AMD GPUs, as if it had no InfiniBand, which is refused before all else."""
    size = catalog.get("Standard_ND96isr_MI300X_v5")
    key = size.name.lower().removeprefix("standard_")
    changed = dataclasses.replace(size, infiniband=False)
    original = sizes._size
    monkeypatch.setattr(sizes, "_size", lambda k: changed if k == key else original(k))
