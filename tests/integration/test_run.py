"""`sunspot run`: a cluster that is there for one command, with real Ray."""

from __future__ import annotations

import signal

from harness import FOREVER, Sunspot
from sunspot_command import DEADLINE_S

COUNTS = (
    "import ray, sys; ray.init(logging_level='ERROR'); "
    "print('result', ray.get(ray.remote(lambda: 2).remote())); sys.exit(int(sys.argv[1]))"
)


def is_gone(sunspot: Sunspot, name: str) -> bool:
    """Whether no cluster has that name; the fixture looks for processes when all tests ended."""
    return name not in sunspot.target.names() and not sunspot.folder(name).path.exists()


def test_a_command_gets_a_cluster_and_its_exit_code_is_passed_on(sunspot: Sunspot):
    done = sunspot("run", "solo", "--", "python", "-c", COUNTS, "0")
    assert (done.returncode, done.stdout.strip().splitlines()[-1]) == (0, "result 2"), done.stderr
    assert is_gone(sunspot, "solo")
    failed = sunspot("run", "solo", "--", "python", "-c", COUNTS, "7")
    assert failed.returncode == 7, failed.stderr
    assert is_gone(sunspot, "solo")


def test_ctrl_c_stops_the_command_and_leaves_no_cluster(sunspot: Sunspot):
    with sunspot.started("run", "solo", "--", *FOREVER) as running:
        assert running.stdout is not None
        while "begun" not in (line := running.stdout.readline()):
            assert line, "it ended"
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 130
    assert "is stopped" in told
    assert "Traceback" not in told
    assert is_gone(sunspot, "solo")
