"""Machines for Ray's autoscaler, its config file, and the shapes that a stack's nodes get."""

import math
import os
import socket
import subprocess
import sys
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import yaml

from sunspot import catalog, targets
from sunspot.errors import SunspotError, UsageError
from sunspot.node import local_machines, ray_start
from sunspot.node.local import ClusterFolder, ClusterRecord, NodeShape, Process
from sunspot.node.local_machines import LocalMachines
from sunspot.spec import AutoscalerConfig, RayClusterConfig, RayNodeConfig, ScalingGroup
from sunspot.stack import Stack
from sunspot.targets import local
from sunspot.targets import local_plan as plan
from sunspot.targets.local import GIB, LocalTarget

DEADLINE_S = 10.0
NODE = RayNodeConfig(cpu=2, memory_gb=4)
WORKERS = ScalingGroup(worker_nodes=NODE, min_workers=0, max_workers=4, market="spot")
AUTOSCALER = AutoscalerConfig(cpu=0.5, memory_gb=1)


def stack(*groups, head=NODE, name="dev"):
    cluster = RayClusterConfig(
        head_node=head, scaling_groups=groups, autoscaler_config=AUTOSCALER, ray_version="2.60.0"
    )
    return Stack(name=name, target="local", cluster=cluster)


def write(clusters, described, **fields):
    """The folder of a cluster of that stack, as `up` leaves it, with no process of it."""
    folder = ClusterFolder(clusters / described.name)
    shapes = plan.shapes(described)
    record = ClusterRecord(
        name=described.name,
        created_at=time.time(),
        gcs_port=1,
        dashboard_port=2,
        shapes=shapes,
        stack=described.model_dump(mode="json"),
        **fields,
    )
    folder.write_cluster(record)
    folder.add_node(shapes["head"])
    plan.write_autoscaler_config(folder, described)
    return folder


@pytest.fixture
def folder(tmp_path):
    made = write(tmp_path / "clusters", stack(WORKERS))
    made.record_process("head", Process.current())  # this test stands in for the head
    return made


@pytest.fixture
def launched(monkeypatch):
    """The names for which a launcher was started; the launcher itself is one that does nothing."""
    names: list[str] = []

    def launch(_folder, nodes, *, stdout):
        names.extend(node.name for node in nodes)
        return subprocess.Popen([sys.executable, "-c", ""], stdout=stdout)

    monkeypatch.setattr(local_machines, "launch", launch)
    return names


@pytest.fixture
def provider(folder, launched):
    from sunspot.node.autoscaler import MachinesProvider

    return MachinesProvider({"folder": str(folder.path)}, "dev")


def create(provider, count=1, group="workers"):
    provider.create_node_with_resources_and_labels(
        {}, {"ray-user-node-type": group}, count, {"CPU": 2}, {}
    )


def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
    return result


# The provider


def test_tags_are_those_that_ray_asks_for(provider):
    create(provider)
    assert provider.node_tags("head") == {
        "ray-node-type": "head",
        "ray-user-node-type": "head",
        "ray-node-status": "up-to-date",
    }
    assert provider.node_tags("workers-0") == {
        "ray-node-type": "worker",
        "ray-user-node-type": "workers",
        "ray-node-status": "up-to-date",
    }
    assert provider.node_tags("nobody") == {}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["head", "workers-0", "workers-1"]),
        ({"ray-node-type": "head"}, ["head"]),
        ({"ray-node-type": "worker", "ray-user-node-type": "workers"}, ["workers-0", "workers-1"]),
        ({"ray-user-node-type": "gpu"}, []),
        ({"unknown": "x"}, []),
    ],
)
def test_nodes_are_listed_by_tag(provider, filters, expected):
    create(provider, 2)
    assert provider.non_terminated_nodes(filters) == expected


def test_a_node_runs_once_its_process_does(provider, folder):
    create(provider)
    assert provider.is_running("head")
    assert not provider.is_running("workers-0")
    assert not provider.is_terminated("workers-0")
    folder.record_process("workers-0", Process.current())
    assert provider.is_running("workers-0")


