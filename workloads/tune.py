"""Search for the best batch size and dropout: many short trainings, the poor ones stopped early.

Each trial is a training like train.py's, with Ray Train inside, so it too survives the loss of its
node. ASHA stops a trial after an epoch in which it is in the worse half of the trials that came so
far. --resume continues a search whose driver died: finished trials stay, the others resume where
they stopped.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

import _common
import _food
import _storage
import _tuning
import _vanished
import ray
import ray.train
import train
from _chart import Chart, Line
from _common import (
    add_run_options,
    count,
    folder_name,
    parser,
    positive,
    program,
    refuse,
    say,
    writable,
)
from _food import asked_for
from _storage import Storage
from _tuning import DRIVER_SETTINGS, METRIC, ON_THE_HEAD, Search, at_once, run_trial
from ray import cloudpickle, tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import BasicVariantGenerator

# A worker on another machine cannot import this file's siblings.
for module in (_tuning, train):  # train.py registers its own
    cloudpickle.register_pickle_by_value(module)

REDUCTION = 2  # of the trials that reach a rung, one in this many continues
GRACE = 2  # epochs before a trial may be stopped: after one, all are close to chance
SAMPLES, EPOCHS = 4, 6
ABOUT = "search.json"


class Follower(tune.Callback):
    """Prints a line for each epoch of each trial."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs

    def on_trial_result(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Any],  # noqa: ARG002
        trial: Any,
        result: dict[str, Any],
        **_: Any,
    ) -> None:
        """Print the line."""
        epoch = f"epoch {result.get('epoch', '?')} of {self._epochs}"
        say(f"trial {trial.trial_id}: {epoch}, validation accuracy {result.get(METRIC, 0):.3f}")


