"""feed.py: what it computes of rates, and a small run with real loaders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from training import CLUSTER, ROOT, Training
from workload import call, check_refusals, check_refused, module


def test_the_lines_cross_between_measurements_before_them_and_beyond():
    points = [(1, 100.0), (2, 200.0), (4, 300.0)]
    found = [module("feed").crossing(points, model) for model in (250, 200, 50, 600)]
    assert [(pytest.approx(cross.cpus), cross.measured) for cross in found] == [
        (3.0, True),
        (2.0, True),
        (0.5, True),
        (8.0, False),  # four CPUs gave 75 each
    ]


def test_the_better_buy_is_the_size_whose_cpus_are_not_wasted():
    """Loading on a line of 100 a CPU, to a model of 600: 4 CPUs starve it, 8 are 2 too many."""
    points = [(1, 100.0), (2, 200.0)]

    def offers(sizes: str, model: float) -> list[tuple]:
        feed = module("feed")
        found = feed.offers(feed.sizes(sizes, feed.CATALOG, "spot"), points, model)
        return [(o.size.name, o.rate, o.usd_a_million, o.measured) for o in found]

    known = "Standard_NC4as_T4_v3,Standard_NC8as_T4_v3"
    fast, slow = offers(known, 600.0), offers(known, 250.0)
    assert [name for name, *_ in fast] == ["Standard_NC8as_T4_v3", "Standard_NC4as_T4_v3"]
    assert [(rate, measured) for _, rate, _, measured in fast] == [(600, False), (400, False)]
    assert [name for name, *_ in slow] == ["Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3"]
    assert {rate for _, rate, *_ in slow} == {250}

    assert offers("small=2:0.36,large=4:0.36", 1e9) == [
        ("large", 400, pytest.approx(0.25), False),
        ("small", 200, pytest.approx(0.5), True),
    ]


def test_a_size_with_four_gpus_has_a_quarter_of_the_cpus_for_each():
    size = module("_sizes").Size(name="four", vcpus=64, gpus=4, price=3.6)
    assert size.cpus_a_gpu == 16
    assert size.usd_a_million(100.0) == pytest.approx(3.6 / (400 * 3600) * 1e6)


def test_above_eight_cpus_only_some_numbers_are_measured():
    assert [module("feed").steps(n) for n in (1, 3, 8, 16, 40)] == [
        [1],
        [1, 2, 3],
        list(range(1, 9)),
        [*range(1, 9), 12, 16],
        [*range(1, 9), 12, 16, 24, 32],
    ]


BAD = [
    (["--sizes", "Standard_Nothing"], "has no size 'Standard_Nothing'"),
    (["--sizes", "mine=4"], "is not NAME=VCPUS:USD"),
    (["--sizes", "mine=0:1"], "is not NAME=VCPUS:USD"),
    (["--sizes", ","], "NAME=VCPUS:USD"),
    (["--catalog", "/no/catalog.csv"], "cannot read the catalogue /no/catalog.csv"),
    (["--catalog", str(ROOT / "README.md")], str(ROOT / "README.md")),
    (["--model-images-per-second", "0"], "not above 0"),
    (["--data", "/no/such/folder"], "/no/such/folder does not exist"),
    (["--picture", "/no/folder/x.svg"], "folder that exists"),
]


def test_bad_input_is_refused_before_ray_is_asked():
    check_refusals("feed", BAD)


def run(training: Training, *arguments: str) -> tuple[dict, str, str]:
    """What it wrote, printed and drew."""
    out, svg = training.folder / "feed.json", training.folder / "feed.svg"
    done = training.submit(
        "python", "workloads/feed.py", "--cpus", "2", "--seconds", "0.5", "--batch", "4",
        "--crop", "64", "--out", str(out), "--picture", str(svg), *arguments,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text()), done.stdout, svg.read_text()


def test_it_measures_a_real_model_on_a_cpu_and_says_so(training: Training):
    found, printed, drawn = run(training)
    assert found["model_on_cpu"]
    assert "No GPU here" in printed
    assert [rates["cpus"] for rates in found["rates"]] == [1, 2]
    assert all(rates["loader"] > 0 and rates["together"] > 0 for rates in found["rates"])
    assert found["model_rate"] > 0
    assert "is the better buy" in printed
    assert "loaders alone" in drawn


def test_a_slow_gpu_is_what_is_slow_and_a_fast_one_waits(training: Training):
    slow, printed, _ = run(training, "--model-images-per-second", "16")
    assert slow["model_rate"] <= 16.2  # the stand-in takes its time
    assert "The model is slow" in printed
    assert slow["crossing"]["measured"]
    assert not slow["model_on_cpu"]
    fast, printed, drawn = run(training, "--model-images-per-second", "1000000")
    assert "The CPUs are slow" in printed
    assert not fast["crossing"]["measured"]
    assert "beyond what was measured" in printed
    assert "cross at" in drawn
    assert fast["offers"][0]["size"]["name"] == "Standard_NC8as_T4_v3"


def test_more_cpus_than_a_node_has_are_refused(training: Training):
    handle = training.sunspot.target.handle(CLUSTER)
    check_refused(call("feed", "--cpus", "99", env=handle.environment()), "99", "--cpus")


def test_without_torch_it_says_what_to_install(tmp_path: Path):
    code = (
        "import sys, importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest);"
        "import feed; feed.main([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "workloads")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "pip install torch" in done.stderr