def test_a_lost_node_is_terminated_so_that_it_is_replaced(provider, folder):
    create(provider)
    folder.record_process("workers-0", Process(pid=os.getpid(), start_time=1.0))
    assert provider.is_terminated("workers-0")
    assert provider.non_terminated_nodes({}) == ["head"]
    create(provider)
    assert provider.non_terminated_nodes({}) == ["head", "workers-1"]


def test_the_head_is_never_terminated(provider, folder):
    provider.terminate_node("head")
    provider.terminate_nodes(["head"])
    assert provider.is_running("head")
    assert folder.nodes()[0].goal == "up"


def test_terminating_again_or_nobody_is_no_error(provider):
    create(provider)
    for node in ("workers-0", "workers-0", "workers-99", "nobody"):
        provider.terminate_node(node)
        assert provider.is_terminated(node)
    assert provider.non_terminated_nodes({}) == ["head"]


def test_terminate_from_several_threads_at_once(provider):
    create(provider, 4)
    names = [f"workers-{n}" for n in range(4)] * 8
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(provider.terminate_node, names))
    assert provider.non_terminated_nodes({}) == ["head"]


def test_create_from_several_threads_gives_names_and_ports_of_their_own(provider, folder, launched):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: create(provider, 2), range(8)))
    nodes = folder.nodes()
    names = {node.name for node in nodes}
    assert names == {"head", *(f"workers-{number}" for number in range(16))}
    assert len({node.agent_port for node in nodes}) == 17
    assert len({node.temp_dir for node in nodes}) == 17
    assert sorted(launched) == sorted(names - {"head"})


def test_a_new_node_has_its_groups_shape(provider, folder):
    create(provider)
    assert folder.nodes()[1].shape == folder.cluster().shapes["workers"]


def test_launchers_that_ended_are_reaped(folder, launched):
    made = LocalMachines(folder.path)
    made.create("workers", 1)
    until(lambda: made.list() and not made._launchers)


def test_an_unknown_type_is_an_error_and_leaves_no_node(provider, folder, launched):
    with pytest.raises(KeyError, match="nonsense"):
        create(provider, group="nonsense")
    assert [node.name for node in folder.nodes()] == ["head"]
    assert not launched


# Ray's own autoscaler on top of it


@pytest.fixture
def adapter(provider, folder):
    from ray.autoscaler.v2.instance_manager.config import FileConfigReader
    from ray.autoscaler.v2.instance_manager.node_provider import NodeProviderAdapter

    return NodeProviderAdapter(provider, FileConfigReader(str(folder.autoscaler_config)))


def test_rays_adapter_launches_and_terminates(adapter):
    from ray.core.generated.instance_manager_pb2 import NodeKind  # pyright: ignore[reportAttributeAccessIssue]

    adapter.launch({"workers": 2}, "request-1")
    until(lambda: len(adapter.get_non_terminated()) == 3)
    found = adapter.get_non_terminated()
    assert {name: node.node_type for name, node in found.items()} == {
        "head": "head",
        "workers-0": "workers",
        "workers-1": "workers",
    }
    kinds = {name: node.node_kind for name, node in found.items()}
    assert kinds == {
        "head": NodeKind.HEAD,
        "workers-0": NodeKind.WORKER,
        "workers-1": NodeKind.WORKER,
    }
    assert (found["head"].is_running, found["workers-0"].is_running) == (True, False)
    adapter.terminate(["workers-0", "head"], "request-2")
    until(lambda: set(adapter.get_non_terminated()) == {"head", "workers-1"})
    assert adapter.poll_errors() == []


def test_rays_adapter_hears_of_a_launch_that_failed(adapter, folder):
    shapes = folder.cluster().shapes
    folder.update_cluster(shapes={"head": shapes["head"]})
    adapter.launch({"workers": 1}, "request-1")
    (error,) = until(adapter.poll_errors)
    assert (error.node_type, error.request_id) == ("workers", "request-1")


STACKS = {
    "elastic": stack(WORKERS),
    "fixed": stack(ScalingGroup(worker_nodes=NODE, min_workers=2, max_workers=2)),
    "head-alone": stack(),
    "gpus": stack(
        ScalingGroup(
            name="t4",
            worker_nodes=RayNodeConfig(vm_size="NC4as_T4_v3"),
            min_workers=0,
            max_workers=3,
            market="spot-with-fallback",
        ),
        WORKERS,
    ),
    "half-a-cpu": stack(WORKERS, head=RayNodeConfig(cpu=0.5, memory_gb=2)),
}


