"""`sunspot` over the real Pulumi engine, the stand-in for Azure, a real sshd and real ssh.

The head is this machine: a `ssh` that goes first on the PATH leads its address to our sshd, and
its dashboard's port to a job API on the loopback.
"""

import contextlib
import getpass
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from azure_model.answers import PUBLIC_ADDRESS
from azure_model.provider import IGNORES_CANCEL
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from ending import kill, name_of
from job_api import TOKEN, serving
from leftovers import paths_below
from machines.pulumi_project import DEADLINE_S, Project
from ssh_server import needs_sshd, prepared, running
from stack_settings import STACK, settings
from waiting import wait_for

# Each runs the CLI several times: a minute on an idle machine, several on a busy one.
pytestmark = [needs_sshd, pytest.mark.timeout(900)]

FIXED = "fixed"
RESTS_S = 3.0
# What `az` says and does.
GROUP_IS_GONE = "echo '(ResourceGroupNotFound) gone' >&2; exit 3"


@dataclass(frozen=True)
class Head:
    """What answers at the head's address, and the tools of the user who asks it."""

    tools: Path
    api: SimpleNamespace

    def write_az(self, script: str) -> None:
        """An Azure CLI with a login; the script answers everything else."""
        token = shlex.quote(json.dumps({"subscription": SUBSCRIPTION, "tenant": TENANT}))
        login = f'[ "$1 $2" != "account get-access-token" ] || {{ echo {token}; exit; }}'
        _write_tool(self.tools / "az", f"{login}\n{script}")


@pytest.fixture
def head(tmp_path):
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = prepared(folder)
    server.token.write_text(TOKEN)
    tools = tmp_path / "tools"
    tools.mkdir()
    with running(server), serving() as (api, port):
        api.nodes = [_member("head", is_head_node=True), *(_member(f"vm_{i}") for i in range(2))]
        _write_tool(tools / "ssh", _redirecting(server, port))
        made = Head(tools, SimpleNamespace(known=api, port=port))
        made.write_az(GROUP_IS_GONE)
        yield made


def _redirecting(server, api_port):
    where = f"{getpass.getuser()}@127.0.0.1"
    real = shlex.quote(shutil.which("ssh") or "")
    return f"""for word; do
  shift
  case $word in
    *@{PUBLIC_ADDRESS}) word={where} ;;
    *:127.0.0.1:8265) word=${{word%:8265}}:{api_port} ;;
  esac
  set -- "$@" "$word"
done
exec {real} -p {server.port} -i {shlex.quote(str(server.key))} "$@"
"""


