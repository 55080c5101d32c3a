"""A first contact without Ray: its head's jobs are processes of the probe, or scripted."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azure_model.arm import GROUP, Arm, Vm
from azure_model.http_service import Reply, Request
from azure_model.pulumi_stack import FakeStack
from azure_model.pulumi_state import account, group, machine
from azure_model.resource_ids import SUBSCRIPTION
from azure_model.subscription import Subscription
from azure_stacks import run
from job_api import Api
from ssh_server import SshServer
from waiting import wait_for

from sunspot.ray.entrypoint import shown
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.first_contact.on_site import (
    DOWN,
    ETAG,
    EVICTION,
    GROWTH,
    IDLENESS,
    POLL,
    PULL,
    RESTART,
    RESULTS_HEAD,
    RESULTS_WORKER,
    UP,
)
from sunspot.targets.azure.first_contact.probe import MARK
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget

ROOT = Path(__file__).parents[4]
CLUSTER = "sunspot-first-contact"
SET, HEAD = f"{CLUSTER}-spot", f"{CLUSTER}-head"
STORAGE_URL = "abfss://results@sunspot12ab34cd.dfs.core.windows.net/"
REGISTRY = "sunspot98fe76dc.azurecr.io"

ALL = [
    UP, PULL, ETAG, POLL, RESULTS_HEAD, GROWTH, RESULTS_WORKER, IDLENESS, EVICTION, RESTART, DOWN,
]  # fmt: skip

Said = dict[str, Any]


def outputs(dashboard: int, sshd: SshServer) -> dict[str, Any]:
    """What the program of the small stack puts out."""
    return {
        "head_private_ip": "10.60.0.4",
        "job_address": f"http://127.0.0.1:{dashboard}",
        "resource_group": GROUP,
        "ssh_command": sshd.command,
    }


def target_of(
    subscription: Subscription, fake: FakeStack, left: list[str], folder: Path
) -> AzureTarget:
    """The azure target, with its records in a folder."""
    fake.made = (group(CLUSTER), machine(cluster=CLUSTER), account(protect=False))
    return AzureTarget(
        Records(folder / "state" / "azure"),
        engine=lambda *_, **__: fake,  # type: ignore[arg-type]
        still_there=lambda _: left,
        endpoints=Endpoints(login=subscription.url, management=subscription.url),
    )


OK: Said = {"outcome": "ok", "detail": "seen"}


@dataclass
class Run:
    """A cluster of a first contact that can be made, and what a test changes of it.

    Attributes:
        arm: the scale set and the machines.
        subscription: what else the user's login sees of Azure.
        fake: Pulumi's side.
        api: the head's job API.
        target: the azure target.
        left: what Azure has after it was taken down.
        project: the project's folder; report: the file of the report.
        config: the autoscaler's file on the head.
        storage: the answers of Storage to the next requests, right ones once there are none.
    """

    arm: Arm
    subscription: Subscription
    fake: FakeStack
    api: Api
    target: AzureTarget
    left: list[str]
    project: Path
    report: Path
    config: Path
    storage: list[Reply] = field(default_factory=list)
    evicted: threading.Event = field(default_factory=threading.Event)

    @property
    def stack_file(self) -> Path:
        return self.project / "Pulumi.first-contact.yaml"

    def __call__(self, *arguments: str, code: int = 0, **more: Any) -> Any:
        """The command, with the stack "x"; it must end with this code."""
        words = ("doctor", "--first-contact", "x", "--report", str(self.report), *arguments)
        result = run(*words, **more)
        assert result.exit_code == code, result.output
        return result

    def outcomes(self) -> dict[str, str]:
        """Each step's outcome, in the report."""
        return {one["step"]: one["outcome"] for one in self.document()["steps"]}

    def details(self) -> dict[str, str]:
        return {one["step"]: one["detail"] for one in self.document()["steps"]}

    def document(self) -> dict[str, Any]:
        return json.loads(self.report.read_text())

    def write_config(self, storage_url: str) -> None:
        """The autoscaler's file, as the head has it."""
        provider = {
            "subscription_id": SUBSCRIPTION,
            "resource_group": GROUP,
            "identity_client_id": "client",
            "scale_sets": {"spot": SET},
            "arm_url": self.arm.url,
            "imds_url": self.arm.url,
            "storage_url": storage_url,
        }
        self.config.write_text(json.dumps({"provider": provider, "idle_timeout_minutes": 5}))

    def answer_storage(self, request: Request) -> Reply:
        usual = {"PUT": 201, "DELETE": 200}
        return self.storage.pop(0) if self.storage else Reply(usual[request.method])

    # The head's jobs

    def job(self, entrypoint: str, say: Callable[[str], None]) -> None:
        """Runs the probe as it was sent; what needs Ray is scripted."""
        words = shlex.split(shown(entrypoint))
        scripted = {"growth": self.growth, "eviction": self.eviction}.get(words[2])
        if scripted is not None:
            for answer in scripted():
                say(MARK + json.dumps(answer))
            return
        folder = self.project.parent / f"job-{len(self.api.jobs)}"
        (package,) = self.api.packages.values()
        zipfile.ZipFile(io.BytesIO(package)).extractall(folder)
        own = {"PYTHONPATH": str(ROOT), "SUNSPOT_STORAGE": STORAGE_URL}
        own |= {"AZURE_CLIENT_ID": "client"}
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=folder,
            env=os.environ | own,
            capture_output=True,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            say(line)
        if done.returncode:
            raise RuntimeError(done.stderr[-300:])

    def add_worker(self) -> Vm:
        vm = Vm(f"{SET}_{next(self.arm.serial):08x}", SET, "Succeeded")
        self.arm.vms[vm.name] = vm
        self.arm.sets[SET].capacity += 1
        return vm

    def growth(self) -> Iterator[Said]:
        threading.Timer(0.2, self.arm.evict, [self.add_worker()]).start()
        yield {"growth": OK, "results": OK}

    def eviction(self) -> Iterator[Said]:
        yield {"worker": self.add_worker().name}
        wait_for("the eviction", self.evicted.is_set)
        yield {"eviction": OK}

    def evict(self, vm: Vm) -> None:
        self.arm.evict(vm)
        self.evicted.set()

    def restart(self, _: Vm) -> None:
        """Ray on the head is another process then, and the same cluster."""
        self.api.nodes[0]["node_id"] = "second"


def is_gone(contact: Run) -> bool:
    """Whether all of it was taken away, and nothing is known of it any more."""
    calls = contact.fake.calls
    assert calls.index("destroy True") < calls.index("remove")
    return not contact.stack_file.exists() and contact.target.names() == []


def interrupt(*_: Any) -> None:
    """As a person does."""
    raise KeyboardInterrupt