@pytest.mark.parametrize("described", STACKS.values(), ids=STACKS)
def test_the_config_file_passes_rays_own_checks(tmp_path, described):
    from ray.autoscaler._private.util import prepare_config, validate_config
    from ray.autoscaler.v2.instance_manager.config import FileConfigReader

    file = write(tmp_path, described).autoscaler_config
    config = yaml.safe_load(file.read_text())
    prepared = prepare_config(config)
    validate_config(prepared)
    read = FileConfigReader(str(file)).get_cached_autoscaling_config()
    groups = described.cluster.scaling_groups
    assert read.get_max_num_worker_nodes() == sum(group.max_workers for group in groups)
    types = read.get_node_type_configs()
    assert set(types) == {"head", *(group.name for group in groups)}
    for group in groups:
        found = types[group.name]
        assert found.min_worker_nodes == group.min_workers
        assert found.max_worker_nodes == group.max_workers
        assert found.labels["ray.io/node-group"] == group.name
        assert found.resources["CPU"] == math.ceil(group.worker_nodes.cpu)
        assert found.resources["memory"] == group.worker_nodes.memory_gb * GIB


def test_a_new_minimum_is_in_the_file_and_nothing_else_changes(folder):
    before = yaml.safe_load(folder.autoscaler_config.read_text())
    plan.set_minimum(folder, "workers", 3)
    after = yaml.safe_load(folder.autoscaler_config.read_text())
    assert after["available_node_types"]["workers"].pop("min_workers") == 3
    assert before["available_node_types"]["workers"].pop("min_workers") == 0
    assert after == before
    assert folder.autoscaler_config.stat().st_mode & 0o777 == 0o600


# What each node gets


Memory = namedtuple("Memory", "total")


@pytest.fixture
def host(monkeypatch):
    """Sets how much memory this machine has."""

    def host(gib):
        monkeypatch.setattr(plan.psutil, "virtual_memory", lambda: Memory(int(gib * GIB)))

    return host


@pytest.mark.parametrize(
    ("host_gib", "memory_gb", "expected"),
    [
        (1000, 4, int(4 * GIB * 0.3)),  # Ray's own share of the node
        (10, 8, int(10 * GIB * 0.3 / 5)),  # five nodes at most share what the machine has
        (1, 4, 75 * 2**20),  # Ray takes no less
    ],
)
def test_object_stores_fit_the_node_and_the_machine(host, host_gib, memory_gb, expected):
    host(host_gib)
    node = RayNodeConfig(cpu=2, memory_gb=memory_gb)
    shapes = plan.shapes(stack(WORKERS.model_copy(update={"worker_nodes": node}), head=node))
    assert {shape.object_store_memory for shape in shapes.values()} == {expected}
    assert {shape.memory for shape in shapes.values()} == {memory_gb * GIB}


def test_rays_minimum_is_the_one_we_know():
    from ray._private import ray_constants

    assert plan.OBJECT_STORE_MINIMUM == ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES
    assert plan.OBJECT_STORE_SHARE == ray_constants.DEFAULT_OBJECT_STORE_MEMORY_PROPORTION


@pytest.mark.parametrize(
    ("market", "label"),
    [("spot", "spot"), ("on-demand", "on-demand"), ("spot-with-fallback", "spot")],
)
def test_market_becomes_a_label_and_the_head_is_on_demand(market, label):
    shapes = plan.shapes(stack(WORKERS.model_copy(update={"market": market})))
    assert (shapes["head"].market, shapes["workers"].market) == ("on-demand", label)


@pytest.mark.parametrize(
    ("vm_size", "accelerator"),
    [
        ("NC4as_T4_v3", "T4"),
        ("NC24ads_A100_v4", "A100"),
        ("NC40ads_H100_v5", "H100"),
        ("ND96isr_MI300X_v5", "AMD-Instinct-MI300X-OAM"),
        ("D2s_v5", None),
    ],
)
def test_accelerators_have_rays_names(vm_size, accelerator):
    shapes = plan.shapes(stack(head=RayNodeConfig(vm_size=vm_size)))
    assert shapes["head"].accelerator == accelerator
    assert shapes["head"].gpus == catalog.get(vm_size).gpu_count


