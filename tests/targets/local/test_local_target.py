"""Finding a cluster, and what a local one answers in every state of its records."""

import os
import shutil
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from local_stacks import WORKERS, stack, write
from waiting import wait_for

from sunspot.errors import HeadLostError, NotUpError, SunspotError, UsageError
from sunspot.node.local.machines import LocalMachines
from sunspot.node.processes import Process
from sunspot.targets import records
from sunspot.targets.clusters import find, get
from sunspot.targets.local import remaining, scaling
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.protocol import silent
from sunspot.targets.records import Folders
from sunspot.targets.scaling import Size


@pytest.fixture
def clusters(tmp_path, monkeypatch):
    monkeypatch.setenv(records.STATE_DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path / "clusters"


def test_an_unknown_target_is_refused_with_those_that_exist():
    with pytest.raises(UsageError, match=r"no target 'moon'.*local"):
        get("moon")


@pytest.mark.parametrize(
    ("up", "name", "parts"),
    [
        ([], None, ["no cluster is up", "start it with: sunspot up"]),
        ([], "gpu", ["stack 'gpu' is not up", "sunspot up gpu"]),
        (["dev"], "gpu", ["stack 'gpu' is not up (up: dev)", "sunspot up gpu"]),
        (["a", "b"], "gpu", ["stack 'gpu' is not up (up: a, b)"]),
    ],
)
def test_a_cluster_that_is_not_up_says_which_are(clusters, up, name, parts):
    for one in up:
        write(clusters, stack(WORKERS, name=one))
    with pytest.raises(SunspotError) as caught:
        find(name)
    assert caught.value.exit_code == 1
    assert all(part in str(caught.value) for part in parts), caught.value


def test_of_several_clusters_one_must_be_named(clusters):
    for name in ("a", "b"):
        write(clusters, stack(WORKERS, name=name))
    with pytest.raises(UsageError, match=r"several clusters are up \(a, b\)"):
        find(None)
    assert find("b")[1] == "b"


def test_the_only_cluster_need_not_be_named(clusters):
    write(clusters, stack(WORKERS, name="a"))
    target, name = find(None)
    assert (target, name) == (LocalTarget(clusters), "a")
    assert target.stack(name) == stack(WORKERS, name="a")


# A cluster's state


def test_a_cluster_that_is_not_ready_has_no_handle(clusters):
    target = LocalTarget(clusters)
    with pytest.raises(SunspotError, match="'dev' is not up; start it with: sunspot up dev"):
        target.handle("dev")
    write(clusters, stack(WORKERS))
    with pytest.raises(SunspotError, match="still starting"):
        target.handle("dev")


def test_a_dead_head_says_what_to_do_and_shows_its_log(clusters):
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    folder.record_process("head", Process(pid=os.getpid(), start_time=1.0))
    folder.log("head").write_text("it hurt\n")
    with pytest.raises(HeadLostError) as caught:
        LocalTarget(clusters).handle("dev")
    assert "sunspot down dev && sunspot up dev --target local" in str(caught.value)
    assert str(caught.value).endswith("it hurt")


def test_nodes_have_the_state_that_record_and_process_say(clusters):
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    shape = folder.cluster().shapes["workers"]
    starting, lost, draining, gone = [folder.add_node(shape) for _ in range(4)]
    dead = Process(pid=os.getpid(), start_time=1.0)
    folder.record_process("head", Process.current())
    folder.record_process(lost.name, dead)
    folder.log(lost.name).write_text("evicted\n")
    folder.record_process(draining.name, Process.current())
    folder.record_process(gone.name, dead)
    for node in (draining, gone):
        folder.write_node(replace(node, goal="down"))
    found = LocalTarget(clusters).nodes("dev")
    assert [(node.name, node.state, node.log) for node in found] == [
        ("head", "up", ""),
        (starting.name, "starting", ""),
        (draining.name, "draining", ""),
        (lost.name, "lost", "evicted"),
    ]
    assert (found[0].market, found[1].market, found[1].memory_gb) == ("on-demand", "spot", 4.0)
    folder.update_cluster(ready_at=None)
    assert LocalTarget(clusters).nodes("dev")[0].state == "starting"


@pytest.mark.parametrize(
    ("group", "size", "part"),
    [
        ("gpu", Size(minimum=1), "no group 'gpu'; it has: workers"),
        ("head", Size(minimum=1), "no group 'head'"),
        ("workers", Size(minimum=5), "workers=5 is outside 0 to 4, its max_workers; raise"),
        ("workers", Size(minimum=-1), "workers=-1 is outside 0 to 4"),
        ("workers", Size(minimum=1, maximum=5), "workers=1:5 is outside 0 to 4"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(clusters, group, size, part):
    write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    target = LocalTarget(clusters)
    with pytest.raises(UsageError) as caught:
        target.scale("dev", {group: size}, silent)
    assert part in str(caught.value)
    assert target.sizes("dev") == {"workers": Size(minimum=0, maximum=4)}


def test_workers_that_go_are_not_listed_when_the_autoscaler_gets_a_lower_maximum(
    clusters, monkeypatch
):
    """It would stop them at once, whatever runs on them."""
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    node = folder.add_node(folder.cluster().shapes["workers"], "by the autoscaler")
    listed = []

    def set_size(*_):
        listed.append([machine.id for machine in LocalMachines(folder.path).list()])

    monkeypatch.setattr(scaling.plan, "set_size", set_size)
    monkeypatch.setattr(scaling.subprocess, "run", lambda *_, **__: None)
    size = Size(minimum=0, maximum=0)
    scaling._stop(folder, LocalTarget(clusters).handle("dev"), size, [node], silent)
    (names,) = listed
    assert node.name not in names
    assert "head" in names


def test_an_autoscalers_file_that_cannot_be_read_is_a_broken_record(clusters):
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    folder.autoscaler_config.write_text("{")
    with pytest.raises(SunspotError, match=r"autoscaler\.yaml cannot be read"):
        LocalTarget(clusters).sizes("dev")


def test_down_removes_every_file_and_a_second_one_finds_nothing(clusters):
    folder = write(clusters, stack(WORKERS))
    target = LocalTarget(clusters)
    removal = target.down("dev", silent)
    assert removal is not None
    assert removal.left == []
    assert not folder.path.exists()
    assert target.names() == []
    assert target.down("dev", silent) is None


@pytest.mark.parametrize(("held_s", "left"), [(0.3, 0), (60.0, 1)])
def test_down_tells_of_a_port_that_stays_and_waits_for_one_that_closes(
    clusters, held_s, left, monkeypatch
):
    # As by a process whose last thread has not ended yet: it is no process of the cluster any more.
    monkeypatch.setattr(remaining, "LEFT_GRACE_S", 5.0 if not left else 0.2)
    monkeypatch.setattr(remaining, "taken_by_others", lambda _: set())
    monkeypatch.setattr(remaining, "listeners", lambda _: [None])
    folder = write(clusters, stack(WORKERS))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        folder.update_cluster(gcs_port=port)
        closing = threading.Timer(held_s, server.close)
        closing.start()
        removal = LocalTarget(clusters).down("dev", silent)
        closing.cancel()
    assert removal is not None
    assert removal.left == [f"port {port}"] * left


@pytest.mark.parametrize("taken", ["before", "meanwhile"])
def test_down_says_nothing_of_a_port_that_another_program_has(clusters, taken, monkeypatch):
    if taken == "meanwhile":
        monkeypatch.setattr(remaining, "LEFT_GRACE_S", 0.2)
        monkeypatch.setattr(remaining, "taken_by_others", lambda _: set())
    folder = write(clusters, stack(WORKERS))
    with socket.create_server(("127.0.0.1", 0)) as server:
        folder.update_cluster(gcs_port=server.getsockname()[1])
        removal = LocalTarget(clusters).down("dev", silent)
    assert removal is not None
    assert removal.left == []


@pytest.mark.parametrize("file", ["cluster.json", "nodes/head.json", "nodes/head.pid"])
@pytest.mark.parametrize("text", ["", "{}"])
def test_down_removes_a_cluster_whose_records_are_broken(clusters, file, text):
    # A full disk or a power cut may leave them so.
    folder = write(clusters, stack(WORKERS))
    (folder.path / file).write_text(text)
    assert LocalTarget(clusters).down("dev", silent) is not None
    assert not folder.path.exists()


@pytest.mark.parametrize("file", ["cluster.json", "nodes/head.json", "nodes/head.pid"])
@pytest.mark.parametrize("ask", ["handle", "nodes"])
def test_a_broken_record_is_an_error_that_says_what_to_do(clusters, file, ask):
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    folder.record_process("head", Process.current())
    (folder.path / file).write_text("")
    try:
        getattr(LocalTarget(clusters), ask)("dev")  # an answer is fine where the file is not read
    except SunspotError as error:
        assert "sunspot down dev" in str(error)  # noqa: PT017


@pytest.mark.parametrize("ask", ["handle", "nodes", "stack", "is_suspended"])
def test_a_cluster_that_is_taken_down_while_it_is_asked_is_not_up(clusters, monkeypatch, ask):
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    (folder.path / "cluster.json").unlink()
    monkeypatch.setattr(type(folder), "exists", lambda _: True)  # a moment before
    with pytest.raises(NotUpError, match="'dev' is not up"):
        getattr(LocalTarget(clusters), ask)("dev")


def test_a_scale_that_waited_for_a_down_says_that_the_cluster_is_not_up(clusters):
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    wanted, told = {"workers": Size(minimum=1)}, []
    with ThreadPoolExecutor() as pool:
        with Folders(clusters).locked("dev"):
            scaled = pool.submit(LocalTarget(clusters).scale, "dev", wanted, told.append)
            wait_for("its wait", lambda: told)
            shutil.rmtree(folder.path)
        assert isinstance(scaled.exception(30), NotUpError)


@pytest.mark.parametrize("flag", ["port", "dashboard_port"])
def test_a_port_that_is_taken_is_refused_before_anything_starts(clusters, flag):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            LocalTarget(clusters).up(stack(WORKERS), lambda _: None, **{flag: taken})
    message = str(caught.value)
    assert f"port {taken} is taken" in message
    assert f"pid {os.getpid()}" in message
    assert f"--{flag.replace('_', '-')}" in message
    assert LocalTarget(clusters).names() == []


def test_no_folder_of_the_state_directory_shows_the_names(tmp_path):
    """A record may be the first that is written there: of a cluster that somebody else made."""
    root = tmp_path / "state" / "kubernetes"
    Folders(root).write("dev", "place.json", {})
    folders = (root.parent, root, root / "dev")
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 3


def test_a_state_directory_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError) as caught:
        LocalTarget(tmp_path / "file" / "clusters").up(stack(WORKERS), lambda _: None)
    assert str(tmp_path / "file") in str(caught.value)
    assert records.STATE_DIRECTORY_VARIABLE in str(caught.value)


def test_a_command_that_waits_for_another_says_for_whom_and_for_how_long(clusters, monkeypatch):
    monkeypatch.setattr(records, "REPEAT_NOTE_S", 0.0)
    folders, told, entered = Folders(clusters), [], threading.Event()

    def wait():
        with folders.locked("dev", told.append):
            entered.set()

    with folders.locked("dev"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_for("the first word", lambda: len(told) > 1)
        assert not entered.is_set()
    waiting.join()
    assert entered.is_set()
    assert f"waiting for process {os.getpid()}, which has been working on dev for" in told[0]


def test_a_lock_leaves_nothing_where_there_is_no_cluster(clusters):
    with Folders(clusters).locked("dev"):
        pass
    assert list(clusters.iterdir()) == []