def tuner(
    search: Search, storage: Storage, device: str, concurrent: int, *, resume: bool
) -> tune.Tuner:
    """Return the Tuner of the search, new or restored."""

    def trial(config: dict[str, Any]) -> None:
        run_trial(config, search, storage, device)

    trainable = tune.with_resources(trial, tune.PlacementGroupFactory([ON_THE_HEAD]))
    if resume:
        return tune.Tuner.restore(
            storage.below(search.name),
            trainable,
            resume_unfinished=True,
            restart_errored=True,
            storage_filesystem=storage.filesystem,
        )
    return tune.Tuner(
        trainable,
        param_space={
            "batch_size": tune.choice(list(search.batch_sizes)),
            "dropout": tune.uniform(*search.dropout),
        },
        tune_config=tune.TuneConfig(
            metric=METRIC,
            mode="max",
            num_samples=search.samples,
            search_alg=BasicVariantGenerator(max_concurrent=concurrent, random_state=search.seed),
            # Epochs, not reports: a trial that restarted counts its reports from 1.
            scheduler=ASHAScheduler(
                time_attr="epoch",
                max_t=search.settings.epochs,
                grace_period=min(GRACE, search.settings.epochs),
                reduction_factor=REDUCTION,
            ),
        ),
        run_config=tune.RunConfig(
            name=search.name,
            storage_path=storage.path,
            storage_filesystem=storage.filesystem,
            failure_config=tune.FailureConfig(max_failures=1),
            callbacks=[Follower(search.settings.epochs)],
            verbose=0,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one trial."""

    name: str
    batch_size: int
    dropout: float
    accuracy: Sequence[float]
    """On the validation split, after each epoch."""
    epochs: int
    end: str

    @property
    def best(self) -> float:
        """Return the accuracy after the last epoch; -inf where there is none."""
        return self.accuracy[-1] if self.accuracy else -inf


def trials_of(results: tune.ResultGrid, epochs: int) -> list[Trial]:
    """Return the trials, the best first."""
    made = []
    for result in results:
        frame, config = result.metrics_dataframe, result.config or {}
        reports = [] if frame is None or METRIC not in frame else frame.to_dict("records")
        # A trial that restarted may report an epoch twice.
        by_epoch = {int(row["epoch"]): float(row[METRIC]) for row in reports}
        done = max(by_epoch, default=0)
        ended = "all epochs" if done >= epochs else "stopped early"
        made.append(
            Trial(
                name=str((result.metrics or {}).get("trial_id", "?")),
                batch_size=config["batch_size"],
                dropout=config["dropout"],
                accuracy=[by_epoch[epoch] for epoch in sorted(by_epoch)],
                epochs=done,
                end="failed" if result.error else ended,
            )
        )
    # By name at last: Tune returns the trials of a resumed search in another order.
    return sorted(
        made, key=lambda trial: (trial.end == "failed", -trial.epochs, -trial.best, trial.name)
    )


def table(trials: Sequence[Trial]) -> str:
    """Return a line for each trial, under a header."""
    rows = [f"{'trial':14}{'batch':>6}{'dropout':>9}{'epochs':>8}{'accuracy':>10}  end"]
    for trial in trials:
        accuracy = f"{trial.best:.3f}" if trial.accuracy else "-"
        rows.append(
            f"{trial.name:14}{trial.batch_size:6}{trial.dropout:9.3f}{trial.epochs:8}"
            f"{accuracy:>10}  {trial.end}"
        )
    return "\n".join(rows)


def picture(trials: Sequence[Trial]) -> Chart:
    """Return a chart of the accuracy over the epochs; trials that were stopped are faint."""
    lines = [
        Line(
            label=f"batch {trial.batch_size}, dropout {trial.dropout:.2f}",
            points=list(enumerate(trial.accuracy, trial.epochs - len(trial.accuracy) + 1)),
            faint=trial.end != "all epochs",
        )
        for trial in trials
    ]
    return Chart(
        title="Trials: those that ASHA stopped are faint",
        x_label="epochs",
        y_label="validation accuracy",
        lines=lines,
    )


# The command


def _batch_sizes(text: str) -> list[int]:
    return [positive(part.strip()) for part in text.split(",")]


def _dropout(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        found = float(low), float(high)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not LOW:HIGH, such as 0.1:0.8") from None
    if not 0 <= found[0] < found[1] < 1:
        raise argparse.ArgumentTypeError(
            f"{text}: LOW must be 0 or more, HIGH above LOW and below 1"
        )
    return found


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    made = parser(__doc__, "python workloads/tune.py --samples 16 --epochs 20 --picture tune.svg")
    made.add_argument(
        "--samples", type=positive, default=SAMPLES, metavar="N", help="number of trials"
    )
    made.add_argument(
        "--epochs", type=positive, default=EPOCHS, metavar="N", help="most epochs of a trial"
    )
    made.add_argument(
        "--batch-sizes",
        type=_batch_sizes,
        default="32,64",
        metavar="N,N",
        help="batch sizes to choose from",
    )
    made.add_argument(
        "--dropout",
        type=_dropout,
        default="0.1:0.8",
        metavar="LOW:HIGH",
        help="range to choose the dropout from",
    )
    made.add_argument("--name", type=folder_name, default="tune", help="name of the search")
    made.add_argument("--resume", action="store_true", help="continue the search of that name")
    add_run_options(made)
    made.add_argument("--workers", type=positive, default=1, metavar="N", help="workers per trial")
    made.add_argument(
        "--concurrent", type=positive, metavar="N", help="trials at once (default: as many as fit)"
    )
    _food.add_options(made)
    made.add_argument("--picture", type=writable, metavar="FILE", help="draw the trials as SVG")
    args = made.parse_args(argv)
    if args.resume and args.concurrent:
        made.error("--concurrent is kept with the search: leave it out with --resume")
    return args


def _search(args: argparse.Namespace) -> Search:
    return Search(
        # The whole network is trained from the first epoch on: after an epoch of only the head, all
        # trials are close to chance, and ASHA would choose at random.
        settings=replace(asked_for(args, "size", "epochs", "seed"), freeze_epochs=0),
        name=args.name,
        samples=args.samples,
        batch_sizes=args.batch_sizes,
        dropout=args.dropout,
        workers=args.workers,
        cpus=args.cpus_per_worker,
        gpus=args.gpus_per_worker,
        seed=args.seed,
    )


def begun(search: Search, storage: Storage, *, resume: bool) -> tuple[Search, bool]:
    """Return the search to run, saved under its name, and whether Tune restores it.

    Raises:
        StorageError: If there is no search to continue, or one that would be overwritten.
    """
    try:
        saved = Search.from_json(storage.read(f"{search.name}/{ABOUT}"))
    except FileNotFoundError:
        saved = None
    # A driver that died in its first seconds left only the file.
    there = saved is not None and tune.Tuner.can_restore(
        storage.below(search.name), storage_filesystem=storage.filesystem
    )
    if resume and saved:
        return saved, there
    if resume:
        where = f"{storage.url} holds no search {search.name!r} to continue"
        raise _storage.StorageError(f"{where}: leave out --resume, or check --name and --storage")
    if there:
        where = f"{storage.url} already holds a search {search.name!r}"
        raise _storage.StorageError(f"{where}: continue it with --resume, or give another --name")
    storage.filesystem.create_dir(storage.below(search.name))
    with storage.filesystem.open_output_stream(storage.below(f"{search.name}/{ABOUT}")) as file:
        file.write(search.to_json())
    return search, False


def run(
    search: Search, storage: Storage, device: str, concurrent: int | None, *, resume: bool
) -> list[Trial]:
    """Run the search to its end and return its trials, the best first."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fit = at_once(nodes, ray.available_resources(), search.needs, search.workers)
    concurrent = min(concurrent or fit, search.samples)
    trials = count(search.samples, "trial")
    if resume:  # Tune has kept how many run at once
        begins = f"Resuming {search.name!r}: {trials}"
    else:
        begins = f"Searching {search.name!r}: {trials}, {concurrent} at once"
    say(f"{begins}; everything goes to {storage.url}")
    with _vanished.no_endless_start():
        results = tuner(search, storage, device, concurrent, resume=resume).fit()
    return trials_of(results, search.settings.epochs)


@program
def main(argv: list[str] | None = None) -> None:
    """Search as the command line asks."""
    args = _arguments(argv)
    for name, value in DRIVER_SETTINGS.items():
        os.environ.setdefault(name, value)
    search = _search(args)
    try:
        storage = _storage.open_storage(args.storage or _storage.default_url())
        _storage.remove(storage, _storage.check_writable(storage))
        search, resume = begun(search, storage, resume=args.resume)
    except _storage.StorageError as error:
        refuse(str(error))
    # Tune ends a trial by killing its driver. A watcher of Ray Train's then releases the resources
    # of its workers, for which it asks the state API; without it the next trial would wait.
    _common.connect(tell_workers=True)
    device = train.check(search.settings, storage, search.needs)
    began = time.perf_counter()
    trials = run(search, storage, device, args.concurrent, resume=resume)
    seconds = time.perf_counter() - began
    say(table(trials))
    if args.picture:
        picture(trials).write(args.picture)
        say(f"Drawn to {args.picture}")
    failed = [trial.name for trial in trials if trial.end == "failed"]
    best = trials[0]
    say(
        f"Best: batch size {best.batch_size}, dropout {best.dropout:.3f}, validation accuracy "
        f"{best.best:.3f} ({count(len(trials), 'trial')} on {device}, {seconds:.1f} s)"
    )
    if args.out:
        result = {
            "workload": "tune",
            "search": asdict(search),
            "storage": storage.url,
            "device": device,
            "seconds": seconds,
            "best": asdict(best),
            "trials": [asdict(trial) for trial in trials],
        }
        args.out.write_text(json.dumps(result, indent=2) + "\n")
        say(f"Written to {args.out}")
    if failed:
        print(
            f"error: trials failed: {', '.join(failed)}; run them again with --resume",
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
