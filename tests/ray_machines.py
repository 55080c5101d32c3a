"""The machines of a stand-in for Azure as real Ray nodes on this machine.

A VM "boots" by starting `ray start`, under the VM's name.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import node_values
import psutil
from azure_model.arm import GROUP, Arm
from azure_model.resource_ids import SUBSCRIPTION
from sunspot_command import clean_environment

from cloud_init.live import live_settings
from sunspot.node.azure.live import decoded, encoded, parse
from sunspot.node.free_ports import free_port
from sunspot.targets.azure.plan import AzurePlan

FACTS = replace(node_values.FACTS, subscription_id=SUBSCRIPTION, resource_group=GROUP)


# Again if it fails, as systemd does it (sunspot-ray.service, Restart=on-failure).
UNIT = ("sh", "-c", 'until "$@"; do sleep 1; done', "unit")


@dataclass
class RayMachines:
    """One cluster's processes, by the names of their machines.

    Attributes:
        arm: the stand-in whose machines they are.
        folder: where their logs are; its path must be short.
        address: HOST:PORT of the GCS.
        token: the file of the cluster's token.
        variables: what every node has in its environment besides.
        agent_ports: where Ray's agents of the nodes listen, by the machines' names.
    """

    arm: Arm
    folder: Path
    address: str
    token: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    machines: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    agent_ports: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def environment(self, name: str, node_type: str) -> dict[str, str]:
        """The environment of a node, or of a driver."""
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
            **self.variables,
        }

    def start_head(self, name: str, config: Path, *flags: str) -> None:
        """Starts the head, whose autoscaler reads `config`."""
        host, _, port = self.address.partition(":")
        self._start(
            name,
            "head",
            "--head",
            f"--node-ip-address={host}",
            f"--port={port}",
            f"--ray-client-server-port={free_port({int(port)})}",  # 10001 may be taken
            f"--temp-dir={self.folder / 'r'}",
            f"--autoscaling-config={config}",
            *flags,
        )

    def start_worker(self, name: str, node_type: str) -> None:
        """Starts a worker with two CPUs."""
        self._start(name, node_type, f"--address={self.address}", "--num-cpus=2")

    def delete(self, name: str) -> None:
        """Ends a node, if there is one."""
        with self.lock:
            process = self.machines.pop(name, None)
        if process is not None:
            end(process)

    def logs(self) -> str:
        """The ends of all logs."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("r/session_latest/logs/monitor.*")]
        return "\n".join(f"== {log.name}\n{log.read_text()[-6000:]}" for log in logs)

    def _start(self, name: str, node_type: str, *flags: str) -> None:
        environment = self.environment(name, node_type)
        if "--head" in flags:
            del environment["RAY_ADDRESS"]
        self.agent_ports[name] = free_port(set())
        with (self.folder / f"{name}.log").open("ab") as log, self.lock:
            self.machines[name] = subprocess.Popen(
                [
                    *(*UNIT, sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
                    f"--node-name={name}",
                    f"--dashboard-agent-listen-port={self.agent_ports[name]}",
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


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a node: `ray start --block` stops its own children; what is left is killed."""
    started: list[psutil.Process] = []
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        unit = psutil.Process(process.pid)
        started, tree = unit.children(), unit.children(recursive=True)
    process.kill()  # first, so that it starts nothing again
    process.wait()
    for child in started:
        with contextlib.suppress(psutil.Error):
            child.terminate()
    psutil.wait_procs(started, timeout=60)
    for child in tree:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(tree, timeout=30)


def autoscaler_file(plan: AzurePlan, arm: Arm, path: Path, **given: Any) -> None:
    """The file that an Azure head gets, for a head on this machine; adds its sets to `arm`."""
    path.write_text(json.dumps(live_file(plan, arm, config_file=str(path), **given)))


def live_file(plan: AzurePlan, arm: Arm, **given: Any) -> dict[str, Any]:
    """Gives the head's VM the settings of this plan, for a head on this machine; returns them.

    Args:
        plan: the plan; its sets are added to `arm` if they are not there.
        arm: the stand-in, which has the VM's user data.
        given: what differs in the config's `provider`: `record`, a folder, and `gcs` for a head
            that keeps one.
    """
    found = parse(decoded(live_settings(plan, FACTS)))
    config = dict(found.autoscaler or {})
    if "record" not in given:  # the head's record is on its state disk
        del config["provider"]["record"], config["provider"]["joins"]
    config["provider"] |= {"arm_url": arm.url, "imds_url": arm.url, **given}
    config["idle_timeout_minutes"] = 0.05
    for node_type in config["available_node_types"].values():
        node_type["resources"] = {"CPU": 2}  # of this machine's memory nobody knows how much
    config["available_node_types"]["head"]["resources"] = {}
    arm.add(*(config["provider"]["scale_sets"].values() - arm.sets.keys()))
    arm.imds.user_data = replace(found, autoscaler=config).text()
    arm.vms[plan.head_name].user_data = encoded(arm.imds.user_data)
    return config
