"""A node of a Slurm job: what Slurm gave it, its address, its ports, the end of its processes."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from sunspot.node import prctl
from sunspot.node.free_ports import PORT_RANGE
from sunspot.node.slurm import addresses, head, listeners, main, ray_node
from sunspot.node.slurm.allocation import Allocation
from sunspot.node.slurm.plan import FAILED, Group, Plan, Published
from sunspot.node.slurm.task import LOCK, Task, name_amd_gpus, run, scratch_folder, scratch_parent

GROUP = Group(
    name="gpu",
    nodes=2,
    cpus=4,
    gpus=2,
    flags=[],
    environment={},
    ports={"node-manager": "--node-manager-port"},
)
STEP = {
    "SLURM_JOB_ID": "17",
    "SLURMD_NODENAME": "n2",
    "SLURM_PROCID": "1",
    "SLURM_CPUS_PER_TASK": "4",
    "SLURM_CPUS_ON_NODE": "64",
    "CUDA_VISIBLE_DEVICES": "2,3",
}


def test_the_allocation_is_read_from_slurms_variables():
    has = Allocation.of(STEP)
    assert (has.job, has.node, has.task) == (17, "n2", 1)
    assert (has.cpus, has.gpus) == (4, 2)
    assert has.lacks(GROUP) == []
    assert has.flags(GROUP) == ["--num-cpus=4", "--num-gpus=2"]


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}, 3),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "", "SLURM_STEP_GPUS": "0,1"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "0"}, 1),
        ({"SLURM_GPUS_ON_NODE": "4"}, 4),
        ({}, 0),
    ],
    ids=str,
)
def test_the_gpus_are_counted_by_the_first_list_that_has_some(variables, gpus):
    assert Allocation.of(variables).gpus == gpus


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SLURM_CPUS_PER_TASK", "2", "2 CPUs, gpu needs 4"),
        ("CUDA_VISIBLE_DEVICES", "0", "1 GPUs, gpu needs 2"),
    ],
)
def test_too_little_is_told(variable, value, said):
    (problem,) = Allocation.of(STEP | {variable: value}).lacks(GROUP)
    assert said in problem


def test_gpus_of_the_users_own_environment_do_not_count_for_a_node_without():
    plain = replace(GROUP, gpus=0, cpus=0)
    assert Allocation.of(STEP).flags(plain) == ["--num-cpus=0", "--num-gpus=0"]


def test_ray_takes_the_list_of_amd_gpus_that_slurm_gives(monkeypatch):
    from ray._private.accelerators.amd_gpu import AMDGPUAcceleratorManager as Amd

    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2,3")
    with pytest.raises(RuntimeError, match="HIP_VISIBLE_DEVICES"):
        Amd.get_current_process_visible_accelerator_ids()
    name_amd_gpus(os.environ)
    assert Amd.get_current_process_visible_accelerator_ids() == ["2", "3"]
    assert "ROCR_VISIBLE_DEVICES" not in os.environ
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "4,5")
    name_amd_gpus(os.environ)  # a container's own HIP_VISIBLE_DEVICES counts within it
    assert os.environ["ROCR_VISIBLE_DEVICES"] == "4,5"


# Addresses


def test_an_interface_is_found_by_its_name_and_by_a_block():
    assert addresses.own_address("lo") == "127.0.0.1"
    assert addresses.own_address("127.0.0.0/8") == "127.0.0.1"
    for wrong in ("moon0", "198.51.100.0/24"):
        with pytest.raises(addresses.AddressError, match=r"lo 127\.0\.0\.1"):
            addresses.own_address(wrong)


@pytest.fixture
def no_route(monkeypatch):
    """Gives the node these addresses, and its name this one; None for none."""

    def unreachable(*_):
        raise OSError("Network is unreachable")

    def install(known, named):
        def resolve(name):
            if named is None:
                raise socket.gaierror(name)
            return named

        monkeypatch.setattr(socket.socket, "connect", unreachable)
        monkeypatch.setattr(socket, "gethostbyname", resolve)
        monkeypatch.setattr(addresses, "_addresses", lambda: {"lo": "127.0.0.1", **known})

    return install


@pytest.mark.parametrize(
    ("known", "named", "expected"),
    [
        ({"ib0": "10.0.0.7", "eth0": "10.1.0.7"}, "10.1.0.7", "10.1.0.7"),
        ({"ib0": "10.0.0.7"}, "127.0.1.1", "10.0.0.7"),
        ({"ib0": "10.0.0.7"}, None, "10.0.0.7"),
        ({}, "127.0.1.1", "127.0.1.1"),
    ],
    ids=str,
)
def test_a_node_from_which_no_route_leads_out(no_route, known, named, expected):
    no_route(known, named)
    assert addresses.own_address(None) == expected


def test_a_node_whose_address_is_not_clear_lists_those_that_it_has(no_route):
    no_route({"eth0": "10.1.0.7", "ib0": "10.0.0.7"}, "127.0.1.1")
    with pytest.raises(addresses.AddressError, match=r"ib0 10\.0\.0\.7.*Set interface"):
        addresses.own_address(None)


def test_jobs_that_start_together_have_heads_with_different_ports(monkeypatch):
    monkeypatch.setattr(addresses, "port_is_free", lambda _port: True)
    blocks = [addresses.head_block(job, 11) for job in range(1000, 1100)]
    assert len(set(blocks)) == len(blocks)
    assert all(block in PORT_RANGE for block in blocks)


def test_workers_never_have_the_ports_of_heads():
    heads = PORT_RANGE.start + addresses.HEAD_BLOCKS * addresses.BLOCK
    workers = [addresses.worker_block(job, 3, 6) for job in range(2000)]
    assert heads <= min(workers)
    assert max(workers) + addresses.BLOCK <= PORT_RANGE.stop


def test_a_block_with_a_port_that_is_taken_is_passed_over():
    block = addresses.head_block(17, 11)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", block + 5))
        taken.listen()
        assert addresses.head_block(17, 11) != block


def test_a_port_is_the_users_own_or_taken_by_another(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listeners.listens(port)
        listeners.check([port])
        monkeypatch.setattr(listeners.os, "getuid", lambda: 12_345)
        assert not listeners.listens(port)
        with pytest.raises(listeners.TakenError):
            listeners.check(range(port - 1, port + 1))
    listeners.check([port])


def test_a_worker_shows_the_token_to_no_gcs_that_the_head_has_not_seen(tmp_path, monkeypatch):
    file = tmp_path / "cluster.json"
    monkeypatch.setattr(ray_node.gcs, "connect", lambda address: pytest.fail(address))
    with socket.create_server(("127.0.0.1", 0)) as anyone:
        address = f"127.0.0.1:{anyone.getsockname()[1]}"
        worker = ray_node.RayNode(
            name="workers-n2",
            address=address,
            cluster_file=file,
            flags=[],
            environment={},
            log=tmp_path / "log",
            join_s=0.3,
        )
        for text in ("{}", '{"gcs"', '{"gcs": "127.0.0.1:1"}'):
            file.write_text(text)
            with pytest.raises(TimeoutError):
                worker._wait_for_head()
    met = []
    monkeypatch.setattr(ray_node.gcs, "connect", met.append)
    monkeypatch.setattr(ray_node.gcs, "alive_nodes", lambda _client: {"head": "id"})
    file.write_text(json.dumps({"gcs": address}))
    worker._wait_for_head()
    assert met == [address]


# The check of a node


def plan(tmp_path, **changes):
    given = Plan(
        name="dev",
        ray_version="2.60.0",
        groups=[GROUP],
        interface=None,
        scratch=str(tmp_path.parents[-2]),
        join_s=60,
        notice_s=60,
        requeue=False,
    )
    made = replace(given, **changes)
    (tmp_path / "plan.json").write_text(made.to_json())
    return Plan.read(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ray_version": "2.44.0"}, "needs 2.44.0"),
        ({"scratch": "/nowhere"}, "scratch '/nowhere'"),
        ({"scratch": "/" + "x" * 60}, "characters"),
        ({"interface": "moon0"}, "moon0"),
    ],
    ids=str,
)
def test_what_is_wrong_on_a_node_is_told_with_its_name(tmp_path, capsys, changes, said):
    assert main.check(plan(tmp_path, **changes), GROUP, Allocation.of(STEP)) == main.WRONG
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("sunspot: node n2: ")
    assert said in told.err


def test_the_heads_check_prints_the_address_of_the_gcs(tmp_path, capsys):
    group = replace(GROUP, name="head")
    assert main.check(plan(tmp_path, interface="lo"), group, Allocation.of(STEP)) == 0
    assert capsys.readouterr().out.startswith("127.0.0.1:2")


def test_what_the_head_publishes_is_read_again():
    there = Published(gcs="a:1", dashboard="a:2", client="a:3", node="n1")
    assert Published.parse(there.to_json()) == there
    assert Published.parse("{}") is None
    assert Published.parse('{"gcs": "a') is None


def test_a_command_is_read_word_by_word(tmp_path):
    assert head.read_command(tmp_path) == []
    (tmp_path / "command").write_bytes(b"echo\0a b\0\0:\n\0")
    assert head.read_command(tmp_path) == ["echo", "a b", "", ":\n"]


def task(tmp_path):
    return Task(
        folder=tmp_path,
        plan=plan(tmp_path, scratch=str(tmp_path / "scratch")),
        group=GROUP,
        has=Allocation.of(STEP),
        address="127.0.0.1:1",
        joined=False,
    )


def test_a_node_removes_its_folder_and_those_that_killed_ones_left(tmp_path):
    mine = task(tmp_path)
    with scratch_folder(mine) as first:
        abandoned = first.with_name("16-abandoned")
        abandoned.mkdir()
        (abandoned / LOCK).touch()
        other = first.with_name("of-a-local-cluster")
        other.mkdir()
        with scratch_folder(mine) as second:
            assert first != second
            assert not abandoned.exists()
            assert first.exists()
        assert not second.exists()
    assert not first.exists()
    assert other.exists()


@pytest.fixture
def no_orphans(monkeypatch):
    """A task that runs in this process does not make it the parent of other tests' orphans."""
    monkeypatch.setattr(prctl, "adopt_orphans", lambda: None)


