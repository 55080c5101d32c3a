"""orphan.sh at work on a worker's machine made of folders, beside a stand-in for ARM."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import node_values
import sandbox
from azure_model import arm as azure_arm
from azure_model.arm import Arm

from cloud_init import render

LIMIT_S, PAUSE_S = 3.0, 0.05
# As a VM does, the script ends with its machine; a pause is short.
SLEEP = f"if [ -e /run/gone ]; then kill $PPID; fi; /usr/bin/sleep {PAUSE_S}"


@dataclass
class Orphan:
    """A worker's machine: a name in a scale set, and orphan.sh, which begins with `start`."""

    machine: sandbox.Machine
    name: str
    thread: threading.Thread = field(default_factory=threading.Thread)
    ended: list[subprocess.CompletedProcess[str]] = field(default_factory=list)

    def start(self, *, agent_port: int) -> None:
        """Begins; `agent_port` is where Ray's agent of this node answers."""
        self.machine.overrides["SUNSPOT_AGENT_PORT"] = str(agent_port)

        def run() -> None:
            self.ended.append(self.machine.script("orphan.sh", timeout_s=900))

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def vanish(self) -> None:
        """The machine is gone, and its script with it."""
        self.machine.path("/run/gone").touch()

    def join(self) -> None:
        """Ends it, wherever it is."""
        self.vanish()
        if self.thread.ident is not None:
            self.thread.join()

    @property
    def has_stopped_ray(self) -> bool:
        return "systemctl stop sunspot-ray.service" in self.machine.calls


def orphan(root: Path, arm: Arm, name: str, *, head_port: int, limit_s: float = LIMIT_S) -> Orphan:
    """The machine of a worker whose head is to listen at `head_port` of this machine."""
    scale_set = name.rpartition("_")[0]
    facts = replace(node_values.FACTS, resource_group=azure_arm.GROUP)
    values = replace(
        node_values.CPU_WORKER, facts=facts, scale_set=scale_set, orphan_after_s=30 * 60
    )
    machine = sandbox.Machine(root, render(values))
    machine.stub("sleep", SLEEP)
    machine.stub("systemctl")
    machine.overrides |= {
        "SUNSPOT_IMDS_URL": arm.url,
        "SUNSPOT_ARM_URL": arm.url,
        "SUNSPOT_SUBSCRIPTION_ID": azure_arm.SUBSCRIPTION,
        "SUNSPOT_HEAD_ADDRESS": "127.0.0.1",
        "SUNSPOT_HEAD_PORT": str(head_port),
        "SUNSPOT_ORPHAN_SECONDS": f"{limit_s:g}",
        "RAY_CLOUD_INSTANCE_ID": name,
    }
    return Orphan(machine, name)