def test_ray_knows_every_accelerator_of_the_catalogue():
    from ray.util import accelerators

    known = {value for value in vars(accelerators).values() if isinstance(value, str)}
    for size in catalog.load():
        if size.gpu_name:
            assert size.accelerator_type in known


def test_needs_without_a_size_have_no_accelerator():
    node = RayNodeConfig(cpu=2, memory_gb=4, gpu_count=1)
    shape = plan.shapes(stack(head=node))["head"]
    assert (shape.gpus, shape.accelerator) == (1, None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"CPU": 2, "memory": GIB}),
        ({"gpus": 1, "accelerator": "T4"}, {"GPU": 1, "accelerator_type:T4": 1}),
        ({"cpus": 0.5}, {"CPU": 0.5}),
        ({"cpus": 2.0}, {"CPU": 2}),
    ],
)
def test_the_autoscaler_counts_what_the_node_will_have(changes, expected):
    shape = NodeShape(group="g", market="spot", cpus=2, gpus=0, memory=GIB, object_store_memory=GIB)
    found = plan._autoscaler_resources(replace(shape, **changes))
    assert found == {"CPU": 2, "memory": GIB} | expected
    assert all(type(n) is int or n != int(n) for n in found.values())


# What `ray start` is told


def parsed(folder, node):
    """The node's command line as Ray's own `ray start` reads it."""
    from ray.scripts import scripts

    command = ray_start.arguments(folder, folder.cluster(), node)
    assert command[0] == "start"
    return scripts.start.make_context("start", command[1:]).params


@pytest.mark.parametrize("cpu", [1, 2.0, 96, 0.5, 1.5])
def test_ray_takes_the_command_line_of_every_node(tmp_path, cpu):
    node = RayNodeConfig(cpu=cpu, memory_gb=4.5)
    folder = write(tmp_path, stack(head=node))
    head = parsed(folder, folder.nodes()[0])
    assert head["num_cpus"] == math.ceil(cpu)  # Ray has no half CPUs on a node
    assert head["memory"] == int(4.5 * GIB)


def test_ray_reads_shape_labels_and_ports(tmp_path):
    gpus = ScalingGroup(
        name="gpu", worker_nodes=RayNodeConfig(vm_size="NC64as_T4_v3"), market="spot"
    )
    folder = write(tmp_path, stack(gpus), address="10.0.0.1:6379")
    folder.add_node(folder.cluster().shapes["gpu"])
    head_node, worker_node = folder.nodes()
    head, worker = parsed(folder, head_node), parsed(folder, worker_node)
    assert head["head"] is True
    assert (int(head["port"]), int(head["dashboard_port"])) == (1, 2)
    assert head["autoscaling_config"] == str(folder.autoscaler_config)
    assert (worker["head"], worker["address"]) == (False, "10.0.0.1:6379")
    assert (worker["num_cpus"], worker["num_gpus"]) == (64, 4)
    assert yaml.safe_load(worker["resources"]) == {"accelerator_type:T4": 1}
    assert worker["labels"] == "ray.io/node-group=gpu,ray.io/market-type=spot"
    assert worker["dashboard_agent_listen_port"] == worker_node.agent_port
    assert worker["autoscaling_config"] is None


