"""A whole first contact with a real Ray: its head, its autoscaler, workers and their watchers.

Acted are Azure's API, whose machines are processes here, the notices of evictions, and Pulumi.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from azure_model import http_service
from azure_model import imds as imds_model
from azure_model.arm import Vm
from azure_model.arm import serving as serving_arm
from azure_model.http_service import Reply
from azure_model.imds import FakeAzure
from azure_model.pulumi_stack import FakeStack
from azure_model.subscription import sku
from azure_stacks import run, write
from contact_runs import HEAD, REGISTRY, STORAGE_URL, outputs, target_of
from job_api import TOKEN
from ray_machines import RayMachines, autoscaler_file, end
from ssh_server import listens, needs_sshd
from waiting import wait_for

from sunspot import stack as stacks
from sunspot.node.free_ports import free_port
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure import target as azure
from sunspot.targets.azure.first_contact import head_jobs, on_site
from sunspot.targets.azure.first_contact.on_site import EVICTION, GROWTH, RESTART

# Two real Ray nodes, twice, and a restart, on a machine that may be busy.
pytestmark = [needs_sshd, pytest.mark.integration, pytest.mark.timeout(1500)]
NOTICE_S = 30.0


@dataclass
class Machines(RayMachines):
    """Head and workers; each worker has a metadata service of its own, and a watcher."""

    head_flags: tuple[str, ...] = ()
    open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    services: dict[str, FakeAzure] = field(default_factory=dict)
    watchers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    def boot_head(self) -> None:
        self.start_head(HEAD, self.config, *self.head_flags)

    def boot(self, vm: Vm) -> None:
        self.start_worker(vm.name, "spot")
        service = FakeAzure(name=vm.name, client_id=None)
        self.services[vm.name] = self.open.enter_context(imds_model.serving(service))
        words = (f"--name={vm.name}", "--group=spot", f"--imds={service.url}", "--margin=3")
        with (self.folder / f"{vm.name}-watcher.log").open("wb") as log:
            self.watchers[vm.name] = subprocess.Popen(
                [sys.executable, "-m", "sunspot.node.azure.eviction", *words],
                env=self.environment(vm.name, "spot"),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def delete(self, name: str) -> None:
        super().delete(name)
        watcher = self.watchers.pop(name, None)
        if watcher is not None:
            end(watcher)

    def evict(self, vm: Vm) -> None:
        """Announces it, as Azure does, and takes the machine when it is let go or time is up."""
        service = self.services[vm.name]
        event = service.announce(notice_s=NOTICE_S)
        with contextlib.suppress(AssertionError):
            wait_for("the watcher", lambda: event in service.acknowledged, NOTICE_S)
        self.arm.evict(vm)

    def restart(self, vm: Vm) -> None:
        """As the machine's: Ray ends, and starts again with the state on its disk."""

        def again() -> None:
            self.delete(vm.name)
            self.boot_head()

        threading.Thread(target=again, daemon=True).start()

    def end_all(self) -> None:
        for name in [*self.machines]:
            self.delete(name)


class Pulumi(FakeStack):
    """Its `up` boots the head, with the file that its user data has; its `destroy` ends all."""

    dashboard: int
    machines: Machines
    storage: str

    def up(self, progress):
        stack = stacks.load("first-contact")
        plan = azure_plan.plan(stack, Path.cwd())
        autoscaler_file(plan, self.machines.arm, self.machines.config, storage_url=self.storage)
        self.machines.boot_head()
        # The tunnel wishes for the same port on this side, which is the same machine's here.
        wait_for("the head's dashboard", lambda: listens(self.dashboard), 400)
        return super().up(progress)

    def destroy(self, progress, *, delete_storage):
        self.machines.end_all()
        super().destroy(progress, delete_storage=delete_storage)


@pytest.fixture
def machines(subscription, sshd, project, tmp_path, monkeypatch) -> Iterator[Machines]:
    """All that a first contact of the stack "x" needs."""
    monkeypatch.setattr(on_site, "POLL_S", 0.5)
    write(project, "x", key=f"{sshd.key}.pub")
    sshd.stub("docker", f"echo {REGISTRY}/rayproject/ray:2.60.0-py311")
    subscription.skus.append(sku("Standard_D2s_v5"))
    # A short path: Ray puts sockets below it, whose paths may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sunspot-fc-", dir="/tmp"))
    dashboard = free_port(set())
    fake = Pulumi(outputs(dashboard, sshd))
    target = target_of(subscription, fake, [], tmp_path)
    monkeypatch.setattr(azure, "create", lambda: target)
    monkeypatch.setattr(head_jobs, "CONFIG", str(folder / "config.yaml"))
    answers = {"PUT": 201, "DELETE": 200}
    with (
        serving_arm() as arm,
        http_service.serving(lambda asked: Reply(answers[asked.method])) as fake.storage,
    ):
        (folder / "token").write_text(TOKEN)
        made = Machines(
            arm,
            folder,
            f"127.0.0.1:{free_port({dashboard})}",
            folder / "token",
            variables={
                "AZURE_CLIENT_ID": "client",
                "SUNSPOT_STORAGE": STORAGE_URL,
                "RAY_gcs_storage": "rocksdb",
                "RAY_gcs_storage_path": str(folder / "gcs"),
                "RAY_enable_infeasible_task_early_exit": "true",
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            },
            head_flags=(
                "--num-cpus=2",
                f"--dashboard-port={dashboard}",
                "--dashboard-host=127.0.0.1",
            ),
        )
        (folder / "gcs").mkdir()
        arm.vms[HEAD] = Vm(HEAD, None, "Succeeded")
        arm.on_boot, arm.on_delete = made.boot, made.delete
        arm.on_eviction, arm.on_restart = made.evict, made.restart
        subscription.machines_of, fake.machines, fake.dashboard = arm, made, dashboard
        try:
            yield made
        finally:
            made.end_all()
            made.open.close()
            for name in target.names():
                target.records.tunnel(name).close()
            shutil.rmtree(folder, ignore_errors=True)


def test_a_first_contact_from_its_first_step_to_its_last(machines, tmp_path):
    report = tmp_path / "report.json"
    result = run("doctor", "--first-contact", "x", "--yes", "--report", str(report))
    text = report.read_text() if report.exists() else ""
    assert result.exit_code == 0, f"{result.output}\n{text}\n{machines.logs()}"
    assert '"failed"' not in text
    assert '"not tried"' not in text
    for step in (GROWTH, EVICTION, RESTART):
        assert step in text
    assert "of notice" in text  # what the worker's own watcher wrote down
    assert machines.machines == {}
    assert {one.capacity for one in machines.arm.sets.values()} == {0}
