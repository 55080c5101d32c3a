"""How a host is divided among the nodes of a stack."""

from dataclasses import replace

import pytest
from compose_stacks import AMD, HEAD, NVIDIA, group, host, stack

from sunspot.errors import UsageError
from sunspot.targets.compose import plan


def planned(described, on, folder):
    return plan.make(described, on, folder)


def by_name(made):
    return {node.name: node for node in made.nodes}


def test_no_two_workers_see_one_gpu(tmp_path):
    made = planned(stack(group(gpus=1, minimum=2)), NVIDIA, tmp_path)
    given = [gpu for node in made.nodes for gpu in node.gpus]
    assert sorted(given) == sorted(set(given)) == ["0", "1"]
    assert made.head.gpus == ()


def test_the_head_and_the_minimum_of_every_group_have_gpus_first(tmp_path):
    groups = (group("a", gpus=1, minimum=0, maximum=3), group("b", gpus=1, minimum=1, maximum=1))
    made = planned(stack(*groups, head={**HEAD, "gpu_count": 1}), NVIDIA, tmp_path)
    assert {name: node.gpus for name, node in by_name(made).items()} == {
        "head": ("0",),
        "b-1": ("1",),
    }
    assert any("a: the host has GPUs and memory for 0 of at most 3" in one for one in made.notes)


def test_more_gpus_than_there_are_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"asks for 3 GPUs .* this host has 2"):
        planned(stack(group(gpus=1, minimum=3, maximum=3, memory_gb=4)), NVIDIA, tmp_path)


def test_gpus_that_cannot_be_divided_are_told(tmp_path):
    whole = replace(NVIDIA, gpus=replace(NVIDIA.gpus, divisible=False))
    two, one = (stack(group(gpus=gpus, memory_gb=4)) for gpus in (1, 2))
    assert any("WSL2" in note for note in planned(two, whole, tmp_path).notes)
    assert not any("WSL2" in note for note in planned(one, whole, tmp_path).notes)
    assert not any("WSL2" in note for note in planned(two, NVIDIA, tmp_path).notes)


def test_logical_gpus_are_as_many_as_the_stack_says(tmp_path):
    made = planned(stack(group(gpus=4, memory_gb=4, minimum=3, maximum=3)), host(), tmp_path)
    assert [node.resources.gpus for node in made.workers] == [4, 4, 4]
    assert [node.gpus for node in made.workers] == [(), (), ()]
    assert any("gloo" in note for note in made.notes)
    assert not any("gloo" in note for note in planned(stack(group()), host(), tmp_path).notes)


def test_workers_have_cpus_of_their_own_while_there_are_some(tmp_path):
    made = planned(stack(group(minimum=2)), host(cpus=10), tmp_path)
    assert [node.cpuset for node in made.nodes] == ["0-1", "2-5", "6-9"]
    assert not any("CPUs in all" in note for note in made.notes)


def test_more_nodes_than_cpus_share_them_and_the_plan_says_so(tmp_path):
    made = planned(stack(group(minimum=2)), host(cpus=8), tmp_path)
    assert [node.cpuset for node in made.nodes] == ["0-1", "2-5", "0-1,6-7"]
    assert any("have 10 CPUs in all and the host 8" in note for note in made.notes)


def test_workers_that_only_scale_starts_share_cpus_before_others_do(tmp_path):
    made = planned(stack(group("a", maximum=3), group("b")), host(cpus=14), tmp_path)
    first = {node.name: node.cpuset for node in made.nodes if node.starts}
    assert first == {"head": "0-1", "a-1": "2-5", "b-1": "6-9"}


def test_a_head_without_cpus_runs_on_all(tmp_path):
    made = planned(stack(group(), head={"cpu": 0, "memory_gb": 8}), host(cpus=8), tmp_path)
    assert [node.cpuset for node in made.nodes] == [None, "0-3", "4-7"]


@pytest.mark.parametrize(
    ("worker", "named"),
    [({"cpu": 17}, r"group workers: cpu 17 .* 16"), ({"memory_gb": 65}, "memory_gb 65 .* 64")],
)
def test_a_node_that_is_larger_than_the_host_is_refused(tmp_path, worker, named):
    with pytest.raises(UsageError, match=named):
        planned(stack(group(**worker)), host(), tmp_path)


