"""A cluster of real Ray nodes whose machines a stand-in for ARM gives and takes.

Azure's part is acted: a VM "boots" by starting `ray start` on this machine. The head's autoscaler
file is the one that its user data carries, and follows that.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from azure_model.arm import HEAD, Vm, serving
from azure_model.compute import VIRTUAL_MACHINES, Billed
from ray_machines import RayMachines, autoscaler_file, live_file
from waiting import wait_for

from sunspot.node.azure.arm import Arm
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.record import HeadRecord
from sunspot.node.collector import GROUP_LABEL
from sunspot.node.events import Event
from sunspot.node.free_ports import free_port
from sunspot.ray.handle import ClusterHandle
from sunspot.spec_values import HEAD as HEAD_TYPE
from sunspot.stack import Stack
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure.scaling import Cluster

DEADLINE_S = 240.0
# Sooner than the head of a cluster does it, which gives Azure its time.
DELETE_AGAIN_S = 2.0
PROGRAM = Path(__file__).parent / "mixed_jobs.py"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"
PREFIX = "sunspot-test-"
SPOT, ON_DEMAND = "spotty", "spotty-on-demand"
# How many workers the group has at most.
MOST = 2
CLUSTER: dict[str, Any] = {
    "head_node": {"vm_size": "Standard_D2s_v5"},
    "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
    "scaling_groups": [
        {
            "name": SPOT,
            "market": "spot-with-fallback",
            "min_workers": 0,
            "max_workers": MOST,
            "worker_nodes": {"vm_size": "Standard_D2s_v5"},
        }
    ],
}


def stack_of(cluster: dict[str, Any]) -> Stack:
    """A stack with this cluster."""
    settings = {
        "azure-native:location": "uksouth",
        "sunspot:access": {"ssh_public_key": KEY},
        "sunspot:cluster": cluster,
    }
    return Stack.parse(settings, name="test")


STACK = stack_of(CLUSTER)


@dataclass
class Jobs:
    """A driver that runs the jobs that it is given: see mixed_jobs.py."""

    process: subprocess.Popen[str]
    results: dict[str, Future[Any]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def begin(self, kind: str, **arguments: Any) -> Future[Any]:
        """Begins a job; its result, or a RuntimeError with what it failed with."""
        assert self.process.stdin is not None
        number = str(next(self.numbers))
        result = self.results[number] = Future()
        self.process.stdin.write(json.dumps({"id": number, "kind": kind, **arguments}) + "\n")
        self.process.stdin.flush()
        return result

    def read(self) -> None:
        """Takes the results as they come, until the driver ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"id"'):  # Ray prints there as well
                told = json.loads(line)
                if "error" in told:
                    self.results[told["id"]].set_exception(RuntimeError(told["error"]))
                else:
                    self.results[told["id"]].set_result(told["result"])
        for result in self.results.values():
            if not result.done():
                result.set_exception(RuntimeError("the driver has ended"))


