"""Programs that ask for GPUs, on a cluster where GPUs are numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from training import DEADLINE_S, Training

BROUGHT = Path(__file__).resolve().parents[1] / "programs" / "brought"


@pytest.fixture
def program(training: Training):
    def program(name: str) -> tuple[str, ...]:
        text = (BROUGHT / name).read_text()
        storage = str(training.storage)
        folder = training.folder / "code"
        folder.mkdir()
        (folder / name).write_text(text.replace("/tmp/brought-trains-on-gpus", storage))  # noqa: S108
        return ("submit", "--working-dir", str(folder), "--", "python", name)

    yield program
    shutil.rmtree(training.storage, ignore_errors=True)


def test_ray_train_with_gpus_trains_on_the_cpu_unchanged(training: Training, program):
    done = training.sunspot(*program("trains_on_gpus.py"), timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on cpu" in done.stdout
    loss = float(done.stdout.rpartition("loss ")[2].partition(" ")[0])
    assert loss < 0.1


def test_what_computes_on_the_device_itself_fails_with_a_sentence(training: Training, program):
    done = training.sunspot(*program("needs_cuda.py"), timeout=DEADLINE_S)
    assert done.returncode == 1
    assert "GPUs are only numbers" in " ".join(done.stderr.split())
