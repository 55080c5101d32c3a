"""The driver dies, or the disk is full: started again with the same name, the run goes on."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import servers
from training import CLUSTER, ONE_A_NODE, Training, restarts

SHORT = ("--epochs", "2")
# The first checkpoint has 1.3 MB, for the head's optimizer alone; the next ones have 3.3 MB.
FULL_MIB, LARGER_MIB = 4, 64


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


def test_a_killed_driver_is_started_again_and_goes_on(training: Training):
    """On Azure Blob; tests/real/compose has it on S3.

    Ray keeps the places of a killed run reserved for three minutes: without them, an elastic run
    would begin with fewer workers.
    """
    url = "abfss://ray@account.dfs.core.windows.net/runs"
    command = training.tiny("--workers", "1:2", *ONE_A_NODE, *SHORT, storage=url)
    with servers.azure_blob(training.folder / "server") as env:
        with training.started(*command, env=env, name="killed"):
            training.wait_for_batch(epoch=1, number=3)
            kill_driver(training, url)
            assert training.wait_for_end("killed") == "FAILED"
        again = training.submit(*command, env=env)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "'food' after 1 epoch and 0 pictures" in again.stdout
    attempts = training.result()["attempts"]
    assert [attempt["from"]["epoch"] for attempt in attempts] == [0, 1]
    assert attempts[1]["workers"] == 2
    [(before, after)] = restarts(training.batches())
    assert (before.epoch, after.epoch, after.first) == (1, 1, 0)


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