def test_workers_beyond_the_minimum_are_left_out_where_memory_ends(tmp_path):
    made = planned(stack(group(minimum=1, maximum=100)), host(gib=64), tmp_path)
    assert [node.name for node in made.workers] == ["workers-1", "workers-2", "workers-3"]
    assert [node.starts for node in made.nodes] == [True, True, False, False]
    assert any("3 of at most 100" in note for note in made.notes)
    assert any("no autoscaler" in note and "scale" in note for note in made.notes)


def test_the_minimum_starts_even_where_memory_is_short(tmp_path):
    made = planned(stack(group(minimum=3, maximum=3, memory_gb=30)), host(), tmp_path)
    assert len(made.workers) == 3
    assert any("98 GiB of memory in all, and the host has 64" in note for note in made.notes)


def test_nodes_with_gpus_have_rays_image_for_them(tmp_path):
    made = planned(stack(group(gpus=1)), NVIDIA, tmp_path)
    assert made.head.image == "rayproject/ray:2.60.0-py311"
    assert made.workers[0].image == "rayproject/ray:2.60.0-py311-gpu"
    logical = planned(stack(group(gpus=1)), host(), tmp_path)
    assert {node.image for node in logical.nodes} == {made.head.image}


def test_an_arm_host_has_rays_image_for_it(tmp_path):
    made = planned(stack(group(gpus=1)), replace(NVIDIA, arm=True), tmp_path)
    assert made.head.image == "rayproject/ray:2.60.0-py311-aarch64"
    assert made.workers[0].image == "rayproject/ray:2.60.0-py311-gpu-aarch64"
    own = planned(stack(group(), image="mine/ray:1"), replace(host(), arm=True), tmp_path)
    assert own.head.image == "mine/ray:1"


def test_amd_needs_an_image_with_its_libraries(tmp_path):
    with pytest.raises(UsageError, match=r"no image for AMD.*sunspot:image"):
        planned(stack(group(gpus=1)), AMD, tmp_path)
    made = planned(stack(group(gpus=1), image="mine/rocm:1"), AMD, tmp_path)
    assert [node.gpus for node in made.workers] == [(one,) for one in AMD.gpus.devices]


def test_jupyter_needs_its_dockerfile_or_an_image(tmp_path):
    without = planned(stack(), host(), tmp_path)
    assert not without.jupyter
    assert any("Jupyter is left out" in note for note in without.notes)
    assert planned(stack(images={"jupyter": "mine:1"}), host(), tmp_path).jupyter
    dockerfile = tmp_path / "docker" / "jupyter.Dockerfile"
    dockerfile.parent.mkdir()
    dockerfile.touch()
    assert planned(stack(), host(), tmp_path).jupyter
    assert not planned(stack(jupyter=False), host(), tmp_path).jupyter


@pytest.mark.parametrize(
    ("names", "distinct"), [(("dev", "a_b-1"), 2), (("Dev", "dev", "d.ev", "d-ev"), 4)]
)
def test_a_project_is_one_stacks(names, distinct):
    projects = {plan.project(name) for name in names}
    assert len(projects) == distinct
    assert all(one == one.lower() and "." not in one for one in projects)
    assert plan.project("dev") == "sunspot-dev"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"gpu": "cuda"}, "gpu"),
        ({"user": "ray"}, "UID:GID"),
        ({"usd_per_hour": -1}, "usd_per_hour"),
        ({"images": {"minio": "x"}}, "images"),
        ({"monitorin": True}, "monitoring"),
        ({"data": {"food": "/mnt/food"}}, "'food'"),
        ({"data": {"/srv/food": "/mnt/../etc"}}, "/mnt/../etc"),
        ({"data": {"/srv/food": "/home/ray"}}, "'/home/ray' is a place"),
        ({"data": {"/srv/food": "/run/secrets/x"}}, "'/run/secrets/x' is a place"),
        ({"data": {"/a": "/mnt", "/b": "/mnt/"}}, "same place"),
    ],
)
def test_settings_that_are_wrong_name_their_key(given, named):
    with pytest.raises(UsageError, match=named):
        stack(**given)
