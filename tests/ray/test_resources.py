"""What Ray counts on a node."""

import pytest

from sunspot import catalog
from sunspot.ray import resources
from sunspot.ray.resources import GIB, NodeResources
from sunspot.spec import RayNodeConfig, size_for


@pytest.mark.parametrize(("cpu", "expected"), [(0.5, 1), (1, 1), (1.5, 2), (2.0, 2), (96, 96)])
def test_cpus_are_whole_since_ray_has_no_half_ones_on_a_node(cpu, expected):
    found = resources.of(RayNodeConfig(cpu=cpu, memory_gb=4.5)).cpus
    assert (found, type(found)) == (expected, int)


def test_memory_is_bytes_and_a_share_of_it_is_for_objects():
    found = resources.of(RayNodeConfig(cpu=1, memory_gb=4.5))
    assert found.memory == int(4.5 * GIB)
    assert found.object_store == int(4.5 * GIB * 0.3)


def test_the_share_is_rays_own():
    from ray._private import ray_constants

    assert resources.OBJECT_STORE_SHARE == ray_constants.DEFAULT_OBJECT_STORE_MEMORY_PROPORTION


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
def test_a_sizes_gpus_have_rays_name(vm_size, accelerator):
    found, size = resources.of(RayNodeConfig(vm_size=vm_size)), catalog.get(vm_size)
    assert found == NodeResources(
        cpus=size.vcpus,
        gpus=size.gpu_count,
        memory=int(size.memory_gib * GIB),
        accelerator=accelerator,
    )


def test_ray_knows_every_accelerator_of_the_catalogue():
    from ray._private.accelerators import NvidiaGPUAcceleratorManager
    from ray.util import accelerators

    known = {value for value in vars(accelerators).values() if isinstance(value, str)}
    # Ray has no constant for these, but finds them by the names that the driver has for them.
    for name in ("A10", "H200"):
        known.add(NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(f"NVIDIA {name}") or "")
    found = {resources.of(RayNodeConfig(vm_size=size.name)).accelerator for size in catalog.load()}
    assert found - {None} <= known
    assert {"T4", "AMD-Instinct-MI300X-OAM"} <= found


def test_an_unlisted_size_has_the_nodes_own_numbers():
    node = RayNodeConfig(vm_size="ND8x_X100_v9", cpu=8, memory_gb=64, gpu_count=2)
    found = resources.of(node)
    assert (found.cpus, found.gpus, found.memory) == (8, 2, 64 * GIB)
    assert found.accelerator is None
    assert resources.of_size(size_for(node)) == found


def test_needs_without_a_size_do_not_say_which_gpus():
    found = resources.of(RayNodeConfig(cpu=2, memory_gb=4, gpu_count=1))
    assert (found.gpus, found.accelerator) == (1, None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (NodeResources(cpus=2, gpus=0, memory=GIB), {"CPU": 2, "memory": GIB}),
        (
            NodeResources(cpus=2, gpus=4, memory=GIB, accelerator="T4"),
            {"CPU": 2, "GPU": 4, "memory": GIB, "accelerator_type:T4": 1},
        ),
    ],
)
def test_amounts_are_what_the_autoscaler_wants(found, expected):
    assert found.amounts() == expected
