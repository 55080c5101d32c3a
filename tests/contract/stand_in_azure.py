"""Azure, as far as a small cluster needs it: resource groups are folders, a head is this machine.

A head answers SSH (a real sshd of its own) and boots a real cluster of Ray, its workers included,
with `sunspot up --target local`. As on a VM, its token can be read some time after SSH answers, and
its job API answers some time after that. `python -m stand_in_azure ARGUMENTS` is `az ARGUMENTS`.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import psutil
from azure_model.resource_ids import SUBSCRIPTION, TENANT, group_id, resource_id
from ssh_server import PRIVILEGE_SEPARATION, SSHD, listens, prepared
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.node.local.folder import ClusterFolder
from sunspot.node.processes import Process, is_alive
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

CLOUD = "CONTRACT_CLOUD"
"""The environment variable with the folder that everything is in."""

PRIVATE_ADDRESS = "10.60.0.4"


@dataclass(frozen=True, kw_only=True)
class Head:
    """A head as it was made. `machine` differs from that of every other VM."""

    machine: str
    ssh_command: str
    dashboard: int
    processes: list[Process]


@dataclass(frozen=True)
class Group:
    """The resource group of a stack. It exists while its folder does."""

    stack: str

    @property
    def name(self) -> str:
        return f"sunspot-{self.stack}"

    @property
    def folder(self) -> Path:
        return Path(os.environ[CLOUD]) / self.name

    @property
    def cluster(self) -> ClusterFolder:
        """Where the head keeps its cluster."""
        return ClusterFolder(self.folder / "state" / "clusters" / self.stack)

    def exists(self) -> bool:
        return self.folder.exists()

    def head(self) -> Head | None:
        """The head, if it was made."""
        try:
            fields = json.loads((self.folder / "head.json").read_text())
        except FileNotFoundError:
            return None
        return Head(**fields | {"processes": [Process(**one) for one in fields["processes"]]})

    def ids(self) -> list[str]:
        """What is in the group."""
        inputs = {"resourceGroupName": self.name, "vmName": f"{self.name}-head"}
        return [resource_id("VirtualMachine", inputs)] if self.head() else []

    def make_head(self, project: Path, key: Path) -> None:
        """Makes the head, which takes the key, and begins to boot it."""
        (self.folder / "sshd").mkdir()
        server = prepared(self.folder / "sshd", takes=key)
        server.token.symlink_to(self.cluster.token)
        server.stub("journalctl", f"exec cat {shlex.quote(str(self.cluster.log('head')))}")
        dashboard = free_port(set())
        if os.getuid() == 0:
            PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        sshd = self._start([str(SSHD), "-D", "-e", "-f", str(server.folder / "sshd_config")])
        up = [sys.executable, "-m", "sunspot.cli", "up", self.stack]
        up += ["--target", "local", "--dashboard-port", str(dashboard)]
        # Again if it fails, as systemd does it (sunspot-ray.service, Restart=on-failure).
        boot = self._start(["sh", "-c", 'until "$@"; do sleep 1; done', "boot", *up], project)
        wait_for("sshd", lambda: listens(server.port))
        head = Head(
            machine=str(uuid.uuid4()),
            ssh_command=server.command,
            dashboard=dashboard,
            processes=[sshd, boot],
        )
        (self.folder / "head.json").write_text(json.dumps(asdict(head)))

    def delete(self) -> None:
        """Deletes the group and all that is in it. What runs on the head is cut off."""
        head = self.head()
        for recorded in [] if head is None else head.processes:
            with suppress(psutil.NoSuchProcess):  # the boot ends by itself
                if recorded.is_running():
                    _kill(psutil.Process(recorded.pid))
        self.cluster.stop(grace_s=0)
        shutil.rmtree(self.cluster.temp_dir, ignore_errors=True)
        shutil.rmtree(self.folder)

    def _start(self, command: list[str], folder: Path | None = None) -> Process:
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own |= {STATE_DIRECTORY_VARIABLE: str(self.folder / "state")}
        with (self.folder / "console").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=own, stdout=log, stderr=log, start_new_session=True
            )
        return Process.of(process.pid)


def _kill(process: psutil.Process) -> None:
    """Kills a process and those that it started, which would outlive it."""
    family = [process, *process.children(recursive=True)]
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    wait_for("their end", lambda: not any(map(is_alive, family)))


def az(*arguments: str) -> str:
    """What `az ARGUMENTS --output json` prints. Exits as it does where the group is gone."""
    if arguments[:2] == ("account", "get-access-token"):
        # With a token `down` would ask Azure itself; it destroys without scaling to zero first.
        return json.dumps({"subscription": SUBSCRIPTION, "tenant": TENANT})
    given = dict(pairwise(arguments))
    name = given.get("--resource-group") or given["--name"]
    group = Group(name.removeprefix("sunspot-"))
    if arguments[:2] == ("group", "exists"):
        return json.dumps(group.exists())
    if not group.exists():
        sys.exit(f"(ResourceGroupNotFound) Resource group '{name}' could not be found.")
    if arguments[:2] == ("resource", "list"):
        return json.dumps([{"id": one} for one in group.ids()])
    assert arguments[:3] == ("network", "nic", "list"), arguments
    return json.dumps([_nic(group, machine) for machine in group.ids()])


def _nic(group: Group, machine: str) -> dict[str, object]:
    return {
        "id": f"{group_id(group.name)}/providers/Microsoft.Network/networkInterfaces/head",
        "virtualMachine": {"id": machine},
        "ipConfigurations": [{"primary": True, "privateIPAddress": PRIVATE_ADDRESS}],
    }


if __name__ == "__main__":
    print(az(*sys.argv[1:]))
