"""The azure target without Azure: Pulumi's part is a fake; sshd, tunnel and job API are real.

The same commands with the real engine: tests/real/engine/test_sunspot_up.py.
"""

import json
import stat
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from job_api import TOKEN, serving
from ssh_server import make_key, needs_sshd, prepared, running
from test_machines import stack as local_stack
from test_machines import write as write_local
from typer.testing import CliRunner

from sunspot import ports, targets
from sunspot import stack as stacks
from sunspot.cli import app
from sunspot.cluster import RayCluster
from sunspot.errors import SunspotError, UsageError
from sunspot.jobs import JobClient
from sunspot.spec import RayClusterConfig, RayNodeConfig
from sunspot.targets import azure, azure_wait
from sunspot.targets.azure import AzureTarget
from sunspot.targets.azure_ask import Endpoints, addresses
from sunspot.targets.azure_engine import EngineMissingError
from sunspot.targets.azure_errors import explain, problem
from sunspot.targets.azure_left import remaining
from sunspot.targets.azure_records import Records
from sunspot.targets.azure_stack import AzureStack, Watcher, parse_state
from sunspot.targets.local import LocalTarget

GROUP = "/subscriptions/s/resourceGroups/sunspot-x"
ACCOUNT = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/sunspot1"
VM = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/sunspot-x-head"

STACK = """
config:
  azure-native:location: uksouth
  sunspot:target: {target}
  sunspot:cluster:
    head_node: {{vm_size: Standard_D4s_v5}}
    scaling_groups:
      - name: fixed
        market: spot
        min_workers: 2
        max_workers: 2
        worker_nodes: {{vm_size: Standard_D4s_v5}}
      - name: gpu
        market: spot
        min_workers: 0
        max_workers: 4
        worker_nodes: {{vm_size: Standard_NC4as_T4_v3}}
    autoscaler_config: {{cpu: 0.5, memory_gb: 1}}
  sunspot:access:
    ssh_public_key_file: {key}
    public_ip: true
    ssh_cidrs: [203.0.113.7/32]
"""
FALLBACK = "market: spot-with-fallback\n        min_workers: 2"


def resource(kind, identity, *, protect=False, **outputs):
    return {
        "urn": f"urn:pulumi:x::sunspot::{kind}::{identity.rpartition('/')[2]}",
        "type": kind,
        "custom": True,
        "id": identity,
        "protect": protect,
        "outputs": outputs,
    }


def exported(*resources, **outputs):
    root = {"urn": "urn:stack", "type": "pulumi:pulumi:Stack", "outputs": outputs}
    provider = {
        "urn": "urn:p",
        "type": "pulumi:providers:azure-native",
        "custom": True,
        "id": "1",
    }
    return {"deployment": {"resources": [root, provider, *resources]}}


def group():
    return resource("azure-native:resources:ResourceGroup", GROUP)


def machine(vm_id="one"):
    return resource("azure-native:compute:VirtualMachine", VM, vmId=vm_id)


def account(*, protect=True):
    return resource("azure-native:storage:StorageAccount", ACCOUNT, protect=protect)


class FakeStack:
    """Pulumi's side of one stack: what `up` makes and `destroy` leaves, and what was called."""

    def __init__(self, outputs):
        self.outputs = outputs
        self.made = (group(), machine(), account())
        self.now = None
        self.calls = []
        self.error = None

    def state(self):
        self.calls.append("state")
        if self.error:
            raise self.error
        return None if self.now is None else parse_state(exported(*self.now, **self.outputs))

    def up(self, progress):
        self.calls.append("up")
        if self.error:
            raise self.error
        self.now = self.made
        progress("created VirtualMachine sunspot-x-head-vm")
        return self.state()

    def destroy(self, progress, *, delete_storage):
        progress("deleting")
        self.calls.append(f"destroy {delete_storage}")
        protected = [one for one in self.now or () if one["protect"]]
        self.now = () if delete_storage or not protected else (group(), *protected)


def member(name, **fields):
    return {
        "node_name": name,
        "state": "ALIVE",
        "state_message": None,
        "is_head_node": False,
        "resources_total": {"CPU": 4.0, "memory": 2.0**34},
        "labels": {"ray.io/node-group": "fixed", "ray.io/market-type": "spot"},
        **fields,
    }


