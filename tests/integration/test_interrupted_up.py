"""An `up` that does not reach its end, beyond what tests/contract shows of every target."""

from __future__ import annotations

import subprocess

from harness import Sunspot, alive, what_is_left

from sunspot.node.free_ports import free_port


def wait_for_gcs(up: subprocess.Popen[str]) -> None:
    """Returns in the middle of the start, when its first step is done."""
    assert up.stderr is not None
    line = up.stderr.readline()
    assert "GCS answers" in line, line


def two_ports() -> tuple[int, int]:
    first = free_port(set())
    return first, free_port({first})


def ports_of(sunspot: Sunspot, name: str) -> set[int]:
    return {node.agent_port for node in sunspot.folder(name).nodes()}


def test_sigterm_during_up_takes_everything_away_as_ctrl_c_does(sunspot: Sunspot):
    folder, (gcs, dashboard) = sunspot.folder("solo"), two_ports()
    arguments = ("up", "solo", "--port", str(gcs), "--dashboard-port", str(dashboard))
    with sunspot.started(*arguments) as up:
        wait_for_gcs(up)
        processes, agents = folder.processes(), ports_of(sunspot, "solo")
        up.terminate()
        _, errors = up.communicate(timeout=300)
    assert up.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert processes
    assert alive(processes) == []
    assert what_is_left(folder, {gcs, dashboard} | agents) == []
    assert "'solo' is not up" in sunspot.ok("down", "solo")


def test_up_after_a_killed_up_starts_anew_and_down_frees_everything(sunspot: Sunspot):
    folder, (gcs, dashboard) = sunspot.folder("solo"), two_ports()
    with sunspot.started("up", "solo") as up:
        wait_for_gcs(up)
        before = folder.processes()
        up.kill()
        up.wait()
    arguments = ("up", "solo", "--port", str(gcs), "--dashboard-port", str(dashboard))
    sunspot.ok(*arguments)
    assert alive(before) == []
    assert "hello" in sunspot.ok("submit", "--stack", "solo", "--", "echo", "hello")

    processes = folder.processes()
    ports = {gcs, dashboard} | ports_of(sunspot, "solo")
    sunspot.ok("down", "solo")
    assert alive(processes) == []
    assert what_is_left(folder, ports) == []
