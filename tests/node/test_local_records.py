"""The records of a local cluster on disk, its ports and locks."""

import os
import random
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from sunspot.node import files, free_ports
from sunspot.node.local import folder as local
from sunspot.node.local.folder import ClusterFolder, ClusterRecord, NodeShape

SHAPE = NodeShape(
    group="workers",
    market="spot",
    cpus=2,
    gpus=0,
    memory=2**31,
    flags=["--num-cpus=2"],
    environment={"RAY_AUTH_MODE": "token"},
)
HEAD = replace(SHAPE, group="head", market="on-demand")


def record(name="dev", gcs_port=6379, dashboard_port=8265):
    return ClusterRecord(
        name=name,
        gcs_port=gcs_port,
        dashboard_port=dashboard_port,
        shapes={"head": HEAD, "workers": SHAPE},
        stack={"name": name},
    )


@pytest.fixture
def folder(tmp_path):
    return ClusterFolder(tmp_path / "clusters" / "dev")


# Files


def test_a_private_file_is_only_its_owners_even_if_it_was_not(tmp_path):
    path = tmp_path / "new" / "deep" / "token"
    files.write_private(path, "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    files.write_private(path, "other")
    assert path.read_text() == "other"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["token"]


def test_a_private_file_is_private_under_any_umask(tmp_path):
    before = os.umask(0)
    try:
        files.write_private(tmp_path / "a" / "token", "secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("kept")
    with pytest.raises(OSError, match="full"):
        files.write_private(tmp_path / "full", "new")
    assert (tmp_path / "full" / "x").read_text() == "kept"
    assert [entry.name for entry in tmp_path.iterdir()] == ["full"]


def test_a_write_that_cannot_be_encoded_leaves_nothing_else(tmp_path):
    files.write_private(tmp_path / "x", "old")
    with suppress(UnicodeEncodeError):
        files.write_private(tmp_path / "x", "\udc80")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    files.write_private(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "new"


def test_readers_never_see_half_a_file(tmp_path):
    path, texts = tmp_path / "x", {letter * 200_000 for letter in "ab"}
    files.write_private(path, "a" * 200_000)
    stop = threading.Event()

    def read():
        seen = set()
        while not stop.is_set():
            seen.add(path.read_text())
        return seen

    with ThreadPoolExecutor() as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for _ in range(50):
            for text in texts:
                files.write_private(path, text)
        stop.set()
        assert set().union(*(reader.result() for reader in readers)) <= texts


def test_threads_may_write_the_same_file_at_once(tmp_path):
    # Ray's autoscaler calls the provider, and so this, from several threads.
    path = tmp_path / "x"

    def write(number):
        for _ in range(100):
            files.write_private(path, str(number) * 1000)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(write, number) for number in range(4)]:
            future.result()
    assert len(set(path.read_text())) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


# Records


def test_records_come_back_as_they_were_written(folder):
    assert not folder.exists()
    folder.write_cluster(record())
    assert folder.exists()
    assert stat.S_IMODE((folder.path / "cluster.json").stat().st_mode) == 0o600
    assert folder.cluster() == record()
    changed = folder.update_cluster(address="127.0.0.1:6379", ready_at=2.5)
    assert changed == replace(record(), address="127.0.0.1:6379", ready_at=2.5)
    assert folder.cluster() == changed
    node = folder.add_node(replace(SHAPE, flags=["--num-cpus=4"], cpus=4))
    assert folder.nodes() == [node]
    assert (node.shape.flags, node.shape.cpus, node.goal) == (["--num-cpus=4"], 4, "up")
    assert not node.is_head


def test_names_are_never_used_twice(folder):
    first = [folder.add_node(SHAPE) for _ in range(2)]
    assert [node.name for node in first] == ["workers-0", "workers-1"]
    for node in first:
        folder.write_node(replace(node, goal="down"))
    assert folder.add_node(SHAPE).name == "workers-2"
    assert folder.add_node(replace(SHAPE, group="gpu")).name == "gpu-0"


def test_every_node_has_a_port_and_a_folder_of_its_own(folder):
    nodes = [folder.add_node(HEAD), *(folder.add_node(SHAPE) for _ in range(5))]
    assert len({node.agent_port for node in nodes}) == 6
    assert len({node.temp_dir for node in nodes}) == 6
    assert all(node.agent_port in free_ports.PORT_RANGE for node in nodes)


def test_nodes_are_listed_head_first_then_by_group_and_number(folder):
    shapes = [SHAPE] * 11 + [HEAD, replace(SHAPE, group="a-10"), replace(SHAPE, group="a-9")]
    for shape in random.sample(shapes, k=len(shapes)):
        folder.add_node(shape)
    assert [node.name for node in folder.nodes()] == [
        "head",
        "a-10-0",
        "a-9-0",
        *(f"workers-{number}" for number in range(11)),
    ]


def test_the_log_tail_is_the_end_without_blank_lines(folder):
    assert folder.log_tail("head") == ""
    folder.log("head").parent.mkdir(parents=True)
    folder.log("head").write_bytes(b"".join(b"line %d\n" % n for n in range(30)) + b"\xff\n\n\n")
    tail = folder.log_tail("head").splitlines()
    assert tail[-3:] == ["line 28", "line 29", "\ufffd"]
    assert len(tail) == 12


def test_the_log_tail_has_no_colour_codes(folder):
    folder.log("head").parent.mkdir(parents=True)
    folder.log("head").write_text("\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[22m\n")
    assert folder.log_tail("head") == "red and bold"


def test_the_temporary_folder_leaves_room_for_rays_sockets(folder, tmp_path):
    other = ClusterFolder(tmp_path / "clusters" / "dev2")
    assert folder.temp_dir != other.temp_dir
    assert folder.temp_dir == ClusterFolder(folder.path).temp_dir
    longest = "99/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    assert len(str(folder.temp_dir / longest)) <= 107


# Ports


def test_ports_of_all_clusters_are_reserved_used_or_not(tmp_path):
    clusters = tmp_path / "clusters"
    assert local.reserved_ports(clusters) == {}
    one, two = ClusterFolder(clusters / "one"), ClusterFolder(clusters / "two")
    one.write_cluster(record("one", 1001, 1002))
    two.write_cluster(record("two", 2001, 2002))
    nodes = [one.add_node(HEAD), two.add_node(HEAD), two.add_node(SHAPE)]
    two.write_node(replace(nodes[-1], goal="down"))
    found = local.reserved_ports(clusters)
    assert found.keys() == {1001, 1002, 2001, 2002} | {node.agent_port for node in nodes}
    assert [found[port] for port in (1001, 2002, nodes[-1].agent_port)] == ["one", "two", "two"]


@pytest.mark.parametrize("text", ["", '{"name": "x"', "[]", '{"shapes": {}}', "{}", "null"])
@pytest.mark.parametrize("file", ["cluster.json", "nodes/head.json"])
def test_a_corrupt_record_does_not_hide_the_ports_of_other_clusters(tmp_path, text, file):
    clusters = tmp_path / "clusters"
    broken, whole = ClusterFolder(clusters / "a"), ClusterFolder(clusters / "b")
    for folder in (broken, whole):
        folder.write_cluster(record())
        folder.add_node(HEAD)
    (broken.path / file).write_text(text)
    whole.write_cluster(record("b", 2001, 2002))
    expected = {2001, 2002, *(n.agent_port for n in whole.nodes())}
    assert expected <= local.reserved_ports(clusters).keys()


def test_a_free_port_is_of_the_range_and_not_among_the_taken():
    port = free_ports.free_port(set())
    assert port in free_ports.PORT_RANGE
    others = set(free_ports.PORT_RANGE) - {port}
    assert free_ports.free_port(others) == port


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])  # noqa: S104
def test_a_port_that_is_in_use_is_skipped(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    except (OSError, ValueError):
        pytest.skip("this machine has no IPv6")
    with server:
        port = server.getsockname()[1]
        assert not free_ports.port_is_free(port)
    assert free_ports.port_is_free(port)


def test_no_free_port_is_an_error_with_the_range():
    with pytest.raises(OSError, match="no free TCP port between 20000 and 31999"):
        free_ports.free_port(set(free_ports.PORT_RANGE))


# Locks


HOLDER = """
import sys
from pathlib import Path
from sunspot.node.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_keeps_other_processes_out_until_its_holder_is_gone(tmp_path):
    lock = tmp_path / "new" / ".dev.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError), files.locked(lock, wait=False):
            pass
        holder.kill()
        holder.wait()
        with files.locked(lock):
            pass


def test_a_lock_whose_file_is_removed_by_each_holder_still_keeps_others_out(tmp_path):
    lock = tmp_path / ".dev.lock"
    held, busy = [0], []

    def work(_):
        with files.locked(lock):
            held[0] += 1
            busy.append(held[0])
            held[0] -= 1
            lock.unlink()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert set(busy) == {1}
    assert not lock.exists()


def test_a_lock_keeps_other_threads_out(tmp_path):
    held, busy = [0], []

    def work(_):
        with local.ports_locked(tmp_path):
            held[0] += 1
            busy.append(held[0])
            held[0] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert set(busy) == {1}
