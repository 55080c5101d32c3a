"""The one recipe for a node: Ray understands it, and every target's nodes come from it."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from local_stacks import write
from node_values import FACTS

from cloud_init.nodes import node_values
from cloud_init.render import ray_node
from sunspot.node import joins
from sunspot.ray import ports, start
from sunspot.ray.resources import GIB, NodeResources
from sunspot.ray.start import Autoscaler, Head, RayNode
from sunspot.stack import Stack
from sunspot.targets.azure.plan import plan

WORKER = RayNode(
    group="gpu",
    market="spot",
    resources=NodeResources(cpus=4, gpus=1, memory=28 * GIB, accelerator="T4"),
    object_store=8 * GIB,
    token_path="/run/token",
)
HEAD = replace(WORKER, group="head", market="on-demand", head=Head())
# Every field that may say something says it.
EVERYTHING = replace(
    HEAD,
    head=Head(
        autoscaler=Autoscaler(
            config="/c.yaml", interval_s=1, launch_batch=2, concurrent_launches=3
        ),
        dashboard_host="0.0.0.0",  # noqa: S104
        gcs_storage="/gcs",
        prometheus_url="http://127.0.0.1:9090",
        grafana_url="http://127.0.0.1:3000",
    ),
    name="head-0",
    node_ip="10.0.0.4",
    temp_dir="/tmp/here",  # noqa: S108
    logical_gpus=True,
    log_monitor=False,
    log_scan_s=0.25,
    head_away_s=600,
    sigterm_drain_s=0,
    task_events_interval_ms=200,
    start_hook="package.module.function",
    preload="package.module",
)
NODES = {
    "head": HEAD,
    "worker": replace(WORKER, head_address="10.0.0.4:6379"),
    "everything": EVERYTHING,
    "shared host": replace(WORKER, head_address="10.0.0.4:6379", port_numbers={"workers": 0}),
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_ray_start_takes_the_flags(node):
    from ray.scripts import scripts

    read = scripts.start.make_context("start", start.flags(node)).params
    assert read["block"] is True
    assert read["head"] is (node.role == "head")
    assert (read["num_cpus"], read["num_gpus"], read["memory"]) == (4, 1, 28 * GIB)
    assert read["object_store_memory"] == 8 * GIB


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_parameters_are_the_flags_by_name(node):
    written = [
        f"--{name}" if name in ("block", "head", "disable-usage-stats") else f"--{name}={value}"
        for name, value in start.parameters(node).items()
    ]
    assert written == start.flags(node)
    assert start.parameters(node)["block"] == "true"


def test_the_token_is_asked_for_on_every_node():
    for node in NODES.values():
        assert start.environment(node)["RAY_AUTH_MODE"] == "token"
        assert start.environment(node)["RAY_AUTH_TOKEN_PATH"] == "/run/token"


def test_a_node_says_its_group_and_market_by_label_and_by_variable():
    labels, told = start.parameters(WORKER)["labels"], start.environment(WORKER)
    assert labels == "ray.io/node-group=gpu,ray.io/market-type=spot"
    assert (told["RAY_NODE_TYPE_NAME"], told["RAY_NODE_MARKET_TYPE"]) == ("gpu", "spot")


def test_only_an_autoscaled_head_gets_the_autoscaler():
    scaled = replace(HEAD, head=Head(autoscaler=Autoscaler(config="/c.yaml")))
    added = start.environment(scaled).items() - start.environment(HEAD).items()
    assert dict(added) == {
        "RAY_enable_autoscaler_v2": "1",
        "RAY_enable_infeasible_task_early_exit": "true",
        "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S": "1500",
    }
    assert set(start.flags(scaled)) - set(start.flags(HEAD)) == {"--autoscaling-config=/c.yaml"}


def test_ray_gives_a_machine_longer_than_sunspot_does():
    scaled = replace(HEAD, head=Head(autoscaler=Autoscaler(config="/c.yaml")))
    # Ray reads its variables when the module is loaded.
    code = (
        "from ray.autoscaler.v2.instance_manager.config import InstanceReconcileConfig as Config\n"
        "print(Config().allocate_status_timeout_s)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | start.environment(scaled),
        capture_output=True,
        text=True,
        check=True,
    )
    # node/joins.py ends it after 20 minutes, and knows when to stop.
    assert told.stdout == "1500\n"
    assert joins.JOIN_TIMEOUT_S == 1200


def test_only_the_head_forks_without_grpcs_handlers():
    assert start.environment(HEAD)["GRPC_ENABLE_FORK_SUPPORT"] == "0"
    assert "GRPC_ENABLE_FORK_SUPPORT" not in start.environment(WORKER)


def test_gpus_that_ray_cannot_find_are_named():
    logical = replace(WORKER, logical_gpus=True)
    added = set(start.flags(logical)) - set(start.flags(WORKER))
    assert added == {'--resources={"accelerator_type:T4":1}'}
    plain = replace(logical, resources=NodeResources(cpus=1, gpus=0, memory=GIB))
    assert "resources" not in start.parameters(plain)


def test_nothing_is_said_that_is_not_known():
    for node in (WORKER, HEAD):
        told = {**start.parameters(node), **start.environment(node)}
        assert "None" not in told.values()
        assert not {"node-name", "address", "node-ip-address", "temp-dir"} & told.keys()


# Both targets


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"
STACK = Stack.parse(
    {
        "azure-native:location": "uksouth",
        "sunspot:access": {"ssh_public_key": KEY},
        "sunspot:cluster": {
            "ray_version": "2.60.0",
            "head_node": {"vm_size": "Standard_D4s_v5"},
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
            "scaling_groups": [
                {
                    "name": "gpu",
                    "market": "spot-with-fallback",
                    "min_workers": 0,
                    "max_workers": 2,
                    "worker_nodes": {"vm_size": "Standard_NC4as_T4_v3"},
                }
            ],
        },
    },
    name="same",
)

PORTS = ports.start_parameters("head").keys() | ports.environment("head").keys()
# What each target says otherwise than the other, ports aside.
OF_THE_PLACE = {
    "head": {
        # smaller here, where all nodes share one host's memory; other paths
        "object-store-memory",
        "autoscaling-config",
        "RAY_AUTH_TOKEN_PATH",
        "RAY_gcs_storage_path",
        # only on this machine
        "AUTOSCALER_UPDATE_INTERVAL_S",
        "LOG_NAME_UPDATE_INTERVAL_S",
        "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S",
        "RAY_START_HOOK",
        "RAY_preload_python_modules",
        "RAY_task_events_report_interval_ms",
        # only on Azure
        "AUTOSCALER_MAX_CONCURRENT_LAUNCHES",
        "AUTOSCALER_MAX_LAUNCH_BATCH",
        "RAY_GRAFANA_HOST",
        "RAY_PROMETHEUS_HOST",
        "RAY_gcs_rpc_server_reconnect_timeout_s",
        "node-ip-address",
    },
    "gpu": {
        "object-store-memory",
        "RAY_AUTH_TOKEN_PATH",
        # only on this machine
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S",
        "RAY_START_HOOK",
        "RAY_task_events_report_interval_ms",
        "RAY_preload_python_modules",
        "include-log-monitor",
        "resources",
        # only on Azure: here it is known once the head is there
        "RAY_gcs_rpc_server_reconnect_timeout_s",
        "address",
        "labels",  # what it booted from
    },
}


def by_name(flags, environment):
    named = (flag.removeprefix("--").partition("=") for flag in flags)
    return {name: value for name, _, value in named} | environment


@pytest.mark.parametrize("group", OF_THE_PLACE)
def test_a_node_is_the_same_here_and_on_azure_but_for_what_its_place_asks(tmp_path, group):
    shape = write(tmp_path, STACK).cluster().shapes[group]
    planned = plan(STACK, tmp_path)
    pool = next((pool for pool in planned.pools if pool.node_type == group), None)
    azure = ray_node(node_values(planned, pool, replace(FACTS, registry=None)))
    here = by_name(shape.flags, shape.environment)
    there = by_name(start.flags(azure), start.environment(azure))
    differing = {
        name for name in here.keys() | there.keys() if here.get(name) != there.get(name)
    } - PORTS
    assert differing == OF_THE_PLACE[group]
    assert len(here.keys() & there.keys()) >= 10
