"""`sunspot logs --node` on Azure: two real sshd are head and worker, ssh and job API are real.

Pulumi and Azure's answers are fakes, as in conftest.py; journalctl and systemctl on the
machines are stubs.
"""

import io
import json
import shlex
import socket
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import psutil
import pytest
from azure_model.pulumi_stack import FakeStack
from azure_model.pulumi_state import GROUP
from azure_stacks import member, write
from ending import name_of, words_of
from job_api import TOKEN, serving
from ssh_server import SshServer, make_key, needs_sshd, prepared, running
from typer.testing import CliRunner

from sunspot import stack as stacks
from sunspot.cli.app import app
from sunspot.errors import SunspotError, UsageError
from sunspot.targets import ssh as jump
from sunspot.targets.azure import node_log as azure_node_log
from sunspot.targets.azure import target as azure
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget

pytestmark = needs_sshd

HEAD_IP, WORKER_IP = "10.60.0.4", "127.0.0.1"
BOOT = [
    {"start": 9.13, "phase": "disk", "seconds": 0.4, "ok": True},
    {"start": 12.5, "phase": "docker", "seconds": 31.27, "ok": False},
]


@dataclass
class Site:
    """The cluster "x" that is up: its target, its machines and what Azure was asked."""

    target: AzureTarget
    fake: FakeStack
    api: SimpleNamespace
    head: SshServer
    worker: SshServer
    addresses: dict[str, str]
    asked: list[str] = field(default_factory=list)


def machine(folder, **keywords):
    """A machine that has booted, with a journal that says who it is."""
    folder.mkdir()
    server = prepared(folder, **keywords)
    server.token.write_text(f"{TOKEN}\n")
    boot, journal, asked = (folder / name for name in ("boot.json", "journal", "asked"))
    boot.write_text(json.dumps(BOOT))
    journal.write_text(f"the journal of {folder.name}\n")
    server.stub("cat", f'[ "$1" = {azure_node_log.BOOT_REPORT} ] && exec /bin/cat {boot}; exit 9')
    server.stub("systemctl", "echo 'sunspot-ray.service loaded active running Sunspot: Ray'")
    server.stub(
        "journalctl",
        f'echo "$@" >{asked}\n'
        f'case "$*" in *--follow*) exec tail -n +1 -f {journal} ;; esac\n'
        f"exec /bin/cat {journal}",
    )
    return server


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    root = tmp_path_factory.mktemp("machines")
    head = machine(root / "head")
    worker = machine(root / "worker", takes=head.key)
    with running(head), running(worker):
        yield head, worker


@pytest.fixture
def site(project, tmp_path, machines, monkeypatch):
    head, worker = machines
    monkeypatch.setattr(jump, "SSH_PORT", worker.port)
    write(project, "x", key=f"{head.key}.pub")
    with serving() as (api, port):
        api.nodes = [
            member("sunspot-x-head", node_ip=HEAD_IP, is_head_node=True),
            member("vm_a", node_ip=WORKER_IP),
            member("vm_b", node_ip=WORKER_IP),
        ]
        fake = FakeStack(
            {
                "head_address": "203.0.113.9",
                "head_private_ip": HEAD_IP,
                "job_address": f"http://127.0.0.1:{port}",
                "resource_group": "sunspot-x",
                "ssh_command": head.command,
            }
        )
        fake.now = fake.made
        addresses, asked = {"sunspot-x-head": HEAD_IP, "vm_a": WORKER_IP, "vm_new": WORKER_IP}, []
        target = AzureTarget(
            Records(tmp_path / "state" / "azure"),
            engine=lambda *_, **__: fake,  # type: ignore[arg-type]
            quick=lambda *_: [],
            still_there=lambda _: [],
            addresses=lambda group: asked.append(group) or addresses,
        )
        monkeypatch.setattr(azure, "create", lambda: target)
        target.up(stacks.load("x").for_target("azure"), lambda _: None)
        yield Site(
            target, fake, SimpleNamespace(known=api, port=port), head, worker, addresses, asked
        )
        target.records.tunnel("x").close()


def run(*arguments):
    return CliRunner().invoke(app, ["logs", *arguments])


def told(result):
    return " ".join(result.stderr.split())


def nobody_at():
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


# Which machine


