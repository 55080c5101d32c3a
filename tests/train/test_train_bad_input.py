"""What cannot work is told in one line, before training begins, with exit code 2."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from training import CLUSTER, Training
from workload import call, check_refusals, check_refused, run

SMALL = ("--training", "2", "--validation", "1", "--evaluation", "1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set."""
    folder = tmp_path_factory.mktemp("data") / "food"
    assert call("images", str(folder), *SMALL).code == 0
    return folder


@pytest.fixture
def with_an_empty_class(made: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "food"
    shutil.copytree(made, folder)
    for picture in (folder / "validation" / "class_07").iterdir():
        picture.unlink()
    return folder


def on_cluster(training: Training, *arguments: str, env: dict[str, str] | None = None):
    handle = training.sunspot.target.handle(CLUSTER)
    return call("train", *arguments, env=handle.environment() | (env or {}))


# images.py and plain_train.py need no cluster


def test_the_same_arguments_give_the_same_bytes(made: Path, tmp_path: Path):
    assert run("images", str(tmp_path / "again"), *SMALL).code == 0
    files = sorted(path.relative_to(made) for path in made.rglob("*.jpg"))
    assert len(files) == 11 * 4
    for file in files:
        assert (made / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_the_real_data_set_is_used_where_there_is_one(made: Path):
    done = call("images", env={"FOOD11_DATA_DIR": str(made)})
    assert done.out.startswith(f"{made}: 22 training, 11 validation, 11 evaluation")


@pytest.mark.parametrize("script", ["images", "plain_train"])
def test_a_missing_data_folder(script: str):
    done = call(script, env={"FOOD11_DATA_DIR": "/no/such/folder"})
    check_refused(done, "/no/such/folder does not exist", "FOOD11_DATA_DIR")


@pytest.mark.parametrize("script", ["images", "plain_train"])
def test_an_empty_class_folder(script: str, with_an_empty_class: Path):
    done = call(script, env={"FOOD11_DATA_DIR": str(with_an_empty_class)})
    check_refused(done, str(with_an_empty_class / "validation" / "class_07"), "no picture")


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "precious").write_text("x")
    check_refused(call("images", str(tmp_path)), "holds something else")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


# train.py looks where it will train


def test_train_finds_what_is_wrong_with_the_data_on_a_node(
    training: Training, with_an_empty_class: Path
):
    data = ("--data", str(with_an_empty_class))
    done = on_cluster(training, "--storage", str(training.storage), *data)
    check_refused(done, "class_07", "no picture")


@pytest.mark.parametrize(
    ("url", "told"),
    [("/proc/no/results", "/proc/no/results"), ("s3://ray/runs", "cannot be written")],
)
def test_a_storage_that_cannot_be_written(training: Training, url: str, told: str):
    nobody = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x"}
    done = on_cluster(training, "--storage", url, env=nobody | {"AWS_SECRET_ACCESS_KEY": "x"})
    check_refused(done, told, "--storage")


def test_more_gpus_a_worker_than_a_node_has(training: Training):
    gpus = ("--gpus-per-worker", "2", "--storage", str(training.storage))
    check_refused(on_cluster(training, *gpus), "GPU: asked 2, the largest node has 1")


def test_weights_that_the_nodes_do_not_have(training: Training):
    weights = ("--weights", "/no/such/file", "--storage", str(training.storage))
    check_refused(on_cluster(training, *weights), "/no/such/file are not on the nodes")


def test_a_checkpoint_of_another_model(training: Training):
    folder = training.storage / "food" / "checkpoint_2026-01-01_00-00-00.000000"
    folder.mkdir(parents=True)
    (folder / "checkpoint.ckpt").write_bytes(b"1234")
    about = {
        "model": {"architecture": "resnet18", "width": 1.0, "classes": 11},
        "position": {"epoch": 1, "pictures": 0, "steps": 3},
        "attempts": [],
        "bytes": 4,
    }
    (folder / "about.json").write_text(json.dumps(about))
    done = on_cluster(training, "--storage", str(training.storage))
    check_refused(done, "resnet18", "another --name")


BAD = [
    (["--workers", "2:1"], "2:1"),
    (["--workers", "two"], "not a whole number"),
    (["--cpus-per-worker", "0"], "0 is not above 0"),
    (["--gpus-per-worker", "1.5"], "neither below 1 nor a whole number"),
    (["--name", "a/b"], "cannot be the name of a folder"),
    (["--storage", "gs://bucket"], "gs:// is not a storage"),
]


def test_bad_input_is_refused_before_ray_is_asked():
    check_refusals("train", BAD)


def test_a_refusal_is_the_exit_code_of_each_program():
    """Two at a time: a program that refuses has imported torch before."""
    data = ("--data", "/no/such/folder")
    bad = {
        "images": (("/no/such/folder", "--check"), "does not exist"),
        "plain_train": (data, "does not exist"),
        "train": (("--storage", "gs://bucket"), "gs:// is not a storage"),
        "tune": (("--storage", "gs://bucket"), "gs:// is not a storage"),
        "embed": (data, "does not exist"),
        "feed": (data, "does not exist"),
    }
    with ThreadPoolExecutor(max_workers=2) as threads:
        answers = threads.map(lambda name: run(name, *bad[name][0]), bad)
    for answer, (_, told) in zip(answers, bad.values(), strict=True):
        check_refused(answer, told)