def members():
    labels = {"ray.io/node-group": "head", "ray.io/market-type": "on-demand"}
    head = member("sunspot-x-head", is_head_node=True, labels=labels)
    return [member("vm_b"), member("vm_a"), head]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    server = prepared(tmp_path_factory.mktemp("sshd"))
    server.token.write_text(f"{TOKEN}\n")
    with running(server):
        yield server


@pytest.fixture
def api():
    with serving() as (api, port):
        api.nodes = members()
        yield SimpleNamespace(known=api, port=port)


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv(azure.STATE_DIRECTORY_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(azure_wait, "POLL_S", 0.02)
    return folder


@pytest.fixture
def place(project, tmp_path, sshd, api, monkeypatch):
    """A target whose stack "x" is declared and not up; `fake` is Pulumi, `left` what Azure has."""
    write(project, "x", key=f"{sshd.key}.pub")
    fake = FakeStack(
        {
            "head_private_ip": "10.60.0.4",
            "job_address": f"http://127.0.0.1:{api.port}",
            "ssh_command": sshd.command,
        }
    )
    left = []
    target = AzureTarget(Records(tmp_path / "state" / "azure"), lambda *_: fake, lambda _: left)  # type: ignore[arg-type]
    monkeypatch.setattr(azure, "create", lambda: target)
    found = SimpleNamespace(target=target, fake=fake, left=left, project=project)
    yield found
    for name in target.names():
        target.records.tunnel(name).close()


def write(project, name, *, target="azure", key="missing.pub"):
    file = project / f"Pulumi.{name}.yaml"
    file.write_text(STACK.format(target=target, key=key))


def declared(name="x"):
    return stacks.load(name).for_target("azure")


def up(place, **keywords):
    steps = []
    handle = place.target.up(declared(), steps.append, **keywords)
    return handle, steps


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


# Up


@needs_sshd
def test_up_ends_with_a_handle_that_works(place, api):
    handle, steps = up(place)
    assert handle.target == "azure"
    assert handle.head_address == "10.60.0.4:6379"
    assert handle.token() == TOKEN
    assert stat.S_IMODE(handle.token_path.stat().st_mode) == 0o600
    assert JobClient(handle).list() == []
    assert steps == ["created VirtualMachine sunspot-x-head-vm", "every node is a member"]
    assert place.target.names() == ["x"]
    assert place.target.stack("x") == declared()


@needs_sshd
def test_a_handle_is_had_again_without_asking_pulumi(place):
    first, _ = up(place)
    place.fake.calls.clear()
    assert place.target.handle("x") == first
    assert targets.find("x").name == "x"
    assert targets.find(None).where == "azure"
    assert place.fake.calls == []


@needs_sshd
def test_a_tunnel_that_died_is_opened_again(place):
    up(place)
    place.target.records.tunnel("x").close()
    assert JobClient(place.target.handle("x")).list() == []


@needs_sshd
def test_up_waits_for_the_workers_and_says_which_are_missing(place, api):
    api.known.nodes = [one for one in members() if one["node_name"] != "vm_b"]
    with pytest.raises(SunspotError, match="1 of 2 workers of fixed joined") as caught:
        up(place, timeout_s=0.2)
    assert "sunspot down x" in str(caught.value)
    assert "sunspot logs --stack x --node head" in str(caught.value)
    api.known.nodes = members()
    assert up(place)[1][-1] == "every node is a member"


@needs_sshd
def test_workers_of_the_on_demand_twin_count_for_their_group(place, api, sshd, monkeypatch):
    stack = STACK.replace("market: spot\n        min_workers: 2", FALLBACK)
    monkeypatch.setitem(globals(), "STACK", stack)
    write(place.project, "x", key=f"{sshd.key}.pub")
    twin = {"ray.io/node-group": "fixed-on-demand", "ray.io/market-type": "on-demand"}
    api.known.nodes = [member("vm_b", labels=twin), *members()[1:]]
    assert up(place)[1][-1] == "every node is a member"
    nodes = place.target.nodes("x")
    assert {(node.group, node.state) for node in nodes} == {
        ("head", "up"),
        ("fixed", "up"),
        ("fixed-on-demand", "up"),
    }


@needs_sshd
def test_up_waits_for_the_token(place, sshd):
    sshd.token.rename(sshd.folder / "later")
    try:
        with pytest.raises(SunspotError, match="still booting"):
            up(place, timeout_s=0.2)
    finally:
        (sshd.folder / "later").rename(sshd.token)


@needs_sshd
def test_a_dashboard_port_is_the_tunnels(place):
    from sunspot.node.local import free_port

    wanted = free_port(set())
    handle, _ = up(place, dashboard_port=wanted)
    assert handle.job_address == f"http://127.0.0.1:{wanted}"


@needs_sshd
def test_the_tunnel_leads_to_grafana_and_prometheus(place):
    handle, _ = up(place)
    forwarded = place.target.records.tunnel("x").also()
    assert handle.monitoring == {
        "Grafana": f"http://127.0.0.1:{forwarded[ports.get('grafana').number]}",
        "Prometheus": f"http://127.0.0.1:{forwarded[ports.get('prometheus').number]}",
    }


def test_a_head_that_nobody_reaches_is_told_with_the_way_in(place, monkeypatch):
    place.fake.outputs["ssh_command"] = "ssh -p 1 nobody@127.0.0.1"
    monkeypatch.setattr(azure_wait, "SSH_TIMEOUT_S", 0.0)
    with pytest.raises(SunspotError, match=r"203.0.113.7/32.*curl") as caught:
        up(place)
    assert "What was made stays" in str(caught.value)
    assert place.target.names() == ["x"]


@needs_sshd
def test_a_wrong_key_ends_the_wait_at_once(place, tmp_path):
    wrong = make_key(tmp_path / "wrong")
    write(place.project, "x", key=f"{wrong}.pub")
    words = place.fake.outputs["ssh_command"].split()
    place.fake.outputs["ssh_command"] = " ".join(["ssh -o IdentitiesOnly=yes", *words[1:]])
    with pytest.raises(SunspotError, match=f"refuses the key {wrong}"):
        up(place)


def test_a_failed_up_leaves_a_record_that_down_finds(place):
    place.fake.error = SunspotError("quota")
    with pytest.raises(SunspotError, match="quota\nWhat was made stays"):
        up(place)
    assert place.target.names() == ["x"]


def test_what_the_program_would_refuse_is_refused_before_pulumi(place):
    write(place.project, "x")
    with pytest.raises(UsageError, match="no SSH key"):
        up(place)
    with pytest.raises(UsageError, match="--port"):
        up(place, port=1234)
    assert place.fake.calls == []
    assert place.target.names() == []


def test_a_cluster_that_no_file_declares_is_refused(place):
    config = RayClusterConfig(head_node=RayNodeConfig(vm_size="Standard_D8s_v5"))
    other = declared().model_copy(update={"cluster": config})
    with pytest.raises(UsageError, match=r"Pulumi\.x\.yaml"):
        place.target.up(other, print)


def test_a_cluster_without_a_stack_file_is_refused_with_the_way_to_one(place):
    config = RayClusterConfig(head_node=RayNodeConfig(vm_size="Standard_D8s_v5"))
    with pytest.raises(SunspotError) as caught, RayCluster(config=config, target="azure"):
        pass
    assert "on azure a cluster is what a stack file of the project says" in str(caught.value)
    assert "its stacks: x" in str(caught.value)
    assert "name='hybrid'" in str(caught.value)
    assert place.fake.calls == []


# A stack that plain `pulumi up` brought up


@needs_sshd
def test_status_of_a_stack_that_plain_pulumi_made(place):
    place.fake.now = place.fake.made
    result = run("status", "x")
    assert result.exit_code == 0, result.output
    assert "sunspot-x-head" in result.stdout
    assert place.target.names() == ["x"]


def test_a_stack_that_is_not_up_is_not_adopted(place):
    for now in (None, (), (group(), account())):
        place.fake.now = now
        with pytest.raises(SunspotError, match="'x' is not up"):
            targets.find("x")
    assert place.target.names() == []


def test_without_a_name_pulumi_is_not_asked(place):
    with pytest.raises(SunspotError, match="no cluster is up"):
        targets.find(None)
    assert place.fake.calls == []


def test_a_local_stack_needs_no_pulumi(place, monkeypatch):
    write(place.project, "x", target="local")
    place.fake.error = SunspotError("no login")
    with pytest.raises(SunspotError, match="'x' is not up"):
        targets.find("x")
    assert run("down", "x").exit_code == 0
    write(place.project, "x")
    with pytest.raises(SunspotError, match="no login"):
        targets.find("x")


def test_without_pulumi_nothing_is_up(place, project):
    def missing(*_):
        raise EngineMissingError("none")

    target = replace(place.target, engine=missing)
    assert not target.adopt("x")
    assert not target.adopt("moon")
    assert target.take_down("x", print) is None


@needs_sshd
def test_another_head_is_met_with_a_new_host_key(place):
    up(place)
    hosts = place.target.records.folder("x") / "known_hosts"
    words = hosts.read_text().split()
    words[2] = words[2][:-6] + "AAAAAA"
    hosts.write_text(" ".join(words) + "\n")
    place.target.records.tunnel("x").close()
    with pytest.raises(SunspotError, match="another machine than before"):
        place.target.handle("x")
    place.fake.now = (group(), machine("two"))
    assert JobClient(place.target.handle("x")).list() == []


@needs_sshd
def test_a_stack_destroyed_elsewhere_is_forgotten(place):
    up(place)
    place.target.records.tunnel("x").close()
    place.fake.now = ()
    with pytest.raises(SunspotError, match="not up on azure"):
        place.target.handle("x")
    assert place.target.names() == []


# Nodes, scale, ssh


@needs_sshd
def test_nodes_are_those_of_ray_and_the_missing(place, api):
    up(place)
    gpu = {"ray.io/node-group": "gpu", "ray.io/market-type": "spot"}
    api.known.nodes = [
        member("vm_a", state_message="draining until 12:00"),
        member("gone", state="DEAD", state_message="Expected termination: idle"),
        member("evicted", state="DEAD", state_message="health check failed", labels=gpu),
        *members()[2:],
    ]
    nodes = place.target.nodes("x")
    assert [(n.name, n.group, n.market, n.state) for n in nodes] == [
        ("sunspot-x-head", "head", "on-demand", "up"),
        ("vm_a", "fixed", "spot", "draining"),
        ("fixed (awaited 1)", "fixed", "spot", "starting"),
        ("evicted", "gpu", "spot", "lost"),
    ]
    assert (nodes[0].cpus, nodes[0].memory_gb) == (4, 16)
    assert nodes[-1].log == "health check failed"


@needs_sshd
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("gpu=2", "between 0 and 4"),
        ("fixed=3", "min_workers and max_workers to 3 in Pulumi.x.yaml"),
        ("moon=1", "it has: fixed, gpu"),
    ],
)
def test_scale_says_who_owns_the_group(place, change, told):
    up(place)
    result = run("scale", change)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


