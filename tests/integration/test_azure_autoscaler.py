"""Ray's own autoscaler on scale sets: a real head, a stand-in for ARM whose VMs are real workers.

Azure's part is acted: a VM "boots" by starting `ray start` on this machine, under the VM's name.
The head's autoscaler file is the one that its user data carries.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from azure_model.arm import GROUP, HEAD, SCALE_SETS, Arm, Vm, serving
from azure_model.resource_ids import SUBSCRIPTION
from sunspot_command import clean_environment
from waiting import wait_for

from cloud_init import AzureFacts
from cloud_init.nodes import node_values
from sunspot.node.free_ports import free_port
from sunspot.stack import Stack
from sunspot.targets.azure import plan as azure_plan

# Two real Ray nodes and the autoscaler's ticks, on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)
DEADLINE_S = 240.0

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"
SPOT, ON_DEMAND = "spotty", "spotty-on-demand"
STACK = {
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
FACTS = AzureFacts(
    built_image=None,
    registry=None,
    head_address="10.0.0.4",
    vault_url="https://v.vault.azure.net/",
    token_secret="ray-token",
    storage_url="abfss://r@s.dfs.core.windows.net/",
    subscription_id=SUBSCRIPTION,
    resource_group=GROUP,
    identity_client_id="client",
)
# Waits for a CPU, which the head has none of, and says what it ran on.
JOB = """
import os, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
@ray.remote(num_cpus=1)
def where():
    return os.environ["RAY_NODE_TYPE_NAME"], os.environ["RAY_CLOUD_INSTANCE_ID"]