@pytest.fixture(params=["file", "link", "other-user"])
def foreign_scratch(request, tmp_path, monkeypatch):
    """A task whose folder in scratch somebody else has made first."""
    mine = task(tmp_path)
    folder = scratch_parent(mine.plan)
    folder.parent.mkdir()
    if request.param == "file":
        folder.touch()
    elif request.param == "link":
        folder.symlink_to(tmp_path / "nowhere")
    else:
        folder.mkdir()
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
        folder.rename(scratch_parent(mine.plan))
    return mine


@pytest.mark.usefixtures("no_orphans")
def test_a_folder_in_scratch_that_another_made_is_refused_before_ray_starts(
    foreign_scratch, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(main, "MAX_FOLDER", 4096)  # pytest's folders have long paths
    assert main.check(foreign_scratch.plan, GROUP, Allocation.of(STEP)) == main.WRONG
    assert "own: remove it, or set scratch" in capsys.readouterr().err
    assert run(foreign_scratch, lambda _node: pytest.fail("it started")) == 1
    assert "own: remove it, or set scratch" in capsys.readouterr().err
    assert (tmp_path / f"{FAILED}gpu-n2").exists()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.usefixtures("no_orphans")
def test_a_full_disk_ends_the_node_with_a_mark_that_the_head_sees(tmp_path, monkeypatch, capsys):
    def full(**_given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "scratch")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert run(task(tmp_path), lambda _node: pytest.fail("it started")) == 1
    assert "No space left" in capsys.readouterr().err
    assert (tmp_path / f"{FAILED}gpu-n2").exists()


# Processes

LEAVES_ORPHANS = """
import subprocess, sys, time
from sunspot.node import prctl
from sunspot.node.slurm import process_tree
prctl.adopt_orphans()
# A daemon that ignores SIGTERM, in a session of its own, whose parent ends at once.
daemon = "import os, signal, time; os.setsid(); signal.signal(15, signal.SIG_IGN); time.sleep(600)"
subprocess.run([sys.executable, "-c", f"import subprocess, sys; "
    f"subprocess.Popen([sys.executable, '-c', {daemon!r}])"])
print(*process_tree.descendants(), flush=True)
print(process_tree.end(None, 600, orphans_s=0.5), process_tree.descendants(), flush=True)
"""


def test_a_daemon_whose_parent_has_ended_is_ended_too():
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_ORPHANS], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    (daemon,) = map(int, first.split())
    assert second == "[] []"
    assert not Path(f"/proc/{daemon}").exists()
