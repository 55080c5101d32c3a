"""A worker's GPUs are asked for from inside its container before it joins."""

from pathlib import Path

import pytest
from machines import base_image
from machines.docker import Docker
from machines.network import GATEWAY, Network
from machines.node import Node
from machines.processes import DEADLINE_S
from machines.registry import registry
from machines.units import StartPreError, Unit, boot, running
from node_cluster import REGISTRY_PORT, Cluster, machine, worker_values
from waiting import wait_for

from sunspot.ray.resources import GIB, NodeResources

pytestmark = pytest.mark.timeout(1800)

PROMISED = 2
GPU = "  Device Type:             GPU"
DOCKERFILE = """
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY rocminfo /usr/bin/
"""


@pytest.fixture(params=[1, 2], ids=["one-of-two", "both"])
def answering(request: pytest.FixtureRequest) -> int:
    """How many GPUs of two answer."""
    return request.param


@pytest.fixture
def image(builder: Docker, base: base_image.BaseImage, answering: int, tmp_path: Path) -> str:
    """Pushes an image whose `rocminfo` finds that many GPUs; its name in the network."""
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    told = "\n".join(f"echo '{GPU}'" for _ in range(answering))
    (tmp_path / "rocminfo").write_text(f"#!/bin/bash\n{told}\n")
    (tmp_path / "rocminfo").chmod(0o755)
    name = f"gpus-{answering}"
    with registry(base.registry_storage) as local:
        reference = local.reference(f"{name}:test")
        loaded = base_image.load(builder, base)
        builder("build", f"--build-arg=BASE_IMAGE={loaded}", "--tag", reference, tmp_path)
        builder("push", "--quiet", reference)
        builder("rmi", reference)
    return f"{GATEWAY}:{REGISTRY_PORT}/{name}:test"


def test_a_worker_joins_when_all_its_gpus_answer(
    cluster: Cluster, lan: Network, folder: Path, image: str, answering: int
) -> None:
    values = worker_values(
        group="mi",
        market="spot",
        resources=NodeResources(cpus=1, gpus=PROMISED, memory=2 * GIB, accelerator="MI300X"),
        driver="rocm",
        image=image,
    )
    with machine(lan, 6, values, folder) as worker:
        with_amd_devices(worker.node)
        boot(worker.node)
        Unit(worker.node, "sunspot-driver@rocm.service").oneshot()
        if answering == PROMISED:
            worker.start_ray()
            joined = wait_for(
                "the worker", lambda: cluster.nodes().get(worker.node.name), DEADLINE_S
            )
            assert joined["Resources"]["GPU"] == PROMISED
        else:
            with (
                pytest.raises(StartPreError, match=r"1 of 2 GPUs \(MI300X\) answer"),
                running(worker.node),
            ):
                pass
            assert worker.docker("ps", "--all", "--quiet") == ""
            assert worker.node.name not in cluster.nodes()


def with_amd_devices(node: Node) -> None:
    """The kernel's device files, without what they lead to."""
    node.stub("modprobe")
    node("sh", "-c", "mkdir /dev/dri; mknod /dev/kfd c 1 3; mknod /dev/dri/renderD128 c 1 3")
