"""What the nodes of a stack get on this machine, and what `ray start` is told."""

import ipaddress
import os
import socket
import sys
from collections import namedtuple
from dataclasses import replace

import pytest
import yaml
from local_stacks import WORKERS, stack, write

from sunspot.node.local import ray_start
from sunspot.ray.resources import GIB
from sunspot.spec import RayNodeConfig, ScalingGroup
from sunspot.targets.local import plan
from sunspot.targets.scaling import Size

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
def test_object_stores_fit_the_node_and_the_machine(tmp_path, host, host_gib, memory_gb, expected):
    host(host_gib)
    node = RayNodeConfig(cpu=2, memory_gb=memory_gb)
    described = stack(replace(WORKERS, worker_nodes=node), head=node)
    folder = write(tmp_path, described, address="10.0.0.1:6379")
    worker = folder.add_node(folder.cluster().shapes["workers"])
    for told in (parsed(folder, folder.nodes()[0]), parsed(folder, worker)):
        assert (told["object_store_memory"], told["memory"]) == (expected, memory_gb * GIB)


def test_rays_minimum_is_the_one_we_know():
    from ray._private import ray_constants

    assert plan.OBJECT_STORE_MINIMUM == ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES


@pytest.mark.parametrize(
    ("market", "label"),
    [("spot", "spot"), ("on-demand", "on-demand"), ("spot-with-fallback", "spot")],
)
def test_market_becomes_a_label_and_the_head_is_on_demand(tmp_path, market, label):
    folder = write(tmp_path, stack(replace(WORKERS, market=market)))
    shapes = folder.cluster().shapes
    assert (shapes["head"].market, shapes["workers"].market) == ("on-demand", label)
    types = yaml.safe_load(folder.autoscaler_config.read_text())["available_node_types"]
    assert types["workers"]["labels"]["ray.io/market-type"] == label