def test_a_worker_that_ray_knows_tells_of_its_boot_and_its_units(site):
    result = run("--node", "vm_a")
    assert result.exit_code == 0, result.output
    header, disk, docker, *journal = result.stdout.splitlines()
    assert header.split() == ["phase", "start", "(s)", "seconds", "ok"]
    assert disk.split() == ["disk", "9.1", "0.4", "yes"]
    assert docker.split() == ["docker", "12.5", "31.3", "no"]
    assert journal == ["the journal of worker"]
    arguments = (site.worker.folder / "asked").read_text().strip()
    assert arguments == "--boot --no-pager --unit sunspot-*"
    assert site.asked == []


@pytest.mark.parametrize("name", ["vm_new", "VM_New"])
def test_a_worker_that_never_joined_is_found_by_azure(site, name):
    result = run("--node", name)
    assert result.exit_code == 0, result.output
    assert "the journal of worker" in result.stdout
    assert f"{name} is not a member of the Ray cluster" in told(result)
    assert site.asked == [GROUP]


def test_where_ray_does_not_answer_azure_is_asked(site):
    site.api.known.answers["GET", "/api/v0/nodes"] = (500, "no")
    result = run("--node", "vm_a")
    assert result.exit_code == 0, result.output
    assert "the journal of worker" in result.stdout
    assert site.asked


@pytest.mark.parametrize("name", ["head", "sunspot-x-head", HEAD_IP, "203.0.113.9"])
def test_the_head_is_asked_itself(site, name):
    site.api.known.answers["GET", "/api/v0/nodes"] = (500, "no")  # its Ray may be dead
    result = run("--node", name)
    assert result.exit_code == 0, result.output
    assert "the journal of head" in result.stdout
    assert site.asked == []


def test_a_private_address_needs_no_look_up(site):
    site.api.known.nodes = []
    result = run("--node", WORKER_IP)
    assert result.exit_code == 0, result.output
    assert "the journal of worker" in result.stdout
    assert site.asked == []


def test_an_unknown_name_lists_the_machines_that_there_are(site):
    result = run("--node", "fixed-0")
    assert result.exit_code == 2
    assert "no node 'fixed-0'" in told(result)
    assert "it has: sunspot-x-head, vm_a, vm_new" in told(result)


def test_where_azure_cannot_be_asked_the_members_are_named(site):
    def refuse(_):
        raise SunspotError("no az here")

    target = replace(site.target, addresses=refuse)
    with pytest.raises(SunspotError, match=r"members: sunspot-x-head, vm_a, vm_b.*no az") as caught:
        target.node_log("x", "vm_new", io.StringIO(), print)
    assert "--node 10.60.128.4" in str(caught.value)
    assert not isinstance(caught.value, UsageError)


def test_a_node_is_asked_while_another_command_waits_for_it(site):
    with site.target.records.locked("x"):  # as `sunspot up` does; this one would wait for ever
        assert run("--node", "vm_a").exit_code == 0
        (site.target.records.folder("x") / "token").unlink()  # the head has none yet
        result = run("--node", "vm_new")
    assert result.exit_code == 0, result.output
    assert "the journal of worker" in result.stdout


def test_a_record_of_an_older_version_is_made_anew(site):
    records = site.target.records
    records.write("x", replace(records.known("x"), head="", group_id=""))
    assert run("--node", "vm_new").exit_code == 0
    assert site.asked == [GROUP]
    assert records.known("x").head == "sunspot-x-head"


# What cannot be read


def test_a_worker_without_ssh_is_told_with_the_way_to_its_console(site, monkeypatch):
    monkeypatch.setattr(jump, "SSH_PORT", nobody_at())
    result = run("--node", "vm_new")
    assert result.exit_code == 1
    assert "no SSH to vm_new (127.0.0.1)" in told(result)
    command = "az vm boot-diagnostics get-boot-log --name vm_new --resource-group sunspot-x"
    assert told(result).endswith(command)


def test_an_address_without_ssh_is_told_with_the_way_to_its_name(site, monkeypatch):
    monkeypatch.setattr(jump, "SSH_PORT", nobody_at())
    result = run("--node", WORKER_IP)
    assert result.exit_code == 1
    assert "get-boot-log --name NAME --resource-group sunspot-x" in told(result)
    assert "az vm list-ip-addresses --resource-group sunspot-x" in told(result)