@needs_sshd
def test_ssh_and_rsync(place, tmp_path, capfd):
    up(place)
    assert run("ssh", "x", "--", "echo", "a  b").exit_code == 0
    assert run("ssh", "--", "exit 5").exit_code == 5
    assert capfd.readouterr().out == "a  b\n"
    (tmp_path / "one").write_text("1")
    assert run("rsync", str(tmp_path / "one"), f"head:{tmp_path}/two").exit_code == 0
    assert (tmp_path / "two").read_text() == "1"
    assert run("rsync", "a", "b").exit_code == 2


# Down


@needs_sshd
def test_down_keeps_protected_results_and_says_so(place):
    up(place)
    tunnel = place.target.records.tunnel("x")
    assert tunnel.port()
    place.left[:] = [ACCOUNT.upper(), f"{ACCOUNT}/blobServices/default"]
    result = run("down", "x")
    assert result.exit_code == 0, result.output
    assert "nothing else of it is left" in result.stdout
    assert "sunspot down x --delete-storage" in result.stdout
    assert tunnel.port() is None
    assert place.target.names() == []
    assert not tunnel.folder.exists()


@needs_sshd
def test_down_deletes_the_results_when_told_also_later(place):
    up(place)
    run("down", "x")
    result = run("down", "x", "--delete-storage")
    assert result.exit_code == 0, result.output
    assert "nothing of it is left" in result.stdout
    assert place.fake.calls.count("destroy True") == 1
    assert "nothing to do" in run("down", "x").stdout