def test_the_nodes_environment_points_at_no_other_cluster(tmp_path, monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_API_SERVER_ADDRESS", "RAY_JOB_ID"):
        monkeypatch.setenv(name, "another")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("MINE", "stays")
    folder = ClusterFolder(tmp_path / "dev")
    environment = ray_start.child_environment(folder)
    assert "another" not in environment.values()
    assert environment["MINE"] == "stays"
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(folder.token)
    assert environment["SUNSPOT_CLUSTER"] == str(folder.path)
    assert environment["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)  # noqa: PTH120


# Finding clusters


@pytest.fixture
def clusters(tmp_path, monkeypatch):
    monkeypatch.setenv(local.STATE_DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path / "clusters"


@pytest.mark.parametrize("name", targets.PLANNED)
def test_a_target_that_is_not_built_says_so(name):
    with pytest.raises(UsageError, match=f"target '{name}' is not built yet; .*--target local"):
        targets.get(name)


def test_an_unknown_target_is_refused_with_those_that_exist():
    with pytest.raises(UsageError, match="no target 'moon'; there are: local"):
        targets.get("moon")


def test_every_target_of_a_stack_file_is_built_or_planned():
    from sunspot import stack as stacks

    assert {*targets.MODULES, *targets.PLANNED} == set(stacks.TARGETS)


@pytest.mark.parametrize(
    ("up", "name", "parts"),
    [
        ([], None, ["no cluster is up", "sunspot up dev"]),
        ([], "gpu", ["stack 'gpu' is not up", "sunspot up gpu"]),
        (["dev"], "gpu", ["stack 'gpu' is not up (up: dev)", "sunspot up gpu"]),
        (["a", "b"], "gpu", ["stack 'gpu' is not up (up: a, b)"]),
    ],
)
def test_a_cluster_that_is_not_up_says_which_are(clusters, up, name, parts):
    for one in up:
        write(clusters, stack(WORKERS, name=one))
    with pytest.raises(SunspotError) as caught:
        targets.find(name)
    assert caught.value.exit_code == 1
    assert all(part in str(caught.value) for part in parts), caught.value


def test_of_several_clusters_one_must_be_named(clusters):
    for name in ("a", "b"):
        write(clusters, stack(WORKERS, name=name))
    with pytest.raises(UsageError, match=r"several clusters are up \(a, b\); say which"):
        targets.find(None)
    assert targets.find("b")[1] == "b"


def test_the_only_cluster_need_not_be_named(clusters):
    write(clusters, stack(WORKERS, name="a"))
    target, name, _ = targets.find(None)
    assert (target, name) == (LocalTarget(clusters), "a")
    assert target.stack(name) == stack(WORKERS, name="a")


# A cluster's state


def test_a_cluster_that_is_not_ready_has_no_handle(clusters):
    target = LocalTarget(clusters)
    with pytest.raises(SunspotError, match="'dev' is not up; start it with: sunspot up dev"):
        target.handle("dev")
    write(clusters, stack(WORKERS))
    with pytest.raises(SunspotError, match="still starting, or was interrupted"):
        target.handle("dev")


def test_a_dead_head_says_what_to_do_and_shows_its_log(clusters):
    folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    folder.record_process("head", Process(pid=os.getpid(), start_time=1.0))
    folder.log("head").write_text("it hurt\n")
    with pytest.raises(targets.HeadLostError) as caught:
        LocalTarget(clusters).handle("dev")
    assert "sunspot down dev && sunspot up dev" in str(caught.value)
    assert str(caught.value).endswith("it hurt")


def test_nodes_have_the_state_that_record_and_process_say(clusters):
    folder = write(clusters, stack(WORKERS))
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


@pytest.mark.parametrize(
    ("group", "count", "part"),
    [
        ("gpu", 1, "no group 'gpu'; it has: workers"),
        ("head", 1, "no group 'head'"),
        ("workers", 5, "workers=5 is outside 0 to 4"),
        ("workers", -1, "workers=-1 is outside 0 to 4"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(clusters, group, count, part):
    write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
    with pytest.raises(UsageError) as caught:
        LocalTarget(clusters).scale("dev", group, count, lambda _: None)
    assert part in str(caught.value)


def test_down_removes_every_file_and_a_second_one_finds_nothing(clusters):
    folder = write(clusters, stack(WORKERS))
    target = LocalTarget(clusters)
    assert target.down("dev", lambda _: None) is True
    assert not folder.path.exists()
    assert target.names() == []
    assert target.down("dev", lambda _: None) is False


@pytest.mark.parametrize("file", ["cluster.json", "nodes/head.json", "nodes/head.pid"])
@pytest.mark.parametrize("text", ["", "{}"])
def test_down_removes_a_cluster_whose_records_are_broken(clusters, file, text):
    # A full disk or a power cut may leave them so.
    folder = write(clusters, stack(WORKERS))
    (folder.path / file).write_text(text)
    assert LocalTarget(clusters).down("dev", lambda _: None) is True
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


def test_a_state_directory_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError) as caught:
        LocalTarget(tmp_path / "file" / "clusters").up(stack(WORKERS), lambda _: None)
    assert str(tmp_path / "file") in str(caught.value)
    assert local.STATE_DIRECTORY_VARIABLE in str(caught.value)
