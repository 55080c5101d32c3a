"""Embed pictures with MobileNetV2: one vector per picture, written as Parquet.

With Ray Data: tasks decode the pictures, actors hold the model, and both run at the same time on
all nodes of the cluster; more actors start when decoded pictures pile up. --core does the same with
plain tasks and actors, which shows what Ray Data does. Needs torch and Lightning.
"""

import argparse
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import _embed
import _storage
import images
import lightning
import ray
import train
from _chart import Chart, Line, Point
from _common import (
    Place,
    Progress,
    Result,
    connect,
    folder_name,
    on_this_node,
    parser,
    positive,
    program,
    say,
    share,
    span,
    writable,
)
from _embed import Tally, Work, pictures_of, plan, with_core, with_ray_data
from _food import FoodClassifier, Settings
from pyarrow import fs
from ray import cloudpickle

for module in (_embed, train):  # other machines lack these files; train.py registers its own
    cloudpickle.register_pickle_by_value(module)

SIZE, BATCH = 64, 32


def rate(reports: Sequence[tuple[float, Place, int]]) -> float | None:
    """Return images a second from the first batch to the last, without the start.

    None if there is only one batch.
    """
    ordered = sorted(reports, key=lambda report: report[0])
    if len(ordered) < 2:
        return None
    seconds = ordered[-1][0] - ordered[0][0]
    return sum(pictures for _, _, pictures in ordered[1:]) / seconds


def picture(reports: Sequence[tuple[float, Place, int]]) -> Chart:
    """Return a chart of the pictures done over time: a line for each actor, and one for all."""
    ordered = sorted(reports, key=lambda report: report[0])
    began = ordered[0][0]
    lines: dict[str, list[Point]] = {"all": []}
    for at, (node, pid), pictures in ordered:
        for name in ("all", f"actor {pid} on {node[:8]}"):
            line = lines.setdefault(name, [])
            line.append((at - began, pictures + (line[-1][1] if line else 0)))
    return Chart(
        title="Pictures embedded, by actor",
        x_label="seconds since the first batch",
        y_label="pictures",
        lines=[Line(label=name, points=points) for name, points in lines.items()],
    )


@contextmanager
def _watched(tally: Any, total: int) -> Iterator[None]:
    """Show the progress while the block runs."""
    over = threading.Event()

    def watch() -> None:
        with Progress() as progress:
            while not over.wait(0.5):
                reports, _ = ray.get(tally.reports.remote())
                done = sum(pictures for _, _, pictures in reports)
                progress.show(f"{done:,} of {total:,} pictures")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _arguments(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    made = parser(__doc__, "python workloads/embed.py --split training --workers 1:4 --batch 64")
    made.add_argument(
        "--core", action="store_true", help="use plain tasks and actors instead of Ray Data"
    )
    made.add_argument(
        "--data", metavar="FOLDER", help="folder like Food-11, on every node (default: generated)"
    )
    made.add_argument("--split", choices=images.SPLITS, default="evaluation", help="split to embed")
    made.add_argument(
        "--size", type=positive, default=SIZE, metavar="N", help="input size in pixels"
    )
    made.add_argument(
        "--width", type=float, default=1.0, metavar="X", help="MobileNetV2's width multiplier"
    )
    made.add_argument(
        "--weights", metavar="FILE", help="published weights, on every node (default: random ones)"
    )
    made.add_argument(
        "--batch", type=positive, default=BATCH, metavar="N", help="pictures per batch"
    )
    made.add_argument(
        "--workers", type=span, metavar="N|MIN:MAX", help="actors (default: 1 to as many as fit)"
    )
    made.add_argument(
        "--gpus-per-worker",
        type=share,
        metavar="X",
        help="GPUs per actor (default: 1 if the cluster has GPUs)",
    )
    made.add_argument(
        "--storage", metavar="URL", help="folder, s3:// or abfs:// (default: the stack's storage)"
    )
    made.add_argument(
        "--name", type=folder_name, default="embed", help="name of the folder in the storage"
    )
    made.add_argument("--picture", type=writable, metavar="FILE", help="draw the progress as SVG")
    return made, made.parse_args(argv)


def work_of(args: argparse.Namespace) -> Work:
    """Return the work that the command line asks for.

    Raises:
        DataError: If the data set is missing or incomplete.
    """
    data = images.asked_for(args.data)
    settings = Settings(data=data, size=args.size, width=args.width, weights=args.weights)
    paths = pictures_of(settings.folder() / args.split)
    lightning.seed_everything(settings.seed, verbose=False)
    state = FoodClassifier(settings).state_dict()
    return Work(settings=settings, split=args.split, paths=paths, batch=args.batch, state=state)


def _cleared(storage: _storage.Storage, name: str) -> str:
    """Return the folder of the run, without the Parquet files of an earlier one."""
    folder, files = storage.below(name), storage.filesystem
    files.create_dir(folder)
    for entry in files.get_file_info(fs.FileSelector(folder)):
        if entry.path.endswith(".parquet"):
            files.delete_file(entry.path)
    return folder


@program
def main(argv: list[str] | None = None) -> None:
    """Embed what the command line asks for."""
    made, args = _arguments(argv)
    try:
        work = work_of(args)
        storage = _storage.open_storage(args.storage or _storage.default_url())
        _storage.remove(storage, _storage.check_writable(storage))
    except (OSError, ValueError, RuntimeError) as error:
        made.error(str(error))
    connect()
    work = replace(work, state=ray.put(work.state))
    chosen = plan(ray.available_resources(), args.workers, args.gpus_per_worker)
    train.check(work.settings, storage, {"CPU": chosen.worker_cpus, "GPU": chosen.worker_gpus})
    folder = _cleared(storage, args.name)
    tally: Any = Tally.options(scheduling_strategy=on_this_node()).remote()
    way = with_core if args.core else with_ray_data
    began = time.perf_counter()
    with _watched(tally, len(work.paths)):
        way(work, chosen, tally, folder, storage.filesystem)
    seconds = time.perf_counter() - began
    reports, devices = ray.get(tally.reports.remote())
    speed = rate(reports)
    if args.picture:
        picture(reports).write(args.picture)
        say(f"Drawn to {args.picture}")
    total = len(work.paths)
    pace = f", {speed:,.0f} images a second after the first batch" if speed else ""
    Result(
        workload="embed",
        places=[place for _, place, _ in reports],
        seconds=seconds,
        summary=f"{total:,} pictures embedded on {' and '.join(devices)}{pace}, in {folder}",
    ).report(
        args.out,
        way="core" if args.core else "data",
        pictures=total,
        images_per_second=speed,
        devices=devices,
        folder=folder,
        storage=storage.url,
    )


if __name__ == "__main__":
    main()