def test_the_autoscaler_counts_what_the_nodes_will_have(tmp_path):
    gpus = ScalingGroup(name="gpu", worker_nodes=RayNodeConfig(vm_size="NC4as_T4_v3"))
    folder = write(tmp_path, stack(gpus, head=RayNodeConfig(cpu=0.5, memory_gb=2)))
    types = yaml.safe_load(folder.autoscaler_config.read_text())["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 1, "memory": 2 * GIB}
    assert types["gpu"]["resources"] == {
        "CPU": 4,
        "GPU": 1,
        "memory": 28 * GIB,
        "accelerator_type:T4": 1,
    }


# What `ray start` is told


def parsed(folder, node):
    """The node's command line as Ray's own `ray start` reads it."""
    from ray.scripts import scripts

    command = ray_start.arguments(folder.cluster(), node)
    assert command[0] == "start"
    return scripts.start.make_context("start", command[1:]).params


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
    assert (worker["min_worker_port"], worker["max_worker_port"]) == (0, 0)
    assert worker["temp_dir"] == worker_node.temp_dir
    assert worker["autoscaling_config"] is None


@pytest.fixture
def two(tmp_path):
    """The folder of a head and a worker that are not started."""
    folder = write(tmp_path, stack(WORKERS))
    folder.add_node(folder.cluster().shapes["workers"])
    return folder


def test_the_nodes_environment_points_at_no_other_cluster(two, monkeypatch):
    names = ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_API_SERVER_ADDRESS", "RAY_JOB_ID")
    for name in (*names, ray_start.LOOPBACK_STAYS):
        monkeypatch.setenv(name, "another")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("MINE", "stays")
    environment = ray_start.launcher_environment(two, two.nodes())
    assert "another" not in environment.values()
    assert environment["MINE"] == "stays"
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(two.token)
    assert environment["SUNSPOT_CLUSTER"] == str(two.path)
    assert environment["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)  # noqa: PTH120


def test_slow_packages_are_deferred_only_where_they_are_installed(two, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setattr(ray_start, "find_spec", lambda _: None)
    assert ray_start.launcher_environment(two, two.nodes())["PYTHONPATH"] == "/mine"
    monkeypatch.setattr(ray_start, "find_spec", lambda name: name)
    first = ray_start.launcher_environment(two, two.nodes())["PYTHONPATH"]
    assert first == f"{ray_start.DEFERRED}{os.pathsep}/mine"
    monkeypatch.setenv("PYTHONPATH", first)  # as the autoscaler has it
    assert ray_start.launcher_environment(two, two.nodes())["PYTHONPATH"] == first
    monkeypatch.delenv("PYTHONPATH")
    alone = ray_start.launcher_environment(two, two.nodes())["PYTHONPATH"]
    assert alone == str(ray_start.DEFERRED)


def test_a_node_forked_beside_the_head_gets_nothing_of_the_heads(two, monkeypatch):
    """The launcher's environment is that of all the nodes that it starts."""
    head, worker = two.nodes()
    environment = ray_start.launcher_environment(two, [worker, head])
    monkeypatch.setattr(os, "environ", environment)
    assert environment["RAY_enable_autoscaler_v2"] == "1"
    ray_start.take_environment(two.cluster(), worker)
    found = {name: value for name, value in environment.items() if name in head.shape.environment}
    assert found == worker.shape.environment
    assert "RAY_enable_autoscaler_v2" not in environment
    assert (environment["SUNSPOT_NODE"], environment["RAY_CLOUD_INSTANCE_ID"]) == ("workers-0",) * 2
    port = two.cluster().dashboard_port
    assert environment["RAY_API_SERVER_ADDRESS"] == f"http://127.0.0.1:{port}"


def test_ray_takes_the_address_of_the_gcs_as_it_is():
    """Where it takes the loopback address for the host's outer one, no driver would connect."""
    from ray._private import services

    address = f"{ray_start.GCS_HOST}:1"
    assert services.canonicalize_bootstrap_address(address) == address


def test_the_address_of_the_gcs_leads_to_the_loopback_address_and_to_no_other():
    with socket.create_server((ray_start.LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((ray_start.GCS_HOST.strip("[]"), port)) as connection:
            assert connection.getpeername()[0] == "::ffff:127.0.0.1"
    assert ipaddress.IPv6Address(ray_start.GCS_HOST.strip("[]")).ipv4_mapped is not None


def test_a_node_listens_on_the_loopback_address_and_has_no_ray_client(monkeypatch):
    from ray._common.utils import load_class
    from ray._private.parameter import RayParams

    monkeypatch.setattr(os, "environ", {"RAY_START_HOOK": plan.START_HOOK})
    params = RayParams(node_ip_address="192.0.2.1", ray_client_server_port=10001)
    load_class(plan.START_HOOK)(params, head=True)
    assert (params.node_ip_address, params.ray_client_server_port) == ("127.0.0.1", None)
    # What the node starts must not replace the address again, and runs no hook.
    assert os.environ == {ray_start.LOOPBACK_STAYS: "0"}


@pytest.mark.parametrize(
    ("wanted", "after"),
    [
        (Size(minimum=1, maximum=3), Size(minimum=1, maximum=3)),
        (Size(minimum=2), Size(minimum=2, maximum=2)),  # above the maximum of before
        (Size(minimum=0), Size(minimum=0, maximum=1)),
    ],
)
def test_a_size_is_written_where_rays_autoscaler_reads_it_at_each_tick(tmp_path, wanted, after):
    folder = write(tmp_path, stack(WORKERS))
    plan.set_size(folder, "workers", Size(minimum=1, maximum=1))
    before = yaml.safe_load(folder.autoscaler_config.read_text())
    plan.set_size(folder, "workers", wanted)
    assert plan.size(folder, "workers") == after
    now = yaml.safe_load(folder.autoscaler_config.read_text())
    limits = {"min_workers": after.minimum, "max_workers": after.maximum}
    before["available_node_types"]["workers"] |= limits
    assert now == before
