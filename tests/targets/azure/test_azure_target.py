"""`sunspot up` on Azure, and what the commands do with a cluster there that is up."""

import errno
import os
import stat
from dataclasses import replace

import pytest
from azure_model.pulumi_state import account, group, machine
from azure_stacks import declared, member, members, run, up, write
from job_api import TOKEN
from ssh_server import make_key, needs_sshd

from sunspot.cluster import RayCluster
from sunspot.errors import SunspotError, UsageError
from sunspot.node.free_ports import free_port
from sunspot.ray import ports
from sunspot.ray.jobs import JobClient
from sunspot.spec import RayClusterConfig, RayNodeConfig
from sunspot.targets.azure import wait as azure_wait
from sunspot.targets.azure.engine import EngineMissingError
from sunspot.targets.azure.records import Record, Records
from sunspot.targets.azure.updating import BusyError
from sunspot.targets.clusters import find
from sunspot.targets.scaling import Size

# Up


@needs_sshd
def test_up_ends_with_a_handle_that_works(place, api):
    handle, steps = up(place)
    assert handle.target == "azure"
    assert handle.head_address == "10.60.0.4:6379"
    assert handle.token() == TOKEN
    assert stat.S_IMODE(handle.token_path.stat().st_mode) == 0o600
    assert JobClient(handle).list() == []
    assert steps == [
        "looking at the login to Azure",
        "created VirtualMachine sunspot-x-head-vm",
        "every node is a member",
    ]
    assert place.target.names() == ["x"]
    assert place.target.stack("x") == declared()


@needs_sshd
def test_a_handle_is_had_again_without_asking_pulumi(place):
    first, _ = up(place)
    place.fake.calls.clear()
    assert place.target.handle("x") == first
    assert find("x").name == "x"
    assert find(None).target.name == "azure"
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
    assert "sunspot down x" in caught.value.__notes__[0]
    assert "sunspot logs --stack x --node head" in str(caught.value)
    api.known.nodes = members()
    assert up(place)[1][-1] == "every node is a member"


@needs_sshd
def test_workers_of_the_on_demand_twin_count_for_their_group(place, api, sshd):
    write(place.project, "x", key=f"{sshd.key}.pub", market="spot-with-fallback")
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


def test_an_unreachable_head_is_an_error_with_the_way_in(place, monkeypatch):
    place.fake.outputs["ssh_command"] = "ssh -p 1 nobody@127.0.0.1"
    monkeypatch.setattr(azure_wait, "SSH_TIMEOUT_S", 0.0)
    with pytest.raises(SunspotError, match=r"203.0.113.7/32.*curl") as caught:
        up(place)
    assert "sunspot down x" in caught.value.__notes__[0]
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
    with pytest.raises(SunspotError, match="quota") as caught:
        up(place)
    assert "sunspot down x" in caught.value.__notes__[0]
    assert place.target.names() == ["x"]


def test_what_the_program_would_refuse_is_refused_before_pulumi(place):
    write(place.project, "x")
    with pytest.raises(UsageError, match="no SSH key"):
        up(place)
    with pytest.raises(UsageError, match="--port"):
        up(place, port=1234)
    assert place.fake.calls == []
    assert place.target.names() == []


def test_outside_a_project_this_machine_is_offered(place, tmp_path_factory, monkeypatch):
    stack = declared()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(UsageError) as caught:
        place.target.up(stack, print)
    assert "Pulumi.yaml" in str(caught.value)
    assert "--target local" in str(caught.value)


def test_a_cluster_that_no_file_declares_is_refused(place):
    config = RayClusterConfig(head_node=RayNodeConfig(vm_size="Standard_D8s_v5"))
    other = declared().model_copy(update={"cluster": config})
    with pytest.raises(UsageError, match=r"Pulumi\.x\.yaml"):
        place.target.up(other, print)


def test_a_cluster_without_a_stack_file_is_refused_with_the_way_to_one(place):
    config = RayClusterConfig(head_node=RayNodeConfig(vm_size="Standard_D8s_v5"))
    with pytest.raises(SunspotError) as caught, RayCluster(config=config, target="azure"):
        pass
    assert "its stacks: x" in str(caught.value)
    assert "from_stack('hybrid')" in str(caught.value)
    assert place.fake.calls == []


