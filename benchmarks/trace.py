"""What a bursty trace of work costs and how long it waits: ours, a fixed cluster, Ray's autoscaler.

The same trace runs on an elastic group of `sunspot up`, on one with all of its machines from the
start, and on Ray's autoscaler at its defaults over processes of one machine (`fake_multinode`).
Both autoscalers give an idle node back after 20 seconds, which stand for the five minutes that are
the default of both; the rest is as it comes. A task fills a node and sleeps, so that this machine's
cores decide nothing. Machine time is counted while a node is a member, the same on all sides.

    python benchmarks/trace.py
    python benchmarks/trace.py --pairs 2 --picture trace.svg

The last line has the mean seconds that a task waited, and each side's machine seconds. A run takes
some two and a half minutes, and there are three of them in each round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import _options
import yaml
from _cluster import BIN, CPUS_A_NODE, STACK, Project, project
from _local_ray import WORKLOADS
from _rays_autoscaler import ray_head

from sunspot.node.files import write_private
from sunspot.node.local.folder import ClusterFolder

MAXIMUM = 4
IDLE_S = 20
# When, how many tasks at once, and how long each of them takes; all in seconds.
TRACE = ((2, 2, 8), (10, 6, 8), (60, 4, 8), (95, 1, 8), (98, 2, 8))
END_S = 130
POLL_S = 0.25

# Prints the seconds that each task waited, and the members without the head at each poll.
DRIVER = f"""
import json, os, threading, time, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
@ray.remote(num_cpus={CPUS_A_NODE})
def work(submitted, seconds):
    waited = time.time() - submitted
    time.sleep(seconds)
    return waited
trace, results, members = json.loads(os.environ["TRACE"]), [], []
began = time.time()
def look():
    while (now := time.time() - began) < {END_S}:
        members.append((now, sum(node["Alive"] for node in ray.nodes()) - 1))
        time.sleep({POLL_S})
watch = threading.Thread(target=look)
watch.start()
for at, tasks, seconds in trace:
    time.sleep(max(0.0, began + at - time.time()))
    results += [work.remote(time.time(), seconds) for _ in range(tasks)]
waited = ray.get(results)
watch.join()
print(json.dumps([waited, members]))
"""


@dataclass(frozen=True)
class Run:
    """The seconds that each task waited, and when how many workers were members."""

    waited: list[float]
    members: list[tuple[float, int]]

    @property
    def machine_seconds(self) -> float:
        """The workers' time as members, from the trace's first second to its last."""
        ends = [at for at, _ in self.members[1:]] + [float(END_S)]
        return sum(count * (end - at) for (at, count), end in zip(self.members, ends, strict=True))


def elastic() -> Run:
    """Run the trace on an elastic group of `sunspot up`."""
    with project(MAXIMUM, minimum=0, head_cpus=1) as made:
        environment, address = made.up()
        _set_idle_time(made)
        return _run(environment, address)


def fixed() -> Run:
    """Run the trace on a cluster that has all of its workers all the time."""
    with project(MAXIMUM, head_cpus=1) as made:
        return _run(*made.up())


def rays_autoscaler() -> Run:
    """Run the trace on Ray's own autoscaler, with its provider and settings."""
    with ray_head(MAXIMUM, idle_minutes=IDLE_S / 60) as (environment, address):
        return _run(environment, address)


def _set_idle_time(made: Project) -> None:
    """Edits the autoscaler's file, which is read again at each tick."""
    file = ClusterFolder(made.folder / "state" / "clusters" / STACK).autoscaler_config
    config = yaml.safe_load(file.read_text())
    write_private(file, yaml.safe_dump(config | {"idle_timeout_minutes": IDLE_S / 60}))


def _run(environment: Mapping[str, str], address: str) -> Run:
    done = subprocess.run(
        [str(BIN / "python"), "-c", DRIVER],
        env={**environment, "RAY_ADDRESS": address, "TRACE": json.dumps(TRACE)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    waited, members = json.loads(done.stdout.splitlines()[-1])
    return Run(waited, [(at, count) for at, count in members])


SIDES: Mapping[str, Callable[[], Run]] = {
    "ours": elastic,
    "Ray's autoscaler": rays_autoscaler,
    "fixed": fixed,
}


def main() -> None:
    """Print the comparison; its last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--pairs", type=int, default=1, help="rounds of all sides; default: 1")
    options.add_argument("--picture", type=Path, metavar="FILE", help="draw the last round, as SVG")
    options.add_argument("--keep", type=Path, metavar="FILE", help="write the runs there, as JSON")
    given = options.parse_args()
    runs: dict[str, list[Run]] = {name: [] for name in SIDES}
    print(f"{'side':>18}{'waited, mean':>14}{'longest':>9}{'machine s':>11}", flush=True)
    for number in range(given.pairs):
        for name in list(SIDES)[:: -1 if number % 2 else 1]:
            run = SIDES[name]()
            runs[name].append(run)
            waits = f"{mean(run.waited):>14.2f}{max(run.waited):>9.2f}"
            print(f"{name:>18}{waits}{run.machine_seconds:>11.0f}", flush=True)
    if given.picture:
        given.picture.write_text(_picture({name: of[-1] for name, of in runs.items()}))
    if given.keep:
        given.keep.write_text(
            json.dumps({name: [vars(r) for r in of] for name, of in runs.items()})
        )
    print(json.dumps(_result(runs)))


def _picture(runs: Mapping[str, Run]) -> str:
    """Draw the tasks that are not done, on our side, and the workers of each."""
    sys.path.insert(0, str(WORKLOADS))
    from _chart import Chart, Line

    workers = [
        Line(label=f"{name}: {run.machine_seconds:.0f} s", points=_steps(run.members))
        for name, run in runs.items()
    ]
    tasks = Line(label="tasks not done", points=_steps(_unfinished(runs["ours"])), dashed=True)
    return Chart(
        title="Workers of each side, and their machine time",
        x_label="seconds",
        y_label="workers; tasks",
        lines=[*workers, tasks],
    ).svg()


def _unfinished(run: Run) -> list[tuple[float, int]]:
    """Return when how many tasks were submitted and not done."""
    submitted = [(at, seconds) for at, tasks, seconds in TRACE for _ in range(tasks)]
    changes = [(float(at), 1) for at, _ in submitted]
    changes += [
        (at + waited + seconds, -1)
        for (at, seconds), waited in zip(submitted, run.waited, strict=True)
    ]
    count, found = 0, [(0.0, 0)]
    for at, change in sorted(changes):
        count += change
        found.append((at, count))
    return [*found, (float(END_S), count)]


def _steps(seen: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the corners of a line that jumps where the count changes."""
    corners = [seen[0]]
    for at, count in seen[1:]:
        if count != corners[-1][1]:
            corners += [(at, corners[-1][1]), (at, count)]
    return [*corners, (seen[-1][0], seen[-1][1])]


def _result(runs: Mapping[str, list[Run]]) -> dict[str, object]:
    waited = {name: median(mean(run.waited) for run in of) for name, of in runs.items()}
    machine = {name: median(run.machine_seconds for run in of) for name, of in runs.items()}
    ours, peer, fixed_name = SIDES
    return {
        "name": "trace",
        "ours": round(waited[ours], 3),
        "peer": round(waited[peer], 3),
        "ratio": round(
            median(
                mean(mine.waited) / mean(theirs.waited)
                for mine, theirs in zip(runs[ours], runs[peer], strict=True)
            ),
            4,
        ),
        "fixed": round(waited[fixed_name], 3),
        "machine_seconds": {name: round(seconds) for name, seconds in machine.items()},
    }


if __name__ == "__main__":
    main()