class Azure(RayMachines):
    """The head's cluster, and the processes that stand for its machines."""

    def boot(self, vm: Vm) -> None:
        self.start_worker(vm.name, _kind(vm.name))

    def driver(self) -> subprocess.Popen[str]:
        """A driver of its own; see mixed_jobs.py for what it reads and prints."""
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                env=self.environment("driver", "driver"),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    @contextlib.contextmanager
    def jobs(self) -> Iterator[Jobs]:
        """A driver for many jobs; ended with the block."""
        jobs = Jobs(self.driver())
        reader = threading.Thread(target=jobs.read, daemon=True)
        reader.start()
        try:
            yield jobs
        finally:
            os.kill(jobs.process.pid, 9)
            jobs.process.wait()
            reader.join()

    def result(self, job: Future[Any]) -> Any:
        """What a job gave; fails if it gives nothing in time."""
        try:
            return job.result(DEADLINE_S)
        except LateError:
            pytest.fail(f"the job did not end; {self.arm.vms}\n{self.logs()}")
        except RuntimeError as error:
            pytest.fail(f"the job failed: {error}\n{self.logs()}")

    def workers(self) -> list[str]:
        """The names of the machines that exist, but for the head."""
        return [name for name in self.arm.vms if name != HEAD]

    def wait_until_empty(self) -> None:
        """Returns when every worker is gone."""
        wait_for("the idle machines to go", lambda: not self.workers(), DEADLINE_S, seen=self.logs)
        wait_for("their processes to end", lambda: set(self.machines) == {HEAD}, DEADLINE_S)

    @property
    def record(self) -> HeadRecord:
        return HeadRecord(self.folder / "record")

    def kinds(self, name: str) -> list[str]:
        """What is recorded of a machine, in order."""
        return [event.kind for event in self.events() if event.node == name]

    def events(self) -> list[Event]:
        return self.record.events.read()

    def members(self) -> list[str]:
        """The workers that have joined and are there, the newest last."""
        return [name for name in self.workers() if self.kinds(name) == ["launched", "joined"]]

    def provider(self) -> dict[str, Any]:
        """What differs in the config's `provider` from an Azure head's."""
        return {
            "record": str(self.record.folder),
            "gcs": self.address,
            "delete_again_s": DELETE_AGAIN_S,
        }

    def edit(self, cluster: dict[str, Any]) -> None:
        """Gives the head the settings of another stack file, as an `up` does."""
        plan = azure_plan.plan(stack_of(cluster), Path.cwd())
        live_file(plan, self.arm, **self.provider())
        wanted = {HEAD_TYPE, *(pool.node_type for pool in plan.pools)}
        wait_for(
            "Ray's file to have the groups",
            lambda: wanted <= self.config()["available_node_types"].keys(),
            DEADLINE_S,
        )

    def seen_by_its_user(self) -> Cluster:
        """The cluster for what `sunspot` does with it."""
        return Cluster(
            stack=STACK,
            vm=f"{VIRTUAL_MACHINES}/{HEAD}",
            handle=cast("ClusterHandle", None),  # of the dashboard, which does not run
            run_on_head=self._run_on_head,
            notices=self.record.notices.read,
        )

    def _run_on_head(self, module: Sequence[str], seconds: float) -> str:
        command = [sys.executable, "-m", *module]
        env = self.environment("head", HEAD_TYPE)
        return subprocess.run(
            command, env=env, timeout=seconds, check=True, capture_output=True, text=True
        ).stdout

    def drained(self, name: str) -> bool:
        """Whether Ray says that it drained a node before it left."""
        code = "import sys; from sunspot.node.members import GcsMembers as Members; "
        code += "print(Members(sys.argv[1]).drained(sys.argv[2]))"
        command = [sys.executable, "-c", code, self.address, name]
        env = self.environment("head", HEAD_TYPE)
        return subprocess.check_output(command, env=env, text=True).strip() == "True"

    def arm_of_its_user(self, *_: object, **__: object) -> Arm:
        """A client of the stand-in, whoever asks."""
        return Arm(Imds(self.arm.url), self.arm.url)

    def alive(self, _: object) -> list[dict[str, object]]:
        """The workers that are members, as Ray's state API tells of them."""
        return [
            {"node_name": name, "state": "ALIVE", "labels": {GROUP_LABEL: _kind(name)}}
            for name in self.members()
        ]

    def nodes(self) -> dict[str, dict[str, object]]:
        """The same by their names in lower case."""
        return {str(one["node_name"]).lower(): one for one in self.alive(None)}

    def config(self) -> dict[str, Any]:
        """Ray's file, as it is now."""
        return json.loads((self.folder / "config.yaml").read_text())


def _kind(name: str) -> str:
    return name.rpartition("_")[0].removeprefix(PREFIX)


@contextlib.contextmanager
def running(**given: Any) -> Iterator[Azure]:
    """The cluster, with a head and no worker; gone when the block ends.

    Args:
        given: what else differs in the config's `provider` from an Azure head's.
    """
    # A short path: Ray puts sockets below it, whose paths may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sunspot-arm-", dir="/tmp"))
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    with serving() as arm:
        made = Azure(arm, folder, f"127.0.0.1:{free_port(set())}", token)
        arm.on_boot, arm.on_delete = made.boot, made.delete
        plan = azure_plan.plan(STACK, Path.cwd())
        assert plan.head_name == HEAD
        made.record.folder.mkdir()
        config = folder / "config.yaml"
        autoscaler_file(plan, arm, config, **made.provider(), **given)
        try:
            made.start_head(HEAD, config, "--num-cpus=0", "--include-dashboard=false")
            wait_for("the head", lambda: (folder / "r").exists(), DEADLINE_S)
            yield made
        finally:
            for name in list(made.machines):
                made.delete(name)
            shutil.rmtree(folder, ignore_errors=True)


def most_at_once(machines: dict[str, Billed]) -> int:
    """How many of these machines there were at the same time, at most."""
    changes = [(one.begun, 1) for one in machines.values()]
    changes += [(one.ended, -1) for one in machines.values() if one.ended is not None]
    return max(itertools.accumulate(change for _, change in sorted(changes)), default=0)
