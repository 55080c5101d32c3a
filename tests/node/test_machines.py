"""Local processes as machines of Ray's autoscaler, and its config file."""

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from local_stacks import NODE, WORKERS, stack, write
from waiting import wait_for

from sunspot.node.events import Event
from sunspot.node.local import machines as local_machines
from sunspot.node.local.folder import ClusterFolder
from sunspot.node.local.machines import LocalMachines
from sunspot.node.processes import Process
from sunspot.ray.resources import GIB
from sunspot.spec import RayNodeConfig, ScalingGroup
from sunspot.targets.local import plan
from sunspot.targets.scaling import Size


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

    config = yaml.safe_load(folder.autoscaler_config.read_text())
    return MachinesProvider(config["provider"], "dev")


def create(provider, count=1, group="workers"):
    provider.create_node_with_resources_and_labels(
        {}, {"ray-user-node-type": group}, count, {"CPU": 2}, {}
    )


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
    provider.non_terminated_nodes({})  # Ray lists first, and then asks for each
    assert provider.is_running("workers-0")


def test_a_lost_node_is_terminated_so_that_it_is_replaced(provider, folder):
    create(provider)
    provider.non_terminated_nodes({})
    lose(folder, "workers-0")
    assert provider.non_terminated_nodes({}) == ["head"]
    create(provider)
    assert provider.non_terminated_nodes({}) == ["head", "workers-1"]


def test_a_machine_that_ended_before_the_next_tick_is_listed_once(provider, folder):
    """Ray matches what it requested with what is listed, and waits ten minutes for the rest."""
    create(provider)
    lose(folder, "workers-0")
    assert provider.non_terminated_nodes({}) == ["head", "workers-0"]
    assert provider.node_tags("workers-0")["ray-user-node-type"] == "workers"
    assert not provider.is_running("workers-0")
    assert provider.non_terminated_nodes({}) == ["head"]
    assert provider.is_terminated("workers-0")


def test_the_head_is_never_terminated(provider, folder):
    provider.terminate_node("head")
    provider.terminate_nodes(["head"])
    assert provider.is_running("head")
    assert folder.nodes()[0].goal == "up"


def test_terminating_twice_or_an_unknown_machine_is_not_an_error(provider):
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


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ("sunspot.node.nowhere.create", ModuleNotFoundError),
        ("sunspot.node.local.machines.nothing", AttributeError),
    ],
)
def test_machines_that_the_config_misnames_are_an_error(folder, named, error):
    from sunspot.node.autoscaler import MachinesProvider

    config = yaml.safe_load(folder.autoscaler_config.read_text())["provider"]
    with pytest.raises(error):
        MachinesProvider(config | {"machines": named}, "dev")


def test_a_new_node_has_its_groups_shape(provider, folder):
    create(provider)
    assert folder.nodes()[1].shape == folder.cluster().shapes["workers"]


def test_launchers_that_ended_are_reaped(folder, launched):
    made = LocalMachines(folder.path)
    made.create("workers", 1)
    wait_for("the launch", lambda: made.list() and not made._launchers)


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


def test_a_tick_reads_the_records_once_however_many_machines_there_are(
    adapter, provider, monkeypatch
):
    create(provider, 5)
    nodes, reads = ClusterFolder.nodes, []
    monkeypatch.setattr(ClusterFolder, "nodes", lambda self: reads.append(1) or nodes(self))
    assert len(adapter.get_non_terminated()) == 6
    assert len(reads) == 1


def test_rays_adapter_launches_and_terminates(adapter):
    from ray.core.generated.instance_manager_pb2 import NodeKind  # pyright: ignore[reportAttributeAccessIssue]

    adapter.launch({"workers": 2}, "request-1")
    wait_for("both workers", lambda: len(adapter.get_non_terminated()) == 3)
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
    wait_for("one to go", lambda: set(adapter.get_non_terminated()) == {"head", "workers-1"})
    assert adapter.poll_errors() == []