print("ran on", *ray.get(where.remote()))
"""


@dataclass
class Azure:
    """The head's cluster, and the processes that stand for its machines, by their names."""

    arm: Arm
    folder: Path
    address: str
    token: Path
    machines: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def environment(self, name: str, node_type: str) -> dict[str, str]:
        return clean_environment(self.folder, self.folder) | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_ADDRESS": self.address,
            "RAY_CLOUD_INSTANCE_ID": name,
            "RAY_NODE_TYPE_NAME": node_type,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "RAY_enable_autoscaler_v2": "1",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "AUTOSCALER_METRIC_PORT": "0",
            "DASHBOARD_METRIC_PORT": "0",
        }

    def start(self, name: str, node_type: str, *flags: str) -> None:
        environment = self.environment(name, node_type)
        if "--head" in flags:
            del environment["RAY_ADDRESS"]
        with (self.folder / f"{name}.log").open("wb") as log, self.lock:
            self.machines[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
                    f"--node-name={name}",
                    f"--dashboard-agent-listen-port={free_port(set())}",
                    "--min-worker-port=0",
                    "--max-worker-port=0",
                    "--object-store-memory=100000000",
                    f"--labels=ray.io/node-group={node_type}",
                    *flags,
                ],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def boot(self, vm: Vm) -> None:
        node_type = ON_DEMAND if vm.name.rpartition("_")[0].endswith(ON_DEMAND) else SPOT
        self.start(vm.name, node_type, f"--address={self.address}", "--num-cpus=2")

    def delete(self, name: str) -> None:
        with self.lock:
            process = self.machines.pop(name, None)
        if process is not None:
            end(process)

    def run_job(self) -> subprocess.Popen[str]:
        environment = self.environment("driver", "driver")
        return subprocess.Popen(
            [sys.executable, "-c", JOB],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def workers(self) -> list[str]:
        return [name for name in self.arm.vms if name != HEAD]

    def logs(self) -> str:
        logs = [*self.folder.glob("*.log"), *self.folder.glob("r/session_latest/logs/monitor.*")]
        return "\n".join(f"== {log.name}\n{log.read_text()[-6000:]}" for log in logs)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a node: `ray start --block` stops its own children; what is left is killed."""
    tree = []
    with contextlib.suppress(psutil.Error):
        tree = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in tree:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(tree, timeout=30)


def autoscaler_file(arm: Arm, path: Path) -> None:
    """The file that an Azure head gets, for a head on this machine."""
    plan = azure_plan.plan(Stack.parse(STACK, name="test"), Path.cwd())
    text = node_values(plan, None, FACTS).autoscaler_config
    assert text is not None
    config = json.loads(text)
    assert config["provider"]["head"] == HEAD
    config["provider"] |= {"arm_url": arm.url, "imds_url": arm.url, "config_file": str(path)}
    config["idle_timeout_minutes"] = 0.1
    for node_type in config["available_node_types"].values():
        node_type["resources"] = {"CPU": 2}  # of this machine's memory nobody knows how much
    config["available_node_types"]["head"]["resources"] = {}
    path.write_text(json.dumps(config))
    arm.add(*config["provider"]["scale_sets"].values())


@pytest.fixture(scope="module")
def azure() -> Iterator[Azure]:
    # A short path: Ray puts sockets below it, whose paths may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sunspot-arm-", dir="/tmp"))
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    with serving() as arm:
        host, port = "127.0.0.1", free_port(set())
        made = Azure(arm, folder, f"{host}:{port}", token)
        arm.on_boot, arm.on_delete = made.boot, made.delete
        config = folder / "config.yaml"
        autoscaler_file(arm, config)
        try:
            made.start(
                HEAD,
                "head",
                "--head",
                f"--node-ip-address={host}",
                f"--port={port}",
                f"--ray-client-server-port={free_port({port})}",  # 10001 may be taken
                "--num-cpus=0",
                "--include-dashboard=false",
                f"--temp-dir={folder / 'r'}",
                f"--autoscaling-config={config}",
            )
            yield made
        finally:
            for name in list(made.machines):
                made.delete(name)
            shutil.rmtree(folder, ignore_errors=True)


def ran_on(azure: Azure) -> tuple[str, str]:
    """Runs the job; the node type and the name of the machine that it ran on."""
    process = azure.run_job()
    try:
        output, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the job did not end; {azure.arm.vms}\n{azure.logs()}")
    finally:
        if process.poll() is None:
            os.kill(process.pid, 9)
            process.wait()
    lines = [line for line in output.splitlines() if line.startswith("ran on ")]
    assert lines, f"{output}\n{azure.logs()}"
    _, _, node_type, name = lines[0].split()
    return node_type, name


def test_a_waiting_task_gets_a_spot_machine_which_is_given_back_when_it_is_idle(azure: Azure):
    wait_for("the head", lambda: (azure.folder / "r").exists(), DEADLINE_S)
    assert azure.workers() == []
    node_type, name = ran_on(azure)
    assert node_type == SPOT
    assert name.startswith(f"sunspot-test-{SPOT}_")
    wait_for("the idle machine to go", lambda: not azure.workers(), DEADLINE_S)
    assert {s.name: s.capacity for s in azure.arm.sets.values()} == {
        f"sunspot-test-{SPOT}": 0,
        f"sunspot-test-{ON_DEMAND}": 0,
    }
    assert ("POST", f"{sets(SPOT)}/delete") in azure.arm.requests
    assert set(azure.machines) == {HEAD}


def test_where_spot_is_refused_the_task_gets_an_on_demand_machine(azure: Azure):
    azure.arm.refusals[f"sunspot-test-{SPOT}"] = [
        (202, "AllocationFailed", "no spot capacity") for _ in range(100)
    ]
    node_type, name = ran_on(azure)
    assert node_type == ON_DEMAND
    assert name.startswith(f"sunspot-test-{ON_DEMAND}_")
    assert azure.arm.sets[f"sunspot-test-{SPOT}"].capacity == 0
    assert azure.arm.vms[HEAD].state == "Succeeded"


def sets(node_type: str) -> str:
    return f"{SCALE_SETS}/sunspot-test-{node_type}"
