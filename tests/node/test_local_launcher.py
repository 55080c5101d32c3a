"""How the launcher starts nodes, with short programs in the place of `ray start`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from local_stacks import WORKERS, stack, write
from waiting import wait_for

from sunspot.node.local import launcher
from sunspot.node.local.launcher import Starts
from sunspot.node.processes import Process


class Forks:
    """The processes that the launcher believes to be nodes."""

    def __init__(self):
        self.started = []
        self.processes = {}

    def __call__(self, _folder, node):
        process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        self.started.append(node.name)
        self.processes[node.name] = process
        return process.pid

    def end(self, name):
        self.processes[name].kill()
        os.waitid(os.P_PID, self.processes[name].pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def forks(monkeypatch):
    forks = Forks()
    monkeypatch.setattr(launcher, "_fork", forks)
    yield forks
    for process in forks.processes.values():
        process.kill()
        process.wait()


@pytest.fixture
def folder(tmp_path):
    folder = write(tmp_path / "clusters", stack(WORKERS), address="127.0.0.1:1")
    for _ in range(launcher.AT_ONCE + 2):
        folder.add_node(folder.cluster().shapes["workers"])
    return folder


def test_only_so_many_start_at_once_and_each_that_joins_lets_the_next_one_start(folder, forks):
    names = [node.name for node in folder.nodes()]
    starts = Starts(folder, folder.nodes())
    assert forks.started == names[: launcher.AT_ONCE]
    starts.joined("head")
    assert forks.started == names[: launcher.AT_ONCE + 1]
    for name in names[1:]:
        starts.joined(name)
    assert forks.started == names
    assert starts.waiting == set()
    assert [event.node for event in folder.events.read() if event.kind == "joined"] == names


def test_a_worker_that_cannot_start_is_tried_again_before_the_launch_fails(folder, forks, capsys):
    starts = Starts(folder, folder.nodes()[:2])
    for _ in range(launcher.TRIES - 1):
        forks.end("workers-0")
        starts.check()
    assert forks.started == ["head", *["workers-0"] * launcher.TRIES]
    folder.log("workers-0").write_text("out of luck\n")
    forks.end("workers-0")
    with pytest.raises(SystemExit) as ended:
        starts.check()
    assert ended.value.code == 1
    *again, died = map(json.loads, capsys.readouterr().out.splitlines())
    assert again == [{"event": "again", "name": "workers-0"}] * (launcher.TRIES - 1)
    assert died == {"event": "died", "name": "workers-0", "log": "out of luck"}
    last = folder.events.read()[-1]
    assert (last.kind, last.node, last.reason) == ("lost", "workers-0", "it could not start")


def test_what_a_failed_start_left_is_gone_before_the_next(folder, forks):
    worker = folder.nodes()[1]
    starts = Starts(folder, [worker])
    Path(worker.temp_dir).mkdir(parents=True)
    folder.record_process(worker.name, Process(pid=os.getpid(), start_time=1.0))
    forks.end(worker.name)
    starts.check()
    assert folder.process(worker.name) is None
    assert not Path(worker.temp_dir).exists()


@pytest.mark.parametrize("name", ["head", "workers-0"])
def test_a_head_or_a_member_that_ends_is_the_end_of_the_launch(folder, forks, name, capsys):
    starts = Starts(folder, folder.nodes()[:2])
    if name != "head":
        starts.joined(name)
    forks.end(name)
    with pytest.raises(SystemExit):
        starts.check()
    assert json.loads(capsys.readouterr().out)["name"] == name


def test_nothing_happens_while_all_run(folder, forks):
    starts = Starts(folder, folder.nodes())
    wait_for("the processes", lambda: len(forks.processes) == launcher.AT_ONCE)
    starts.check()
    assert len(forks.started) == launcher.AT_ONCE


IMPORTS = """
import sys

class Seen(list):
    def find_spec(self, name, path=None, target=None):
        self.append(name)

seen = Seen()
sys.meta_path.insert(0, seen)
from sunspot.node.local import launcher
launcher.import_ray()
from ray.scripts.scripts import cli
print("start" in cli.commands, any(name.split(".")[:2] == ["ray", "serve"] for name in seen))
print("ray.serve" in sys.modules)
"""


def test_rays_command_line_is_imported_without_serve():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False", "False"]


def test_a_node_that_is_killed_has_said_everything_in_its_log(tmp_path):
    program = (
        "import os, signal, sys; from sunspot.node.local import ray_start\n"
        "ray_start._print_into(sys.argv[1]); print('Local node IP'); os.kill(os.getpid(), 9)"
    )
    log = tmp_path / "log"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", program, str(log)]
    subprocess.run(command, env=buffered, stdout=subprocess.PIPE, check=False)
    assert log.read_text() == "Local node IP\n"


FAILS = """
import sys
from pathlib import Path
from types import SimpleNamespace
from ray.scripts import scripts
from sunspot.node.local import ray_node, ray_start

def cli(*_, **__):
    raise RuntimeError("The current node timed out during startup.")

scripts.cli = cli
ray_start.arguments = ray_start.take_environment = ray_node.keep_whole = lambda *_: None
folder = SimpleNamespace(
    record_process=lambda *_: None, log=lambda _: Path(sys.argv[1]), cluster=lambda: None
)
ray_start.run(folder, SimpleNamespace(name="head", is_head=True))
"""


def test_a_node_that_ray_gives_up_says_why_in_its_log(tmp_path):
    log = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", FAILS, str(log)], check=False)
    assert done.returncode == 1
    assert log.read_text() == "RuntimeError: The current node timed out during startup.\n"
