"""Compare embed.py on Ray Data with a plain torch DataLoader loop on the same two cores.

Both sides have one process that reads pictures and one that runs the model, on one thread each,
and write the same Parquet. The time counts from the end of the first batch, so neither side's start
is in it.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _options
from _local_ray import WORKLOADS, own_ray_settings, ray_with
from _pairs import compare

SIZE, BATCH, SPLIT = 224, 16, "evaluation"
PAIRS = 5
AIM = 1.05
LOADERS = 1


@contextmanager
def workloads() -> Iterator[tuple[Any, Any]]:
    """Yield the modules _embed and _food, sent to Ray's workers by value as embed.py does."""
    sys.path.insert(0, str(WORKLOADS))
    import _embed
    import _food
    import images
    from ray import cloudpickle

    for module in (_embed, _food, images):
        cloudpickle.register_pickle_by_value(module)
    yield _embed, _food


def plain_seconds(food: Any, embed: Any, settings: Any, file: Path) -> tuple[float, int]:
    """Return the seconds after the first batch, and the number of pictures in all."""
    import pyarrow.parquet as pq
    import torch
    from torch.utils.data import DataLoader

    model = food.FoodClassifier(settings).eval()
    pictures = food.pictures(settings, SPLIT)
    # Spawned, because a fork of a process that runs Ray's threads may hang.
    batches = DataLoader(pictures, BATCH, num_workers=LOADERS, multiprocessing_context="spawn")
    began, seen, writer = 0.0, 0, None
    with torch.inference_mode():
        for batch, _ in batches:
            vectors = model.embed(batch).numpy()
            paths = [path for path, _ in pictures.samples[seen : seen + len(vectors)]]
            table = embed.table_of(paths, vectors)
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
            began = began or time.perf_counter()
            seen += len(vectors)
    seconds = time.perf_counter() - began
    if writer:
        writer.close()
    return seconds, seen


def ray_seconds(embed: Any, work: Any, folder: Path) -> tuple[float, int]:
    """Return the same for the workload, with one actor and one CPU to decode."""
    import ray
    from pyarrow import fs

    plan = embed.Plan(workers=(1, 1), worker_cpus=1.0, worker_gpus=0.0, decode_cpus=1.0)
    tally = embed.Tally.remote()
    folder.mkdir()
    embed.with_ray_data(work, plan, tally, str(folder), fs.LocalFileSystem())
    reports, _ = ray.get(tally.reports.remote())
    times = [at for at, _, _ in reports]
    return max(times) - min(times), sum(pictures for _, _, pictures in reports)


def measure(embed: Any, food: Any, folder: Path) -> None:
    """Print the comparison on the Ray cluster that this process is connected to."""
    import lightning
    import ray
    import torch

    torch.set_num_threads(1)
    settings = food.Settings(size=SIZE, width=1.0)
    lightning.seed_everything(settings.seed, verbose=False)
    work = embed.Work(
        settings=settings,
        split=SPLIT,
        paths=embed.pictures_of(settings.folder() / SPLIT),
        batch=BATCH,
        state=ray.put(food.FoodClassifier(settings).state_dict()),
    )
    counts: dict[str, int] = {}
    runs = iter(range(1000))

    def ours() -> float:
        seconds, counts["ours"] = ray_seconds(embed, work, folder / f"ours-{next(runs)}")
        return seconds

    def peer() -> float:
        file = folder / f"plain-{next(runs)}.parquet"
        seconds, counts["peer"] = plain_seconds(food, embed, settings, file)
        return seconds

    extra = {"pictures": len(work.paths), "pixels": SIZE, "batch": BATCH}
    compare("embed", ours, peer, PAIRS, peer_name="torch DataLoader", aim=AIM, extra=extra)
    assert counts["ours"] == counts["peer"] == len(work.paths)


def main() -> None:
    """Print the comparison; its last line is JSON."""
    _options.parser(__doc__).parse_args()
    with (
        own_ray_settings() as ray_folder,
        tempfile.TemporaryDirectory() as folder,
        workloads() as (embed, food),
        ray_with(1 + LOADERS, ray_folder),
    ):
        measure(embed, food, Path(folder))


if __name__ == "__main__":
    main()
