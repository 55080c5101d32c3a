"""The driver dies, or the disk is full: started again with the same name, the run goes on."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import servers
from training import CLUSTER, DEADLINE_S, ONE_A_NODE, Training, restarts
from waiting import wait_for

SHORT = ("--epochs", "2")
# The first checkpoint has 1.3 MB, for the head's optimizer alone; the next ones have 3.3 MB.
FULL_MIB, LARGER_MIB = 4, 64


@contextlib.contextmanager
def storage(kind: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """An address to train to, and the environment that leads there."""
    if kind == "s3":
        with servers.s3() as env:
            servers.make_bucket(env, "ray")
            yield "s3://ray/runs", env
    else:
        with servers.azure_blob(folder) as env:
            yield "abfss://ray@account.dfs.core.windows.net/runs", env


def kill_driver(training: Training, url: str) -> None:
    """SIGKILL for the program that trains to an address."""
    head = training.sunspot.folder(CLUSTER).processes("head")
    drivers = [p for p in head if {"workloads/train.py", url} <= set(_words(p))]
    assert drivers, "no driver runs"
    for driver in drivers:
        with contextlib.suppress(psutil.NoSuchProcess):
            driver.kill()


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline()).split()
    return []


def die_and_go_on(training: Training, kind: str) -> None:
    training.folder.mkdir()
    with storage(kind, training.folder / "server") as (url, env):
        command = training.tiny(*SHORT, storage=url)
        with training.started(*command, env=env, name="killed"):
            training.wait_for_batch(epoch=1, number=3)
            kill_driver(training, url)
            assert training.wait_for_end("killed") == "FAILED"
        again = training.submit(*command, env=env)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "'food' after 1 epoch and 0 pictures" in again.stdout
    attempts = training.result()["attempts"]
    assert [attempt["from"]["epoch"] for attempt in attempts] == [0, 1]
    [(before, after)] = restarts(training.batches())
    assert (before.epoch, after.epoch, after.first) == (1, 1, 0)


def test_a_killed_driver_is_started_again_and_goes_on(training: Training):
    """On S3 and on Azure Blob, side by side: most of it is imports, which take one CPU each."""
    both = {
        kind: Training(sunspot=training.sunspot, folder=training.folder / kind)
        for kind in ("s3", "azure")
    }
    with ThreadPoolExecutor() as threads:
        runs = {kind: threads.submit(die_and_go_on, run, kind) for kind, run in both.items()}
    for kind, run in runs.items():
        assert run.exception() is None, f"{kind}: {run.exception()}"


def test_a_killed_run_leaves_its_places_to_the_next(training: Training):
    """Ray keeps them reserved for three minutes; an elastic run would begin without them."""
    elastic = training.tiny("--workers", "1:2", *ONE_A_NODE, "--epochs", "1")
    with training.started(*elastic, name="killed"):
        training.wait_for_batch(epoch=0, number=2)
        kill_driver(training, str(training.storage))
        assert training.wait_for_end("killed") == "FAILED"
    again = training.submit(*elastic)
    assert again.returncode == 0, again.stdout + again.stderr
    [attempt] = training.result()["attempts"]
    assert attempt["workers"] == 2


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A filesystem of its own at a folder, with room for little."""
    folder.mkdir()
    command = ["/bin/mount", "-t", "tmpfs", "-o", f"size={FULL_MIB}m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"may not mount a small disk here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_leaves_the_older_checkpoint_valid(training: Training):
    command = training.tiny(*SHORT, "--keep", "9", "--max-failures", "0")
    with small_disk(training.storage):
        full = training.submit(*command)
        assert full.returncode == 1, full.stdout + full.stderr
        assert "start it again with --name food" in full.stdout
        saved = training.checkpoints()
        assert saved, "a whole checkpoint is there"
        remount = ["/bin/mount", "-o", f"remount,size={LARGER_MIB}m", str(training.storage)]
        subprocess.run(remount, check=True)
        again = training.submit(*command)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "'food' after" in again.stdout
    begins = [attempt["from"]["epoch"] for attempt in training.result()["attempts"]]
    assert begins[0] == 0
    assert begins[-1] >= 1


def test_half_a_gpu_each(training: Training):
    """Two nodes with one (logical) GPU each hold four halves; what comes after waits."""
    half = ("--num-gpus", "0.5", "--num-cpus", "0")
    hold = ("python", "-c", "import signal; print('begun', flush=True); signal.pause()")
    with contextlib.ExitStack() as stack:
        for number in range(3):
            stack.enter_context(training.started(*hold, flags=half, name=f"half-{number}"))
        for number in range(3):
            wait_for(
                f"half-{number}", lambda n=number: "begun" in training.log(f"half-{n}"), DEADLINE_S
            )
        # The last half is the training's; a fifth job finds none left.
        run = training.tiny(*SHORT, "--gpus-per-worker", "0.5", "--cpus-per-worker", "1")
        stack.enter_context(training.started(*run, name="trains"))
        training.wait_for_batch(epoch=0, number=1)
        stack.enter_context(training.started(*hold, flags=half, name="waits"))
        training.wait_for_batch(epoch=1, number=1)
        fifth = training.sunspot.job(CLUSTER, training.id("waits"))
        assert fifth.status == "PENDING", "there was a half left for it"
        assert training.wait_for_end("trains") == "SUCCEEDED", training.log("trains")
        wait_for("the half that was let go", lambda: "begun" in training.log("waits"), DEADLINE_S)
