"""The benchmarks follow the code they measure: each of them loads, and the cheap ones run."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# One needs torch, which takes longer to import than all the others together.
BENCHMARKS = sorted({*(ROOT / "benchmarks").glob("*.py")} - {ROOT / "benchmarks/_seed_train.py"})
# Each has its own folder on the path, as `python FILE` gives it, and is not the main program.
LOAD = """
import runpy, sys
path = list(sys.path)
for file in sys.argv[2:]:
    sys.path[:] = [sys.argv[1], *path]
    runpy.run_path(file, run_name="benchmark")
"""

HELP = """
import contextlib, runpy, sys
path, (folder, *files) = list(sys.path), sys.argv[1:]
for file in files:
    sys.path[:], sys.argv[:] = [folder, *path], [file, "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_path(file, run_name="__main__")
"""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_benchmark_loads():
    assert len(BENCHMARKS) > 10
    run("-c", LOAD, str(ROOT / "benchmarks"), *map(str, BENCHMARKS))


def test_each_one_that_is_run_shows_its_help():
    commands = [str(file) for file in BENCHMARKS if not file.name.startswith("_")]
    shown = run("-c", HELP, str(ROOT / "benchmarks"), *commands)
    assert shown.count("usage: ") == len(commands)


def test_the_program_is_evaluated():
    found = json.loads(run("benchmarks/program.py", "1"))
    assert found["resources"] > 20
    assert found["whole"] >= found["evaluation"] > 0


def test_user_data_fits():
    found = json.loads(run("benchmarks/userdata.py").splitlines()[-1])
    assert 0 < found["ours"] < found["limit"]