def _write_tool(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _member(name, **fields):
    return {
        "node_name": name,
        "state": "ALIVE",
        "state_message": "",
        "is_head_node": False,
        "resources_total": {"CPU": 4.0},
        "labels": {"ray.io/node-group": FIXED, "ray.io/market-type": "spot"},
        **fields,
    }


def sunspot(project: Project, head: Head, *arguments: str, code: int = 0) -> str:
    """Runs the command in the project as its user would; what it printed, notes and errors too."""
    return ending(started(project, head, *arguments), code)


def started(project: Project, head: Head, *arguments: str) -> subprocess.Popen[str]:
    """The command, as it runs."""
    environment = project.environment()
    environment["PATH"] = os.pathsep.join([str(head.tools), environment["PATH"]])
    environment["SUNSPOT_STATE_DIR"] = str(project.folder / "user")
    environment["COLUMNS"] = "200"
    return subprocess.Popen(
        [sys.executable, "-m", "sunspot.cli", *arguments],
        cwd=project.program,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ending(command: subprocess.Popen[str], code: int = 0) -> str:
    """What the command printed, to its end, which must be with this code."""
    try:
        out, err = command.communicate(timeout=DEADLINE_S)
    finally:
        command.kill()
    assert command.returncode == code, f"exit {command.returncode}:\n{out}{err}"
    return out + err


def test_up_status_submit_ssh_and_a_down_that_keeps_protected_results(fresh, head):
    fresh.write_stack(STACK, {**settings(), "sunspot:storage": {"protect": True}})
    printed = sunspot(fresh, head, "up", STACK)
    assert "creating VirtualMachine sunspot-x-head-vm" in printed
    assert "created VirtualMachine sunspot-x-head-vm" in printed
    assert "every node is a member" in printed
    assert "x is up (azure)" in printed
    assert "storage_url" in printed
    assert TOKEN not in printed

    assert "vm_0" in sunspot(fresh, head, "status")
    assert sunspot(fresh, head, "ssh", "--", "echo it is here").startswith("it is here")
    (fresh.folder / "job").mkdir()
    folder = str(fresh.folder / "job")
    job = sunspot(fresh, head, "submit", "--working-dir", folder, "--", "python", "x.py")
    assert "done" in job
    # The engine sees nothing to do where `sunspot up` has been.
    plan = fresh.pulumi("preview", "-s", STACK, "--expect-no-changes")
    assert "unchanged" in plan

    kept = [one for one in fresh.state(STACK).values() if one["type"].endswith("StorageAccount")]
    head.write_az(f"echo {shlex.quote(json.dumps([{'id': kept[0]['id']}]))}")
    printed = sunspot(fresh, head, "down", STACK)
    assert "deleted VirtualMachine sunspot-x-head-vm" in printed
    assert f"{STACK} is down" in printed
    assert f"sunspot down {STACK} --delete-storage" in printed
    left = {one["type"] for one in fresh.state(STACK).values()}
    assert "azure-native:storage:StorageAccount" in left
    assert "azure-native:compute:VirtualMachine" not in left
    assert "is not up" in sunspot(fresh, head, "status", STACK, code=1)

    head.write_az(GROUP_IS_GONE)
    assert f"{STACK} is down" in sunspot(fresh, head, "down", STACK, "--delete-storage")
    assert fresh.cloud.resources() == {}
    assert "nothing to do" in sunspot(fresh, head, "down", STACK)


def test_a_stack_that_plain_pulumi_brought_up_and_a_down_that_leaves_something(deployed, head):
    # Behind it there may be a note of what it waited for.
    status, _ = json.JSONDecoder().raw_decode(sunspot(deployed, head, "status", STACK, "--json"))
    assert status["target"] == "azure"
    assert [node["name"] for node in status["nodes"]] == ["head", "vm_0", "vm_1"]
    assert "127.0.0.1" in sunspot(deployed, head, "dashboard")
    assert "is up" in sunspot(deployed, head, "up", STACK)  # a second `up`, by the other command
    head.write_az("""echo '[{"id": "/subscriptions/s/resourceGroups/g/providers/P/disks/d"}]'""")
    assert "disks/d" in sunspot(deployed, head, "down", STACK, code=1)
    head.write_az(GROUP_IS_GONE)
    sunspot(deployed, head, "down", STACK)
    assert deployed.cloud.resources() == {}


def test_an_edit_that_replaces_the_head_is_refused_until_told_otherwise(deployed, head):
    sunspot(deployed, head, "status", STACK)  # makes the record of a stack of plain Pulumi
    edited = settings()
    edited["sunspot:cluster"]["head_node"] = {"vm_size": "Standard_D8s_v5"}
    deployed.write_stack(STACK, edited)
    before = deployed.cloud.resources()
    printed = " ".join(sunspot(deployed, head, "up", STACK, code=2).split())
    assert "would replace VirtualMachine sunspot-x-head-vm" in printed
    assert "osProfile.customData" in printed
    assert "head_node > vm_size: Standard_D4s_v5 -> Standard_D8s_v5" in printed
    assert f"sunspot up {STACK} --replace-head" in printed
    assert "the same cluster goes on" in printed
    assert deployed.cloud.resources() == before

    deployed.cloud.take_notes()
    printed = sunspot(deployed, head, "up", STACK, "--replace-head")
    assert "will replace VirtualMachine sunspot-x-head-vm" in printed
    replaced = {name for step, name in deployed.cloud.take_notes() if step == "delete"}
    assert replaced == {"sunspot-x-head-vm"}
    (disk,) = [one for one, kind in deployed.cloud.resources().items() if kind["kind"] == "Disk"]
    (vm,) = [one for one in deployed.cloud.resources().values() if one["kind"] == "VirtualMachine"]
    (attached,) = vm["inputs"]["storageProfile"]["dataDisks"]
    assert (attached["createOption"], attached["managedDisk"]["id"]) == ("Attach", disk)
    assert "x is up (azure)" in printed
    protected = {urn for urn, one in deployed.state(STACK).items() if one.get("protect")}
    assert {urn.rpartition("::")[2] for urn in protected} == {
        "sunspot-x-head-vm",
        "sunspot-x-head-state",
    }
    sunspot(deployed, head, "down", STACK)
    assert deployed.cloud.resources() == {}


def test_a_stack_file_that_is_wrong_makes_nothing(fresh, head):
    wrong = settings()
    wrong["sunspot:access"]["ssh_public_key"] = "no key"
    fresh.write_stack(STACK, wrong)
    sunspot(fresh, head, "up", STACK, code=2)
    assert fresh.cloud.resources() == {}


def test_a_size_that_the_region_does_not_have_makes_nothing(fresh, head):
    fresh.write_stack(STACK, {**settings(), "azure-native:location": "ukwest"})
    for command in ("preview", "up"):
        printed = " ".join(sunspot(fresh, head, command, STACK, code=2).split())
        assert "ukwest has no Standard_NC4as_T4_v3 (for gpu)" in printed
    assert fresh.cloud.resources() == {}


HELD = "sunspot-x-fixed-vmss"
HOLDS = ("hold", HELD)
QUOTA = (
    "Code=OperationNotAllowed Message=Operation could not be completed as it results in "
    "exceeding approved standardDSv5Family Cores quota. Additional details - Deployment Model: "
    "Resource Manager, Location: uksouth, Current Limit: 0, Current Usage: 0, Additional "
    "Required: 4, (Minimum) New Limit Required: 4."
)


def locks(project):
    return [path for path in paths_below(project.folder / "state") if "/locks/" in f"{path}/x"]


def is_recorded(project, name):
    """Whether the stack has that resource, from the engine's own file.

    `pulumi stack export` may fail in the moment that the file is written.
    """
    for path in paths_below(project.folder / "state"):
        if path.name == f"{STACK}.json":
            with contextlib.suppress(FileNotFoundError, ValueError):
                latest = json.loads(path.read_text())["checkpoint"]["latest"]
                return any(one["urn"].endswith(f"::{name}") for one in latest["resources"])
    return False


def rests(project):
    """Whether the engine has not written the stack's state for a while."""
    names = (f"{STACK}.json", f"{STACK}.json.attrs")
    files = [path for path in paths_below(project.folder / "state") if path.name in names]
    return len(files) == 2 and time.time() - max(one.stat().st_mtime for one in files) > RESTS_S


def held_up(project, head):
    """`sunspot up` in the middle of a slow creation, and the processes that it started."""
    command = started(project, head, "up", STACK)
    notes = []

    def holds():
        assert command.poll() is None, ending(command)
        notes.extend(project.cloud.take_notes())
        return HOLDS in notes

    wait_for("the slow creation", holds, DEADLINE_S, poll_s=0.1, seen=lambda: str(notes))
    below = psutil.Process(command.pid).children(recursive=True)
    assert any(name_of(process) == "pulumi" for process in below)
    return command, below


def test_an_interrupt_ends_pulumi_in_order_and_the_next_ups_go_on(fresh, head):
    fresh.cloud.hold(HELD)
    command, below = held_up(fresh, head)
    assert [path for path in locks(fresh) if path.is_file()]
    command.send_signal(signal.SIGINT)
    printed = " ".join(ending(command, code=130).split())
    assert "stopping pulumi" in printed
    assert f"is billed. Continue: sunspot up {STACK}" in printed
    _, alive = psutil.wait_procs(below, timeout=DEADLINE_S)
    assert alive == []
    assert [path for path in locks(fresh) if path.is_file()] == []
    assert fresh.state(STACK)

    fresh.cloud.hold()
    fresh.cloud.refuse({HELD: QUOTA})
    printed = " ".join(sunspot(fresh, head, "up", STACK, code=1).split())
    assert "Azure's quota 'standardDSv5Family Cores'" in printed
    assert "Ask for 4" in printed
    assert f"sunspot down {STACK}" in printed

    fresh.cloud.refuse({})
    assert "x is up (azure)" in sunspot(fresh, head, "up", STACK)


@pytest.mark.parametrize("engine_too", [False, True])
def test_down_takes_away_what_a_killed_up_left(fresh, head, engine_too):
    fresh.cloud.hold(HELD)
    command, below = held_up(fresh, head)
    # A creation that ends unseen is Azure's only: an engine that is killed forgets it.
    for other in ("sunspot-x-gpu-vmss", "sunspot-x-head-vm"):
        wait_for(other, lambda name=other: is_recorded(fresh, name), DEADLINE_S)
    # A state that was cut off as it was written is for its user to mend (errors.py).
    wait_for("the engine to write nothing", lambda: rests(fresh), DEADLINE_S)
    command.kill()
    command.communicate(timeout=DEADLINE_S)
    kill(below if engine_too else ())
    assert [path for path in locks(fresh) if path.is_file()]

    printed = sunspot(fresh, head, "down", STACK)
    assert ("releasing the stack's lock" in printed) == engine_too
    assert fresh.state(STACK) == {}
    assert fresh.cloud.resources() == {}
    assert [path for path in locks(fresh) if path.is_file()] == []
    _, alive = psutil.wait_procs(below, timeout=DEADLINE_S)
    assert alive == []


def test_a_second_interrupt_leaves_no_process_and_says_how_to_unlock(fresh, head):
    fresh.cloud.hold(HELD, IGNORES_CANCEL)
    command, below = held_up(fresh, head)
    command.terminate()
    assert command.stderr is not None
    while "stopping pulumi" not in (line := command.stderr.readline()):
        assert line, ending(command)
    assert command.poll() is None
    command.terminate()
    printed = " ".join(ending(command, code=130).split())
    assert f"pulumi cancel -s {STACK}" in printed
    _, alive = psutil.wait_procs(below, timeout=DEADLINE_S)
    assert alive == []


def test_a_removed_group_is_drained_first_unless_told_otherwise(deployed, head):
    edited = settings()
    edited["sunspot:cluster"]["scaling_groups"] = [
        one for one in edited["sunspot:cluster"]["scaling_groups"] if one["name"] != FIXED
    ]
    deployed.write_stack(STACK, edited)
    before = deployed.cloud.resources()
    # Its login has no token for Azure Resource Manager, so nothing can be drained.
    printed = " ".join(sunspot(deployed, head, "up", STACK, code=1).split())
    assert f"will delete VirtualMachineScaleSet {HELD}" in printed
    assert "No scale set was deleted" in printed
    assert f"sunspot up {STACK} --now" in printed
    assert deployed.cloud.resources() == before

    deployed.cloud.take_notes()
    assert "x is up (azure)" in sunspot(deployed, head, "up", STACK, "--now")
    assert ("delete", HELD) in deployed.cloud.take_notes()