def test_down_of_a_stack_that_plain_pulumi_made(place):
    place.fake.now = (group(), machine())
    result = run("down", "x")
    assert result.exit_code == 0, result.output
    assert "destroy False" in place.fake.calls


def test_down_lists_what_still_exists_and_fails(place):
    place.fake.now = (group(), machine(), account())
    place.left[:] = [ACCOUNT, f"{GROUP}/providers/Microsoft.Compute/disks/forgotten"]
    result = run("down", "x")
    assert result.exit_code == 1
    assert "disks/forgotten" in result.stderr
    assert ACCOUNT not in result.stderr
    assert "az group delete --name sunspot-x" in result.stderr


def test_down_that_cannot_be_checked_fails_and_says_how_to(place):
    def refuse(_):
        raise SunspotError("no az here")

    place.fake.now = (group(), machine())
    with pytest.raises(SunspotError, match=r"no az here.*az resource list"):
        replace(place.target, remaining=refuse).take_down("x", print)


def test_down_of_a_failed_up_that_made_nothing(place):
    place.fake.error = SunspotError("no")
    with pytest.raises(SunspotError):
        up(place)
    place.fake.error = None
    assert place.target.take_down("x", print) == []
    assert place.target.names() == []
    assert not place.target.down("x", print)


def test_a_project_that_moved_is_told(place):
    place.fake.error = SunspotError("no")
    with pytest.raises(SunspotError):
        up(place)
    (place.project / "Pulumi.yaml").unlink()
    with pytest.raises(SunspotError, match="no longer in"):
        place.target.take_down("x", print)


