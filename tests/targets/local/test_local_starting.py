"""Waiting for the launcher of a local cluster's nodes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from local_stacks import WORKERS, stack, write

from sunspot.errors import SunspotError
from sunspot.node.local.folder import ClusterFolder
from sunspot.node.processes import Process
from sunspot.targets.local import capacity, starting


@pytest.mark.parametrize(
    ("printed", "step"),
    [(b"", "starting the launcher"), (b'{"event": "node", "name": "w-0"}\n', "node w-0")],
)
def test_a_timeout_names_the_step_that_it_was_in(printed, step):
    output, launcher = os.pipe()
    with os.fdopen(output, "rb") as stdout, os.fdopen(launcher, "wb", 0) as events:
        events.write(printed)
        process = cast("subprocess.Popen[bytes]", SimpleNamespace(stdout=stdout))
        with pytest.raises(SunspotError, match=f"the last step was: {step}$"):
            list(starting._events(process, 0.01))


def test_the_last_other_cluster_may_remove_the_folder_of_all_meanwhile(tmp_path, monkeypatch):
    folder, parent = ClusterFolder(tmp_path / "clusters" / "dev"), tmp_path / "sockets"
    monkeypatch.setattr(ClusterFolder, "temp_dir", parent / "x")
    removed = iter([parent.rmdir])
    monkeypatch.setattr(capacity, "check_temp_folder", lambda _: next(removed, str)())
    starting.make_temp_dir(folder)
    assert [path.stat().st_mode & 0o777 for path in (parent, parent / "x")] == [0o700, 0o700]


class Launches:
    """Launchers that print what they are given, each the next."""

    def __init__(self, *each):
        self.pending = list(each)
        self.seen = []

    def __call__(self, folder, _nodes, stdout):
        self.seen.append(folder.cluster().address)
        printed = "".join(f"{json.dumps(event)}\n" for event in self.pending.pop(0))
        code = int('"died"' in printed)
        program = f"import sys; sys.stdout.write({printed!r}); sys.exit({code})"
        return subprocess.Popen([sys.executable, "-c", program], stdout=stdout)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(ClusterFolder, "temp_dir", tmp_path / "sockets")
    monkeypatch.setattr(capacity, "BUSY_LOAD", 1e9)
    folder = write(tmp_path / "clusters", stack(WORKERS), address="127.0.0.1:1")
    folder.gcs_state.mkdir(exist_ok=True)
    (folder.gcs_state / "LOG").touch()
    return folder


def died(name, log):
    return {"event": "died", "name": name, "log": log}


READY = [{"event": "ready"}]
GAVE_UP = "Exception: The current node timed out during startup. This could happen because"
RAYLET_ENDED = "raylet exited with code 1"


@pytest.mark.parametrize("log", [GAVE_UP, RAYLET_ENDED])
@pytest.mark.parametrize("suspended_at", [None, 1.0])
def test_a_head_that_the_machine_was_too_slow_for_starts_once_more(
    folder, log, suspended_at, monkeypatch
):
    launches = Launches([died("head", log)], READY)
    monkeypatch.setattr(starting, "launch", launches)
    folder.update_cluster(suspended_at=suspended_at)
    (folder.temp_dir / "head" / "logs").mkdir(parents=True)
    nodes = [replace(n, temp_dir=str(folder.temp_dir / n.name)) for n in folder.nodes()]
    folder.record_process("head", Process(pid=os.getpid(), start_time=1.0))
    steps = []
    starting.start(folder, nodes, steps.append)
    assert steps == ["node head did not start, as on a busy machine: once more", "ready"]
    assert launches.seen == ["127.0.0.1:1", None]
    assert folder.process("head") is None
    kept = suspended_at is not None
    assert [path.name for path in folder.temp_dir.rglob("*")] == ["head", "logs"] * kept
    assert [file.name for file in folder.gcs_state.iterdir()] == ["LOG"] * kept


@pytest.mark.parametrize(
    ("name", "logs", "timeout_s"),
    [
        ("head", ["Permission denied"], 60),
        ("workers-0", [GAVE_UP], 60),  # the launcher has tried it three times
        ("head's dashboard", [GAVE_UP], 60),
        ("head", [GAVE_UP, GAVE_UP], 60),
        ("head", [GAVE_UP], 1),  # no time is left
    ],
)
def test_what_cannot_start_is_an_error(folder, name, logs, timeout_s, monkeypatch):
    launches = Launches(*([died(name, log)] for log in logs))
    monkeypatch.setattr(starting, "launch", launches)
    with pytest.raises(SunspotError) as raised:
        starting.start(folder, folder.nodes(), lambda _: None, timeout_s)
    assert str(raised.value) == (f"node {name!r} could not start. The end of its log:\n{logs[-1]}")
    assert launches.pending == []