def test_rays_adapter_hears_of_a_launch_that_failed(adapter, folder):
    shapes = folder.cluster().shapes
    folder.update_cluster(shapes={"head": shapes["head"]})
    adapter.launch({"workers": 1}, "request-1")
    (error,) = wait_for("the error", adapter.poll_errors)
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
    plan.set_size(folder, "workers", Size(minimum=3))
    after = yaml.safe_load(folder.autoscaler_config.read_text())
    assert after["available_node_types"]["workers"].pop("min_workers") == 3
    assert before["available_node_types"]["workers"].pop("min_workers") == 0
    assert after == before
    assert folder.autoscaler_config.stat().st_mode & 0o777 == 0o600


# What becomes of nodes is recorded


def told(folder, kind):
    """The nodes of the events of that kind, with their reasons."""
    return [(event.node, event.reason) for event in folder.events.read() if event.kind == kind]


def joined(folder, name):
    folder.record_process(name, Process.current())
    folder.events.add(Event(kind="joined", group="workers", node=name))


def lose(folder, name):
    folder.record_process(name, Process(pid=os.getpid(), start_time=1.0))


def test_a_launch_is_recorded(provider, folder):
    create(provider)
    assert told(folder, "launched")[-1] == ("workers-0", "by the autoscaler")


def test_a_lost_node_is_recorded_once_with_its_log(folder, launched):
    made = LocalMachines(folder.path)
    made.create("workers", 1)
    joined(folder, "workers-0")
    made.list()
    assert told(folder, "lost") == []
    folder.log("workers-0").write_text("raylet [exit code=-9]\n")
    lose(folder, "workers-0")
    for machines in (made, made, LocalMachines(folder.path)):  # the autoscaler may have restarted
        machines.list()
    assert told(folder, "lost") == [("workers-0", "raylet was killed by signal 9 (SIGKILL)")]


def test_a_node_whose_start_is_tried_again_is_not_lost(folder, launched):
    made = LocalMachines(folder.path)
    made.create("workers", 1)
    lose(folder, "workers-0")
    made.list()
    assert told(folder, "lost") == []


def test_a_node_that_the_autoscaler_gives_back_was_drained(folder, launched):
    made = LocalMachines(folder.path)
    made.create("workers", 1)
    joined(folder, "workers-0")
    folder.forget_process("workers-0")  # the test's own, which must not be stopped
    for _ in range(2):
        made.terminate("workers-0")
    assert [node for node, _ in told(folder, "drained")] == ["workers-0"]


def test_an_evicted_node_is_neither_lost_nor_given_back(folder, launched):
    made = LocalMachines(folder.path)
    made.create("workers", 2)
    for name in ("workers-0", "workers-1"):
        joined(folder, name)
        folder.events.add(Event(kind="evicted", group="workers", node=name))
    lose(folder, "workers-0")
    made.list()
    folder.forget_process("workers-1")
    made.terminate("workers-1")
    assert told(folder, "lost") == told(folder, "drained") == []


def test_each_node_that_is_gone_is_replaced_once_and_by_its_own_group(folder, launched):
    made = LocalMachines(folder.path)
    folder.events.add(Event(kind="evicted", group="workers", node="workers-8"))
    folder.events.add(Event(kind="lost", group="other", node="other-0"))
    folder.events.add(Event(kind="drained", group="workers", node="workers-9"))
    made.create("workers", 2)
    made.create("workers", 1)
    assert told(folder, "replaced") == [("workers-8", "by workers-0")]


def test_of_several_that_are_gone_the_last_one_is_replaced_first(folder, launched):
    made = LocalMachines(folder.path)
    for node in ("workers-8", "workers-9"):
        folder.events.add(Event(kind="lost", group="workers", node=node))
    made.create("workers", 1)
    assert told(folder, "replaced") == [("workers-9", "by workers-0")]