def test_a_broken_record_is_named(place):
    folder = place.target.records.folder("x")
    folder.mkdir(parents=True)
    (folder / "stack.json").write_text("{")
    with pytest.raises(SunspotError, match=r"stack\.json cannot be read"):
        place.target.handle("x")


# What Azure still has


def answering(pages):
    """A server of Azure's login and its REST API: path -> (status, body)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = pages[self.path.partition("?")[0]]
            if self.headers["Authorization"] != "Bearer t0":
                status, body = 401, {}
            self._answer(status, body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200, {"access_token": "t0"})

        def _answer(self, status, body):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format, *args):  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    return server


@pytest.fixture
def principal(monkeypatch):
    for name in ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID"):
        monkeypatch.setenv(name, "x")


def by_rest(pages, ask=remaining):
    server = answering(pages)
    address = f"http://127.0.0.1:{server.server_port}"
    for _, body in pages.values():
        if "nextLink" in body:
            body["nextLink"] = address + body["nextLink"]
    try:
        return ask(GROUP, Endpoints(login=address, management=address))
    finally:
        server.shutdown()
        server.server_close()


def test_azure_is_asked_page_by_page(principal):
    pages = {
        f"{GROUP}/resources": (200, {"value": [{"id": "a"}], "nextLink": "/more"}),
        "/more": (200, {"value": [{"id": "b"}]}),
    }
    assert by_rest(pages) == ["a", "b"]


@pytest.mark.parametrize(
    ("status", "body", "left"),
    [
        (404, {"error": {"code": "ResourceGroupNotFound"}}, []),
        (200, {"value": []}, [GROUP]),
    ],
)
def test_a_group_that_is_gone_or_empty(principal, status, body, left):
    assert by_rest({f"{GROUP}/resources": (status, body)}) == left


@pytest.mark.parametrize("status", [401, 404, 500])
def test_an_answer_that_says_nothing_is_an_error(principal, status):
    with pytest.raises(SunspotError, match="did not answer"):
        by_rest({f"{GROUP}/resources": (status, {"error": {"code": "SubscriptionNotFound"}})})


def card(machine, *addresses, primary=0):
    """A network interface as Azure's REST API lists it."""
    configurations = [
        {"properties": {"privateIPAddress": address, "primary": number == primary}}
        for number, address in enumerate(addresses)
    ]
    vm = f"{GROUP.upper()}/providers/Microsoft.Compute/virtualMachines/{machine}"
    attached = {"virtualMachine": {"id": vm}} if machine else {}
    return {"id": "x", "properties": {**attached, "ipConfigurations": configurations}}


