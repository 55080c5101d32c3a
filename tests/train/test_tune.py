"""tune.py: how many trials fit, what a search leaves behind, and what its driver's death costs."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from harness import SMALL
from training import DEADLINE_S, Training
from waiting import wait_for
from workload import call, check_refusals, check_refused, module

NAME = "search"
LINE = re.compile(r"trial (\w+): epoch (\d+) of (\d+)")


# How many at once


# Each node's resources, what is free in all, what a worker needs, workers a trial; how many fit.
FIT = [
    ([{"CPU": 1}], {"CPU": 1}, {"CPU": 1}, 1, 1),
    ([{"CPU": 4}], {"CPU": 4}, {"CPU": 1}, 1, 4),
    ([{"CPU": 4}], {"CPU": 1}, {"CPU": 1}, 1, 1),  # another job has the others
    ([{"CPU": 4}], {}, {"CPU": 1}, 1, 1),  # waits for it to end
    ([{"CPU": 3}, {"CPU": 3}], {"CPU": 6}, {"CPU": 2}, 1, 2),  # 1 + 1 are no 2
    ([{"CPU": 4}, {"CPU": 4}], {"CPU": 8}, {"CPU": 1}, 3, 2),
    ([{"CPU": 2}], {"CPU": 2}, {"CPU": 1}, 5, 1),
    ([{"CPU": 8, "GPU": 2}], {"CPU": 8, "GPU": 2}, {"CPU": 1, "GPU": 0.5}, 1, 4),
    ([{"CPU": 8, "GPU": 1}], {"CPU": 8, "GPU": 1}, {"CPU": 1, "GPU": 1 / 3}, 1, 3),
    ([{"CPU": 8}, {"CPU": 2, "GPU": 1}], {"CPU": 10, "GPU": 1}, {"CPU": 1, "GPU": 1}, 1, 1),
]


def test_as_many_trials_as_fit():
    found = [module("_tuning").at_once(*case[:4]) for case in FIT]
    assert found == [case[4] for case in FIT]


# A search, and the death of its driver


def command(training: Training, *extra: str) -> list[str]:
    own = ["--name", NAME, "--storage", str(training.storage), *extra]
    pictures = ["--picture", str(training.folder / "tune.svg")]
    out = ["--out", str(training.folder / "result.json")]
    return ["python", "workloads/tune.py", *own, *out, *pictures]


def kill_driver(training: Training) -> None:
    """SIGKILL for the program that was submitted, and for nothing else."""
    found = []
    for process in training.sunspot.folder(training.cluster).processes():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if "workloads/tune.py" in line and "python" in Path(line[0]).name:
                found.append(process)
    assert found, "no driver is there"
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def finished(log: str) -> set[str]:
    """The trials that told of their last epoch."""
    return {trial for trial, epoch, last in LINE.findall(log) if epoch == last}


def checkpoints(training: Training, trial: str) -> dict[str, int]:
    """When each checkpoint of a trial was written."""
    runs = training.storage / NAME / "runs" / trial
    return {str(file): file.stat().st_mtime_ns for file in runs.glob("checkpoint_*/about.json")}


@pytest.fixture
def one_cpu(training: Training) -> Iterator[Training]:
    """A cluster with one CPU, for trials that each have a driver, a controller and a worker."""
    sunspot = training.sunspot
    sunspot.write_stack("one-cpu", {"head_node": SMALL})
    assert sunspot("up", "one-cpu", timeout=DEADLINE_S).returncode == 0
    yield replace(training, cluster="one-cpu")
    sunspot("down", "one-cpu", timeout=DEADLINE_S)


def test_a_search_goes_on_after_the_death_of_its_driver(one_cpu: Training):
    """With more trials at once than the cluster can hold: they do not wait for each other."""
    training = one_cpu
    options = ("--samples", "2", "--epochs", "2", "--concurrent", "2", "--batch-sizes", "32,66")
    with training.started(*command(training, *options, *training.small_trials())):
        done = wait_for("a trial's last epoch", lambda: finished(training.log()), DEADLINE_S)
        assert "2 trials, 2 at once" in training.log()
        kill_driver(training)
        assert training.wait_for_end() == "FAILED"
    before = {trial: checkpoints(training, trial) for trial in done}
    assert all(before.values())

    _, _, *arguments = command(training)
    check_refused(call("tune", *arguments), "--resume")

    # What is searched is known by the name: no option has to be said again.
    resumed = training.submit(*command(training, "--resume"))
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "'search': 2 trials" in resumed.stdout
    for trial in done:
        assert checkpoints(training, trial) == before[trial], "a finished trial was trained again"

    result = training.result()
    trials = {trial["name"]: trial for trial in result["trials"]}
    assert len(trials) == 2
    assert done <= trials.keys()
    for trial in trials.values():
        assert trial["end"] in {"all epochs", "stopped early"}
        assert trial["batch_size"] in {32, 66}
        assert 0.1 <= trial["dropout"] <= 0.8
        # What Tune was told in the last seconds before the kill it had not saved yet: that epoch
        # is trained, and its figure is lost.
        assert 0 < len(trial["accuracy"]) <= trial["epochs"] <= len(trial["accuracy"]) + 1
        assert trial["name"] in resumed.stdout
    assert len({trial["dropout"] for trial in trials.values()}) == 2
    whole = [trial for trial in trials.values() if trial["end"] == "all epochs"]
    assert result["best"]["accuracy"][-1] == max(trial["accuracy"][-1] for trial in whole)
    drawn = (training.folder / "tune.svg").read_text()
    assert drawn.count("<polyline") == 2


def test_bad_input_is_refused_before_ray_is_asked(tmp_path: Path):
    here = ["--storage", str(tmp_path)]
    bad = [
        (["--dropout", "0.8:0.1"], "0.8:0.1"),
        (["--dropout", "half"], "LOW:HIGH"),
        (["--batch-sizes", "32,0"], "0 is less than 1"),
        (["--samples", "0"], "0 is less than 1"),
        (["--storage", "ftp://here"], "ftp:// is not a storage"),
        (["--storage", "/proc/none"], "cannot be written"),
        (["--name", ".."], "cannot be the name of a folder"),
        (["--resume", "--concurrent", "2"], "leave it out with --resume"),
        (["--cpus-per-worker", "0"], "0 is not above 0"),
        ([*here, "--resume", "--name", "never-begun"], "holds no search 'never-begun'"),
    ]
    check_refusals("tune", bad)
    assert list(tmp_path.iterdir()) == []
