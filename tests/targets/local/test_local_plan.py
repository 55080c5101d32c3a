"""What the nodes of a stack get on this machine, and what `ray start` is told."""

import math
import os
import sys
from collections import namedtuple
from dataclasses import replace

import pytest
import yaml
from local_stacks import WORKERS, stack, write

from sunspot import catalog
from sunspot.node.local import ray_start
from sunspot.node.local.folder import ClusterFolder, NodeShape
from sunspot.spec import RayNodeConfig, ScalingGroup
from sunspot.targets.local import plan
from sunspot.targets.local.target import GIB

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
