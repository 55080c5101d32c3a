"""What `RayCluster` shows at a terminal, of a target and a Ray that only stand in."""

import subprocess
import sys
from pathlib import Path

import pytest
from terminal import shown

PROGRAM = """
import sys, pathlib, ray
sys.path.insert(0, {tests!r})
from fake_target import FakeRay, FakeTarget
from sunspot import RayCluster, RayNodeConfig, SimpleRayCluster
from sunspot.targets import clusters

token = pathlib.Path({token!r})
token.write_text("ab" * 32)
target = FakeTarget(token)
clusters.get = lambda _name: target
fake = FakeRay()
ray.shutdown = fake.shutdown
node = RayNodeConfig(cpu=1, memory_gb=2)
config = SimpleRayCluster(n_nodes=1, node_config=node, ray_version="2.60.0")
real = sys.stderr
ray.init = lambda **_: print("init", sys.stderr is real, flush=True)
with RayCluster(config=config, name="mine", forward_logs=False{options}):
    print("body", file=sys.stderr, flush=True)
"""


@pytest.fixture
def program(tmp_path):
    def make(options=""):
        token = str(tmp_path / "token")
        text = PROGRAM.format(tests=str(Path(__file__).parent), token=token, options=options)
        return [sys.executable, "-c", text]

    return make


def test_at_a_terminal_each_step_is_shown_except_during_the_body(program):
    before, body, after = shown(program(), stdout=subprocess.DEVNULL).partition("body\n")
    assert body
    assert "starting Ray cluster mine" in before
    assert "one node is up" in before
    assert "taking down" not in before
    assert "taking down Ray cluster mine" in after


def test_ray_finds_the_real_stderr_when_it_starts(program):
    assert "init True" in shown(program())


def test_in_a_pipe_nothing_is_shown(program):
    done = subprocess.run(program(), capture_output=True, text=True, check=True)
    assert done.stderr == "body\n"


def test_with_a_callback_of_the_callers_own_nothing_is_shown(program):
    silent = program(", on_state=lambda *_: None")
    assert shown(silent, stdout=subprocess.DEVNULL) == "body\n"


def test_at_a_terminal_a_step_that_must_stay_gets_a_line_of_its_own():
    text = """
from sunspot import console
from sunspot.targets.protocol import Lasting

with console.progress("bringing up x") as step:
    step(Lasting("will replace a set"))
    step("passing")
"""
    printed = shown([sys.executable, "-c", text], stdout=subprocess.DEVNULL)
    assert "bringing up x: will replace a set" in printed
    assert "bringing up x: passing" not in printed
