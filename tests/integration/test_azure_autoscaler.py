"""Ray's own autoscaler on scale sets: a real head, a stand-in for ARM whose VMs are real workers.

Azure's part is acted: a VM "boots" by starting `ray start` on this machine. The head's autoscaler
file is the one that its user data carries, and follows that.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure_model.arm import HEAD, SCALE_SETS, Vm, serving
from ray_machines import RayMachines, autoscaler_file, live_file
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.spec_values import HEAD as HEAD_TYPE
from sunspot.stack import Stack
from sunspot.targets.azure import plan as azure_plan

# Two real Ray nodes and the autoscaler's ticks, on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)
DEADLINE_S = 240.0

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"
SPOT, ON_DEMAND = "spotty", "spotty-on-demand"
MORE = "more"
STACK: dict[str, Any] = {
    "azure-native:location": "uksouth",
    "sunspot:access": {"ssh_public_key": KEY},
    "sunspot:cluster": {
        "head_node": {"vm_size": "Standard_D2s_v5"},
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        "scaling_groups": [
            {
                "name": SPOT,
                "market": "spot-with-fallback",
                "min_workers": 0,
                "max_workers": 1,
                "worker_nodes": {"vm_size": "Standard_D2s_v5"},
            }
        ],
    },
}
# Waits for CPUs, of which the head has none, and says what each task ran on.
JOB = """
import os, ray, sys
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
@ray.remote(num_cpus=1)
def where():
    return os.environ["RAY_NODE_TYPE_NAME"], os.environ["RAY_CLOUD_INSTANCE_ID"]
for place in ray.get([where.remote() for _ in range(int(sys.argv[1]))]):
    print("ran on", *place)
"""


class Azure(RayMachines):
    """The head's cluster, and the processes that stand for its machines."""

    def boot(self, vm: Vm) -> None:
        of_set = vm.name.rpartition("_")[0].removeprefix("sunspot-test-")
        self.start_worker(vm.name, of_set)

    def run_job(self, tasks: int) -> subprocess.Popen[str]:
        environment = self.environment("driver", "driver")
        return subprocess.Popen(
            [sys.executable, "-c", JOB, str(tasks)],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def workers(self) -> list[str]:
        return [name for name in self.arm.vms if name != HEAD]


@pytest.fixture(scope="module")
def azure() -> Iterator[Azure]:
    # A short path: Ray puts sockets below it, whose paths may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sunspot-arm-", dir="/tmp"))
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    with serving() as arm:
        made = Azure(arm, folder, f"127.0.0.1:{free_port(set())}", token)
        arm.on_boot, arm.on_delete = made.boot, made.delete
        config = folder / "config.yaml"
        plan = azure_plan.plan(Stack.parse(STACK, name="test"), Path.cwd())
        assert plan.head_name == HEAD
        autoscaler_file(plan, arm, config)
        try:
            made.start_head(HEAD, config, "--num-cpus=0", "--include-dashboard=false")
            yield made
        finally:
            for name in list(made.machines):
                made.delete(name)
            shutil.rmtree(folder, ignore_errors=True)


def ran_on(azure: Azure, tasks: int = 1) -> list[tuple[str, str]]:
    """Runs the job; the node type and the name of the machine that each task ran on."""
    process = azure.run_job(tasks)
    try:
        output, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the job did not end; {azure.arm.vms}\n{azure.logs()}")
    finally:
        if process.poll() is None:
            os.kill(process.pid, 9)
            process.wait()
    lines = [line.split() for line in output.splitlines() if line.startswith("ran on ")]
    assert len(lines) == tasks, f"{output}\n{azure.logs()}"
    return [(node_type, name) for _, _, node_type, name in lines]


def test_a_waiting_task_gets_a_spot_machine_which_is_given_back_when_it_is_idle(azure: Azure):
    wait_for("the head", lambda: (azure.folder / "r").exists(), DEADLINE_S)
    assert azure.workers() == []
    ((node_type, name),) = ran_on(azure)
    assert node_type == SPOT
    assert name.startswith(f"sunspot-test-{SPOT}_")
    wait_for("the idle machine to go", lambda: not azure.workers(), DEADLINE_S)
    assert {s.name: s.capacity for s in azure.arm.sets.values()} == {
        f"sunspot-test-{SPOT}": 0,
        f"sunspot-test-{ON_DEMAND}": 0,
    }
    assert ("POST", f"{sets(SPOT)}/delete") in azure.arm.requests
    assert set(azure.machines) == {HEAD}


def test_more_tasks_at_once_than_the_group_can_hold_wait_and_run(azure: Azure):
    assert azure.workers() == []
    assert {node_type for node_type, _ in ran_on(azure, tasks=9)} <= {SPOT, ON_DEMAND}
    wait_for("the idle machines to go", lambda: not azure.workers(), DEADLINE_S)


def test_where_spot_is_refused_the_task_gets_an_on_demand_machine(azure: Azure):
    azure.arm.refusals[f"sunspot-test-{SPOT}"] = [
        (202, "AllocationFailed", "no spot capacity") for _ in range(100)
    ]
    ((node_type, name),) = ran_on(azure)
    assert node_type == ON_DEMAND
    assert name.startswith(f"sunspot-test-{ON_DEMAND}_")
    assert azure.arm.sets[f"sunspot-test-{SPOT}"].capacity == 0
    assert azure.arm.vms[HEAD].state == "Succeeded"


def edit(azure: Azure, cluster: dict[str, Any]) -> None:
    """Gives the head the settings of another stack file, as an `up` does."""
    stack = Stack.parse({**STACK, "sunspot:cluster": cluster}, name="test")
    plan = azure_plan.plan(stack, Path.cwd())
    live_file(plan, azure.arm)
    config = azure.folder / "config.yaml"
    wanted = {HEAD_TYPE, *(pool.node_type for pool in plan.pools)}
    wait_for(
        "Ray's file to have the groups",
        lambda: wanted <= json.loads(config.read_text())["available_node_types"].keys(),
        DEADLINE_S,
    )


def test_a_new_group_works_on_the_same_head_and_a_removed_one_goes(azure: Azure):
    azure.arm.refusals.clear()
    waiting = azure.run_job(1)
    old = STACK["sunspot:cluster"]
    group = {**old["scaling_groups"][0], "name": MORE, "market": "spot"}
    try:
        # The spot group is still cooling down, and its twin is about to go.
        edit(azure, {**old, "scaling_groups": [group]})
        output, _ = waiting.communicate(timeout=DEADLINE_S)
    finally:
        waiting.kill()
    assert output.count("ran on ") == 1, output
    ((node_type, name),) = ran_on(azure)
    assert (node_type, name.rpartition("_")[0]) == (MORE, f"sunspot-test-{MORE}")
    wait_for(
        "the removed groups to be empty",
        lambda: all(one.startswith(f"sunspot-test-{MORE}") for one in azure.workers()),
        DEADLINE_S,
    )
    wait_for("the idle machine to go", lambda: not azure.workers(), DEADLINE_S)


def sets(node_type: str) -> str:
    return f"{SCALE_SETS}/sunspot-test-{node_type}"
