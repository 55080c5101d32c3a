"""Show where tasks run: send short tasks to every node and list the nodes."""

import argparse
import time
from collections import Counter

import ray
from _common import (
    Place,
    Result,
    by_node,
    connect,
    follow,
    here,
    parser,
    positive,
    program,
    warm_up,
)

HOLD = 0.1  # seconds that a task keeps its worker, so that the next one needs another
TASKS_A_CPU = 4

HEADER = ("node", "group", "market", "address", "workers", "tasks")


@ray.remote(num_cpus=1)
def _visit() -> Place:
    time.sleep(HOLD)
    return here()


def table(places: list[Place]) -> str:
    """Return a line for each node that was used, under a header."""
    rows: list[tuple[str, ...]] = [HEADER]
    for node_id, node in by_node(places).items():
        workers = len({pid for owner, pid in places if owner == node_id})
        named = [node["group"] or "-", node["market"] or "-", node["ip"] or "-"]
        rows.append((node["name"], *named, str(workers), str(node["tasks"])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def by_group(places: list[Place]) -> str:
    """Return the tasks of each node group in one line."""
    tasks: Counter[str] = Counter()
    for node in by_node(places).values():
        tasks[node["group"] or "no group"] += node["tasks"]
    return ", ".join(f"{group} {number}" for group, number in tasks.items())


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    made = parser(__doc__, "python workloads/where.py --tasks 24 --out where.json")
    made.add_argument(
        "--tasks", type=positive, metavar="N", help=f"tasks (default: {TASKS_A_CPU} per CPU)"
    )
    return made.parse_args(argv)


@program
def main(argv: list[str] | None = None) -> None:
    """Send the tasks that the command line asks for and print where they ran."""
    args = _arguments(argv)
    cpus = connect()
    tasks = args.tasks or TASKS_A_CPU * cpus
    warm_up(cpus)
    began = time.perf_counter()
    spread = _visit.options(name="where", scheduling_strategy="SPREAD")
    places = follow([spread.remote() for _ in range(tasks)], "tasks")
    seconds = time.perf_counter() - began
    print(table(places))
    Result(
        workload="where",
        places=places,
        seconds=seconds,
        summary=f"Tasks by group: {by_group(places)}",
    ).report(args.out)


if __name__ == "__main__":
    main()