def test_the_addresses_of_machines_by_rest(principal):
    path = f"{GROUP}/providers/Microsoft.Network/networkInterfaces"
    first = [card("vm_a", "10.0.0.5"), card(None, "10.0.0.6"), card("starting")]
    pages = {
        path: (200, {"value": first, "nextLink": "/more"}),
        "/more": (200, {"value": [card("vm_b", "10.0.0.7", "10.0.0.8", primary=1)]}),
    }
    assert by_rest(pages, addresses) == {"vm_a": "10.0.0.5", "vm_b": "10.0.0.8"}
    gone = {path: (404, {"error": {"code": "ResourceGroupNotFound"}})}
    assert by_rest(gone, addresses) == {}


@pytest.fixture
def az(tmp_path, monkeypatch):
    """Puts an `az` on the PATH that is this script."""
    for name in ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)

    def write(script):
        tool = tmp_path / "az"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return write


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("""echo '[{"id": "a"}]'""", ["a"]),
        ("echo '(ResourceGroupNotFound) gone' >&2; exit 3", []),
        ('[ "$1" = group ] && echo false || echo "[]"', []),
        ('[ "$1" = group ] && echo true || echo "[]"', [GROUP]),
    ],
)
def test_the_azure_cli_is_asked(az, script, left):
    az(script)
    assert remaining(GROUP) == left


@pytest.mark.parametrize("key", ["privateIPAddress", "privateIpAddress"])
def test_the_addresses_of_machines_by_the_azure_cli(az, key):
    vm = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/vm_a"
    card = {"id": "x", "virtualMachine": {"id": vm}, "ipConfigurations": [{key: "10.0.0.5"}]}
    free = {"id": "y", "virtualMachine": None, "ipConfigurations": [{key: "10.0.0.6"}]}
    wanted = "network nic list --resource-group sunspot-x --subscription s --output json"
    az(f"""[ "$*" = "{wanted}" ] && echo '{json.dumps([card, free])}' || exit 9""")
    assert addresses(GROUP) == {"vm_a": "10.0.0.5"}


def test_an_azure_cli_that_fails_or_is_missing(az, tmp_path, monkeypatch):
    az("echo 'Please run az login' >&2; exit 1")
    with pytest.raises(SunspotError, match="az login"):
        remaining(GROUP)
    az("echo no json")
    with pytest.raises(SunspotError, match="no list"):
        remaining(GROUP)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(SunspotError, match="neither the Azure CLI"):
        remaining(GROUP)


# Events and errors


def event(**kinds) -> Any:
    names = (
        "resource_pre_event",
        "res_outputs_event",
        "res_op_failed_event",
        "diagnostic_event",
    )
    return SimpleNamespace(**{**dict.fromkeys(names), **kinds})


def step(op, kind="azure-native:compute:VirtualMachine", name="head-vm"):
    metadata = SimpleNamespace(op=op, type=kind, urn=f"urn:pulumi:x::sunspot::{kind}::{name}")
    return SimpleNamespace(metadata=metadata)


def test_progress_names_each_step_of_azures_resources():
    steps = []
    watch = Watcher(steps.append)
    watch(event(resource_pre_event=step("create")))
    watch(event(res_outputs_event=step("create")))
    watch(event(res_outputs_event=step("same")))
    watch(event(res_outputs_event=step("create", kind="sunspot:azure:Head")))
    watch(event(res_outputs_event=step("delete-replaced")))
    watch(event(res_op_failed_event=step("create")))
    for severity, text in (("warning", "<{%fg 3%}>Nobody can reach<{%reset%}>"), ("info", "x")):
        watch(event(diagnostic_event=SimpleNamespace(severity=severity, message=text)))
    assert steps == [
        "creating VirtualMachine head-vm",
        "created VirtualMachine head-vm",
        "deleted the old VirtualMachine head-vm",
        "failed: VirtualMachine head-vm",
        "warning: Nobody can reach",
    ]


def test_the_engines_errors_are_kept_once():
    watch = Watcher(lambda _: None)
    for text in ("boom", "boom", "update failed"):
        watch(event(diagnostic_event=SimpleNamespace(severity="error", message=text)))
    assert watch.errors == ["boom"]


QUOTA = (
    "Code=OperationNotAllowed Message=Operation could not be completed as it results in exceeding "
    "approved {family} quota. Additional details - Deployment Model: Resource Manager, Location: "
    "uksouth, Current Limit: 10, Current Usage: 8, Additional Required: 4, (Minimum) New Limit "
    "Required: 12. Setup Alerts when Quota reaches threshold."
)


