"""embed.py with Ray Data and with plain actors, beside a torch loop that knows neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from training import Training
from workload import check_refusals, module

SIZE, WIDTH, SPLIT = 32, 0.35, "validation"
OPTIONS = ("--split", SPLIT, "--size", str(SIZE), "--width", str(WIDTH), "--batch", "25")


def by_a_torch_loop() -> tuple[list[str], Any]:
    """The paths and, in their order, the vectors."""
    import lightning
    import torch

    food = module("_food")
    settings = food.Settings(size=SIZE, width=WIDTH)
    lightning.seed_everything(settings.seed, verbose=False)
    model = food.FoodClassifier(settings).eval()
    batches = food.loader(settings, SPLIT)
    with torch.inference_mode():
        vectors = torch.cat([model.embed(pictures) for pictures, _ in batches]).numpy()
    root = settings.folder() / SPLIT
    return [path.removeprefix(f"{root}/") for path, _ in batches.dataset.samples], vectors


def read(folder: Path) -> dict[str, list[float]]:
    """The written vectors by path; no path is there twice."""
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(folder).to_pylist()
    found = {row["path"]: row["embedding"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_ray_data_and_plain_actors_give_what_a_torch_loop_gives(training: Training):
    numpy = pytest.importorskip("numpy")
    paths, vectors = by_a_torch_loop()
    assert len(paths) == 132
    # Vectors of a network that has learned nothing are tiny: what is near depends on their size.
    tolerance = 1e-4 * abs(vectors).max()
    assert numpy.ptp(vectors, axis=0).max() > 100 * tolerance
    for way in ([], ["--core"]):
        out = training.folder / "out.json"
        store = ["--storage", str(training.storage), "--name", "vectors"]
        done = training.submit(
            "python", "workloads/embed.py", *OPTIONS, *way, *store, "--workers", "1:2",
            "--out", str(out), "--picture", str(training.folder / "embed.svg"),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        # The second way writes where the first one wrote: nothing of an earlier run stays.
        found = read(training.storage / "vectors")
        assert sorted(found) == sorted(paths)
        ours = numpy.array([found[path] for path in paths])
        numpy.testing.assert_allclose(ours, vectors, rtol=0, atol=tolerance)
        result = json.loads(out.read_text())
        assert result["way"] == ("core" if way else "data")
        assert (result["pictures"], result["tasks"]) == (132, 6)
        assert result["images_per_second"] > 0
        assert f"{result['images_per_second']:,.0f} images a second" in done.stdout
        assert (training.folder / "embed.svg").read_text().startswith("<svg")


BAD = [
    (["--workers", "3:1"], "the maximum is below the minimum"),
    (["--gpus-per-worker", "1.5"], "neither below 1 nor a whole number"),
    (["--data", "/no/such/folder"], "/no/such/folder does not exist"),
    (["--storage", "ftp://here"], "ftp:// is not a storage"),
    (["--name", "a/b"], "cannot be the name of a folder"),
    (["--weights", "/no/such/file"], "/no/such/file"),
]


def test_bad_input_is_refused_before_ray_is_asked():
    check_refusals("embed", BAD)


# What is free, the workers asked for; the fewest and the most, and the CPUs for each.
PLANS = [
    ({"CPU": 1}, None, (1, 1), 0.5),
    ({"CPU": 2}, None, (1, 1), 1.0),
    ({"CPU": 6}, None, (1, 4), 1.0),
    ({"CPU": 2}, (3, 5), (3, 5), 0.5),
    ({}, None, (1, 1), 0.5),
    ({"CPU": 8, "GPU": 2}, None, (1, 2), 1.0),
]


def test_the_actors_leave_room_to_decode():
    asked = [(free, workers) for free, workers, *_ in PLANS]
    made = [module("_embed").plan(*args, None) for args in asked]
    for plan, (free, _, wanted, share) in zip(made, PLANS, strict=True):
        assert tuple(plan.workers) == wanted
        assert plan.worker_cpus == share
        few, cpus = wanted[0], free.get("CPU", 1)
        assert few * plan.worker_cpus + plan.decode_cpus <= cpus
        assert plan.worker_gpus == min(1, free.get("GPU", 0))
