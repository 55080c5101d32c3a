"""Run on the head: real Ray work over every pair of nodes. Prints what it found as JSON.

`python ray_checks.py NAME...`: each NAME is a function below; nothing of ours is imported.
"""

import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Generous: the machine may be busy.
PATIENCE_S = 300
OBJECT_BYTES = 500 * 10**6
DASHBOARD = "http://127.0.0.1:8265"


def on(node_id: str) -> dict[str, Any]:
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


def nodes() -> dict[str, str]:
    """Name -> id of the nodes that are alive."""
    return {node["NodeName"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}


def workers() -> list[str]:
    return [node for name, node in sorted(nodes().items()) if name != "head"]


@ray.remote(num_cpus=0.1)
def address() -> str:
    return ray.util.get_node_ip_address()


@ray.remote(num_cpus=0.1)
class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self, value: int) -> int:
        self.total += value
        return self.total


@ray.remote(num_cpus=0.1)
def add_twice(counter: Any) -> int:
    return ray.get([counter.add.remote(1), counter.add.remote(1)])[-1]


@ray.remote(num_cpus=0.1)
def large() -> np.ndarray:
    return np.full(OBJECT_BYTES // 8, 7, dtype=np.int64)


@ray.remote(num_cpus=0.1)
def total(array: np.ndarray) -> tuple[int, int]:
    return array.nbytes, int(array.sum())


@ray.remote(num_cpus=0.1)
class Meeting:
    """Listens where the kernel says, as the rendezvous of a training library does."""

    def __init__(self) -> None:
        self.server = socket.create_server(("", 0))

    def place(self) -> tuple[str, int]:
        return ray.util.get_node_ip_address(), self.server.getsockname()[1]

    def hear(self) -> str:
        self.server.settimeout(PATIENCE_S)
        with self.server.accept()[0] as guest:
            return guest.recv(99).decode()


@ray.remote(num_cpus=0.1)
def say(place: tuple[str, int]) -> str:
    try:
        with socket.create_connection(place, timeout=10) as connection:
            connection.sendall(b"hello")
    except OSError as error:
        return f"{type(error).__name__} at port {place[1]}"
    return "said"


def tasks() -> dict[str, str]:
    """Node -> the address that a task there sees."""
    known = nodes()
    found = ray.get(
        [address.options(**on(node)).remote() for node in known.values()], timeout=PATIENCE_S
    )
    return dict(zip(known, found, strict=True))


def actors() -> int:
    """What an actor on one worker counts that is called from the other and from the head."""
    one, other = workers()
    counter: Any = Counter.options(**on(one)).remote()
    ray.get(add_twice.options(**on(other)).remote(counter), timeout=PATIENCE_S)
    ray.get(add_twice.options(**on(nodes()["head"])).remote(counter), timeout=PATIENCE_S)
    return ray.get(counter.add.remote(1), timeout=PATIENCE_S)


def large_object() -> dict[str, tuple[int, int]]:
    """Size and sum of an object of one worker, as each other node got it."""
    one, other = workers()
    made = large.options(**on(one)).remote()
    got = {}
    for name, node in (("worker", other), ("head", nodes()["head"])):
        got[name] = ray.get(total.options(**on(node)).remote(made), timeout=PATIENCE_S)
    return got


def rendezvous() -> list[str]:
    """What each worker says when it connects to the other at a port that the kernel chose."""
    meetings: list[Any] = [Meeting.options(**on(worker)).remote() for worker in workers()]
    talkers = reversed(workers())
    said = [
        say.options(**on(talker)).remote(meeting.place.remote())
        for meeting, talker in zip(meetings, talkers, strict=True)
    ]
    return ray.get(said, timeout=PATIENCE_S)


def job() -> list[str]:
    """A job by the head's job API, as the SSH tunnel reaches it: its state and its last line."""
    with open(os.environ["RAY_AUTH_TOKEN_PATH"]) as file:  # noqa: PTH123
        headers = {"Authorization": f"Bearer {file.read()}", "Content-Type": "application/json"}
    entry = "python -c 'print(6 * 7)'"
    made = _ask("/api/jobs/", headers, json.dumps({"entrypoint": entry}).encode())
    path = f"/api/jobs/{made['submission_id']}"
    deadline = time.monotonic() + PATIENCE_S
    while (state := _ask(path, headers)["status"]) in ("PENDING", "RUNNING"):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    lines = _ask(f"{path}/logs", headers)["logs"].splitlines()
    # Ray (2.60) may write one of its own after those of the job.
    return [state, [line for line in lines if not line.startswith("Running entrypoint")][-1]]


def _ask(path: str, headers: dict[str, str], data: bytes | None = None) -> Any:
    request = urllib.request.Request(DASHBOARD + path, data, headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
        return json.load(answer)


def names() -> list[str]:
    """The nodes that are alive."""
    return sorted(nodes())


def train() -> list[dict[str, Any]]:
    """What each of two training workers, one on each worker node, saw of the other."""
    # On a busy machine two workers need longer than the default minute to import torch.
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "300"
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    folder = os.path.join(os.environ["HOME"], "train")  # noqa: PTH118
    TorchTrainer(
        _train_loop,
        train_loop_config={"folder": folder},
        torch_config=TorchConfig(backend="gloo", timeout_s=PATIENCE_S),
        scaling_config=ScalingConfig(
            num_workers=2,
            resources_per_worker={"CPU": 1},
            placement_strategy="STRICT_SPREAD",
            label_selector={"ray.io/node-group": "workers"},
        ),
        run_config=RunConfig(storage_path=folder, name="rendezvous"),
    ).fit()
    found = []
    for rank in range(2):
        with open(os.path.join(folder, str(rank))) as file:  # noqa: PTH118, PTH123
            found.append(json.load(file))
    return found


def _train_loop(config: dict[str, Any]) -> None:
    import torch

    rank = torch.distributed.get_rank()
    gathered = torch.tensor([rank + 1.0])
    torch.distributed.all_reduce(gathered)
    seen = {"sum": gathered.item(), "address": ray.util.get_node_ip_address()}
    with open(os.path.join(config["folder"], str(rank)), "w") as file:  # noqa: PTH118, PTH123
        json.dump(seen, file)


CHECKS: dict[str, Callable[[], Any]] = {
    check.__name__: check for check in (names, tasks, actors, large_object, rendezvous, job, train)
}

if __name__ == "__main__":
    ray.init(address="auto", log_to_driver=False)
    for name in sys.argv[1:]:
        try:
            answer = {"value": CHECKS[name]()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"check": name, **answer}), flush=True)