def test_a_quota_error_names_family_limit_and_fix():
    told = explain(QUOTA.format(family="standardNCASv3_T4Family Cores")) or ""
    assert "'standardNCASv3_T4Family Cores'" in told
    assert "limit is 10, 8 are in use, 4 more are needed" in told
    assert "Ask for 12" in told
    assert "uksouth" in told
    assert "all spot machines" in (explain(QUOTA.format(family="LowPriorityCores")) or "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Code=SkuNotAvailable", "another size or region"),
        ("Code=AllocationFailed", "try later"),
        ("action 'Microsoft.Authorization/roleAssignments/write'", "User Access Administrator"),
        ("AuthorizationFailed", "Contributor"),
        ("Please run 'az login'", "az login"),
        ("passphrase must be set with PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"),
        ("error: PULUMI_ACCESS_TOKEN must be set for login", "pulumi login --local"),
        ("the stack is currently locked by 1 lock(s)", "pulumi cancel"),
    ],
)
def test_known_errors_are_explained(text, told):
    assert told in (explain(text) or "")


def test_unknown_errors_are_passed_on_shortened():
    assert explain("what") is None
    message = str(problem("x", "first", "second " * 200, "third", "fourth"))
    assert "it said: first" in message
    assert "1 errors more" in message
    assert len(message) < 1200


def test_a_state_has_only_azures_resources():
    state = parse_state(exported(group(), machine("7"), account(), head_address="1.2.3.4"))
    assert state.outputs == {"head_address": "1.2.3.4"}
    assert len(state.resources) == 3
    assert state.group_id == GROUP
    assert state.head is not None
    assert state.head.outputs["vmId"] == "7"
    assert [one.name for one in state.protected] == ["sunspot1"]
    assert parse_state({}).resources == ()


def test_pulumis_own_commands_are_asked(tmp_path):
    asked = []

    class Command:
        def run(self, arguments, folder, environment):
            asked.append((arguments, folder, environment["PULUMI_SKIP_UPDATE_CHECK"]))
            return SimpleNamespace(stdout=json.dumps(exported(group())))

    state = AzureStack("x", tmp_path, Command()).state()  # type: ignore[arg-type]
    assert state is not None
    assert state.group_id == GROUP
    # Without --show-secrets: what is secret stays encrypted.
    assert asked == [(["stack", "export", "--stack", "x"], str(tmp_path), "true")]


# The command


def test_an_interrupted_up_tells_that_what_was_made_stays(place):
    def interrupted(_):
        raise KeyboardInterrupt

    place.fake.up = interrupted
    result = run("up", "x")
    assert result.exit_code == 130
    assert "sunspot down x" in result.stderr


@needs_sshd
def test_up_prints_the_outputs_and_not_the_token(place):
    place.fake.outputs["storage_url"] = "abfss://results@sunspot1.dfs.core.windows.net/"
    result = run("up", "x")
    assert result.exit_code == 0, result.output
    assert "abfss://results@sunspot1" in result.stdout
    assert TOKEN not in result.output


def test_a_cluster_of_this_machine_needs_no_ssh(project, tmp_path):
    folder = tmp_path / "state" / "clusters" / "dev"
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text("{}")
    result = run("ssh", "dev")
    assert result.exit_code == 2
    assert "runs on this machine" in result.stderr


# One stack in two places


@needs_sshd
def test_a_stack_that_is_up_in_two_places_needs_its_target_named(place, tmp_path):
    up(place)
    clusters = LocalTarget(tmp_path / "state" / "clusters").clusters
    write_local(clusters, local_stack(name="x"))
    for command in (["status"], ["submit", "--stack", "x", "--", "true"], ["down"], ["down", "x"]):
        result = run(*command)
        assert result.exit_code == 2, result.output
        message = " ".join(result.stderr.split())
        assert "stack 'x' is up in two places (local, azure)" in message
        assert "--target local or --target azure" in message
    assert place.target.names() == ["x"]

    result = run("status", "--target", "azure", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["target"] == "azure"
    assert run("down", "x", "--target", "local").exit_code == 0
    assert not (clusters / "x").exists()
    assert targets.find("x").where == "azure"
    assert run("status", "--target", "local").exit_code == 1
    assert run("status", "--target", "cloud").exit_code == 2