@pytest.mark.parametrize("name", ["head", "vm_a", WORKER_IP])
def test_a_head_without_ssh_is_what_the_error_is_about(site, name):
    command = site.head.command.replace(str(site.head.port), str(nobody_at()))
    site.fake.outputs["ssh_command"] = command
    site.target.records.tunnel("x").close()
    result = run("--node", name)
    assert result.exit_code == 1
    assert "no SSH to the head" in told(result)
    assert "get-boot-log --name sunspot-x-head --resource-group sunspot-x" in told(result)


def test_a_head_that_refuses_the_key_is_what_the_error_is_about(site, tmp_path):
    wrong = make_key(tmp_path / "wrong")
    write(tmp_path / "project", "x", key=f"{wrong}.pub")
    words = site.fake.outputs["ssh_command"].split()
    site.fake.outputs["ssh_command"] = " ".join(["ssh -o IdentitiesOnly=yes", *words[1:]])
    site.target.records.tunnel("x").close()
    result = run("--node", WORKER_IP)
    assert result.exit_code == 1
    assert f"the head refuses the key {wrong}" in told(result)


def test_a_boot_that_has_ended_no_phase_yet_is_told_and_the_journal_printed(site):
    (site.worker.folder / "boot.json").rename(site.worker.folder / "later")
    try:
        result = run("--node", "vm_a")
    finally:
        (site.worker.folder / "later").rename(site.worker.folder / "boot.json")
    assert (result.exit_code, result.stdout) == (0, "the journal of worker\n")
    assert "/var/log/cloud-init-output.log" in told(result)


@pytest.mark.parametrize("text", ["", "[", "{}x", "7", '["a"]', '[{"phase": "disk"}]'])
def test_a_broken_boot_report_hides_no_journal(site, text):
    report = site.worker.folder / "boot.json"
    report.write_text(text)
    try:
        result = run("--node", "vm_a")
    finally:
        report.write_text(json.dumps(BOOT))
    assert (result.exit_code, result.stdout) == (0, "the journal of worker\n")
    assert "boot.json cannot be read" in told(result)


@pytest.fixture
def other_journal(site):
    """Puts another journalctl on the worker."""
    tool = site.worker.folder / "bin" / "journalctl"
    before = tool.read_text()
    yield lambda script: site.worker.stub("journalctl", script)
    tool.write_text(before)


def test_what_journalctl_complains_of_is_told_with_its_exit_code(site, other_journal):
    other_journal("echo one; echo 'Failed to add filter for units' >&2; exit 1")
    result = run("--node", "vm_a")
    assert result.exit_code == 1
    assert result.stdout.endswith("one\n")
    assert "Failed to add filter for units" in told(result)


def test_a_connection_that_breaks_is_an_error(site, other_journal):
    other_journal("echo one; exit 255")  # what ssh ends with when it is cut
    result = run("--node", "vm_a")
    assert result.exit_code == 1
    assert result.stdout.endswith("one\n")
    assert "no SSH to vm_a" in told(result)


# Following


class Terminal(io.StringIO):
    """Writes a further line into the journal when it has seen the first, then presses Ctrl-C."""

    def __init__(self, journal):
        super().__init__()
        self.journal = journal

    def write(self, text):
        written = super().write(text)
        if "the journal of" in text:
            with self.journal.open("a") as file:
                file.write("something new\n")
        if "something new" in text:
            raise KeyboardInterrupt
        return written


@pytest.mark.parametrize(("node", "server"), [("vm_a", "worker"), ("head", "head")])
def test_a_journal_is_followed_until_ctrl_c(site, node, server):
    folder = getattr(site, server).folder
    before = set(psutil.Process().children(recursive=True))
    out = Terminal(folder / "journal")
    try:
        with pytest.raises(KeyboardInterrupt):
            site.target.node_log("x", node, out, print, follow=True)
    finally:
        (folder / "journal").write_text(f"the journal of {server}\n")
    assert out.getvalue().endswith(f"the journal of {server}\nsomething new\n")
    arguments = shlex.split((folder / "asked").read_text())
    # By their names too: a pattern alone misses units that write their first line later.
    assert arguments[-4:] == ["--unit", "sunspot-ray.service", "--follow", "--no-tail"]
    ours = set(psutil.Process().children(recursive=True)) - before
    named = {one: name_of(one) for one in ours}
    left = [one for one, name in named.items() if "ssh" in name and "sshd" not in name]
    assert [words_of(one) for one in left] == []