# A stack that plain `pulumi up` brought up, or another machine


def test_a_block_leaves_it_as_it_is(place):
    place.fake.now = place.fake.made
    with pytest.raises(SunspotError, match="up already by Pulumi's state"):
        RayCluster.from_stack("x").__enter__()
    assert place.fake.calls == ["state"]
    assert place.target.names() == []


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
            find("x")
    assert place.target.names() == []


def test_without_a_name_pulumi_is_not_asked(place):
    with pytest.raises(SunspotError, match="no cluster is up"):
        find(None)
    assert place.fake.calls == []


def test_a_local_stack_needs_no_pulumi(place, monkeypatch):
    write(place.project, "x", target="local")
    place.fake.error = SunspotError("no login")
    with pytest.raises(SunspotError, match="'x' is not up"):
        find("x")
    assert run("down", "x").exit_code == 0
    write(place.project, "x")
    with pytest.raises(SunspotError, match="no login"):
        find("x")


def test_without_pulumi_nothing_is_up(place, project):
    def missing(*_):
        raise EngineMissingError("none")

    target = replace(place.target, engine=missing)
    assert not target.discover("x")
    assert not target.discover("moon")
    assert target.down("x", print) is None


@needs_sshd
def test_another_head_is_met_with_a_new_host_key(place):
    up(place)
    hosts = place.target.records.folder("x") / "known_hosts"
    words = hosts.read_text().split()
    words[2] = words[2][:-6] + "AAAAAA"
    hosts.write_text(" ".join(words) + "\n")
    place.target.records.tunnel("x").close()
    with pytest.raises(SunspotError, match="host key of"):
        place.target.handle("x")
    place.fake.now = (group(), machine("two"))
    assert JobClient(place.target.handle("x")).list() == []


@needs_sshd
def test_a_stack_destroyed_elsewhere_is_forgotten(place):
    up(place)
    place.target.records.tunnel("x").close()
    place.fake.now = ()
    with pytest.raises(SunspotError, match="is not up"):
        place.target.handle("x")
    assert place.target.names() == []


@pytest.mark.parametrize("known", [False, True])
def test_an_up_beside_another_machines_is_refused_and_keeps_no_record(place, monkeypatch, known):
    if known:
        place.target.records.write("x", Record(folder=str(place.project), stack={}, outputs={}))
    place.fake.error_of_up = BusyError("another command is working on this stack")
    with pytest.raises(SunspotError, match="another command"):
        up(place) if known else RayCluster.from_stack("x").__enter__()
    assert "destroy False" not in place.fake.calls
    assert place.target.names() == (["x"] if known else [])


@needs_sshd
def test_a_full_disk_after_pulumis_up_is_said_with_what_remains(place, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Records, "remember", full)
    with pytest.raises(SunspotError, match="No space left") as caught:
        up(place)
    assert not isinstance(caught.value, UsageError)
    assert "sunspot down x" in caught.value.__notes__[0]


# Nodes, scale, ssh


# Ray's words (ray/dashboard/utils.py, compose_state_message, 2.60).
LOST = "Unexpected termination"


@needs_sshd
def test_nodes_are_those_of_ray_and_the_missing(place, api, monkeypatch):
    up(place)
    gpu = {"ray.io/node-group": "gpu", "ray.io/market-type": "spot"}
    api.known.nodes = [
        member("vm_a", state_message="draining until 12:00"),
        member("gone", state="DEAD", state_message="Expected termination: idle"),
        member("evicted", state="DEAD", state_message=f"{LOST}: health check failed", labels=gpu),
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
    assert nodes[-1].log == f"{LOST}: health check failed"
    # Scaled by hand, it lacks none.
    monkeypatch.setattr(type(place.target), "sizes", lambda *_: {"fixed": Size(minimum=1)})
    assert len(place.target.nodes("x")) == len(nodes) - 1


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


def test_a_broken_record_is_named(place):
    folder = place.target.records.folder("x")
    folder.mkdir(parents=True)
    (folder / "stack.json").write_text("{")
    with pytest.raises(SunspotError, match=r"stack\.json cannot be read"):
        place.target.handle("x")


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
    assert "target 'local' does not support" in result.stderr
