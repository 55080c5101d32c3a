"""gpus.sh, ray.sh and join.sh, run for real in a machine made of folders, with a stub of Docker."""

import json
import shlex
import stat

import node_values
import pytest
import sandbox
from azure_model.http_service import Reply, Request, serving
from azure_model.imds import FakeAzure
from booted import DOCKER, INSTANCE, Boot, environment, ready, report

from cloud_init import NodeValues
from cloud_init.render import NODE_MODULES, NODE_PYTHON
from sunspot.node.azure.live import LiveSettings
from sunspot.ray import ports

SETTINGS = LiveSettings(
    autoscaler={
        "head_node_type": "head",
        "available_node_types": {"head": {"resources": {}, "min_workers": 0, "max_workers": 0}},
        "provider": {"scale_sets": {}, "maximums": {}, "twins": {}, "fixed": []},
        "max_workers": 4,
    }
)


def container(machine: sandbox.Machine) -> tuple[list[str], list[str]]:
    """The flags of the last `docker run`, and the command line inside, `ray` first."""
    call = shlex.split(machine.calls[-1])
    assert call[:2] == ["docker", "run"]
    index = call.index("--entrypoint=ray")
    return call[2:index], ["ray", *call[index + 2 :]]


def port_flags(role: ports.Role) -> set[str]:
    return {f"--{name}={value}" for name, value in ports.start_parameters(role).items()}


def test_gpus_are_asked_from_inside_the_container(boot: Boot) -> None:
    machine = ready(boot, node_values.T4_WORKER)
    script = "sunspot/node/azure/cuda.py"
    ran = machine.script("gpus.sh")
    assert ran.returncode == 0, ran.stderr
    assert machine.calls[-1] == (
        f"docker run --rm --network=none --volume={NODE_PYTHON}:{NODE_PYTHON}:ro "
        "--device=nvidia.com/gpu=all --entrypoint=python "
        f"{node_values.T4_WORKER.image} -I {NODE_PYTHON}/{script}"
    )
    assert machine.path(f"{NODE_PYTHON}/{script}").exists()


def test_gpus_that_only_list_themselves_do_not_join(boot: Boot) -> None:
    machine = ready(boot, node_values.T4_WORKER)
    failed = "cuDevicePrimaryCtxRetain of GPU 0: CUDA_ERROR_UNKNOWN (999)"
    machine.stub("docker", f"case $* in *cuda.py*) echo '{failed}' >&2; exit 1 ;; esac\n{DOCKER}")
    ran = machine.script("gpus.sh")
    assert ran.returncode == 1
    assert failed in ran.stderr


@pytest.mark.parametrize("values", [node_values.T4_WORKER, node_values.MI300X_WORKER])
def test_a_node_whose_gpus_are_not_all_there_does_not_join(boot: Boot, values: NodeValues) -> None:
    machine = ready(boot, values)
    assert machine.script("gpus.sh").returncode == 0
    machine.overrides["SUNSPOT_GPUS"] = "9"
    ran = machine.script("gpus.sh")
    assert ran.returncode == 1
    resources = values.resources
    assert f"{resources.gpus} of 9 GPUs ({resources.accelerator}) answer" in ran.stderr


def test_a_container_without_gpus_is_counted_as_0_of_1(boot: Boot) -> None:
    machine = ready(boot, node_values.T4_WORKER)
    machine.stub("docker", "echo No devices were found")
    ran = machine.script("gpus.sh")
    assert ran.returncode == 1
    assert "0 of 1 GPUs" in ran.stderr


def test_a_node_without_gpus_asks_nothing(boot: Boot) -> None:
    machine = ready(boot, node_values.CPU_WORKER)
    machine.forget_calls()
    assert machine.script("gpus.sh").returncode == 0
    assert machine.calls == []


def test_the_head(boot: Boot) -> None:
    machine = ready(boot, node_values.HEAD)
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode == 0, ran.stderr
    docker, ray = container(machine)
    assert ray[:3] == ["ray", "start", "--block"]
    assert {"--head", "--dashboard-host=127.0.0.1", "--node-ip-address=10.20.0.4"} <= set(ray)
    assert port_flags("head") <= set(ray)
    assert "--labels=ray.io/node-group=head,ray.io/market-type=on-demand" in ray
    assert f"--node-name={INSTANCE}" in ray
    assert not [flag for flag in ray if flag.startswith(("--address", "--autoscaling"))]
    memory = 16 * 2**30
    assert f"--shm-size={memory // 2}" in docker
    assert {
        "--network=host",
        "--init",
        "--rm",
        "--stop-timeout=45",
        "--ulimit=nofile=65536:65536",
        "--volume=/run/sunspot/token:/run/sunspot/token:ro",
        "--volume=/var/lib/sunspot/ray:/tmp/ray",
    } <= set(docker)


def test_a_worker(boot: Boot) -> None:
    machine = ready(boot, node_values.T4_WORKER)
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode == 0, ran.stderr
    docker, ray = container(machine)
    assert {"--address=10.20.0.4:6379", "--num-gpus=1", "--num-cpus=4"} <= set(ray)
    assert "--labels=ray.io/node-group=t4,ray.io/market-type=spot" in ray
    assert port_flags("worker") <= set(ray)
    assert "--device=nvidia.com/gpu=all" in docker
    assert not [flag for flag in ray if flag.startswith(("--head", "--dashboard-host", "--port"))]


def test_devices_of_rocm_reach_the_container_one_by_one(boot: Boot) -> None:
    machine = ready(boot, node_values.MI300X_WORKER)
    machine.start("sunspot-ray.service")
    docker, _ = container(machine)
    assert {"--device=/dev/kfd", "--device=/dev/dri"} <= set(docker)
    assert [flag for flag in docker if flag.startswith("--group-add=")]


def test_the_container_gets_names_of_variables_not_values(boot: Boot, azure: FakeAzure) -> None:
    azure.user_data = SETTINGS.text()
    machine = ready(boot, node_values.AUTOSCALED_HEAD)
    keep = f'case " $* " in *--entrypoint=ray*) env >{sandbox.NOTES}/env ;; esac'
    machine.stub("docker", DOCKER + keep)
    machine.start("sunspot-ray.service")
    docker, ray = container(machine)
    assert environment(machine, docker) == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/run/sunspot/token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_START_HOOK": "sunspot.node.raylet.start_hook",
        "RAY_CLOUD_INSTANCE_ID": INSTANCE,
        "RAY_NODE_TYPE_NAME": "head",
        "RAY_NODE_MARKET_TYPE": "on-demand",
        "RAY_NODE_REGION": "uksouth",
        "RAY_NODE_ZONE": "2",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_enable_infeasible_task_early_exit": "true",
        "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S": "1500",
        "RAY_SCHEDULER_EVENTS": "0",
        "RAY_gcs_storage": "rocksdb",
        "RAY_gcs_storage_path": "/var/lib/sunspot/state/gcs",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
        "RAY_PROMETHEUS_HOST": "http://127.0.0.1:9090",
        "RAY_GRAFANA_HOST": "http://127.0.0.1:3000",
        "AUTOSCALER_MAX_LAUNCH_BATCH": "1000",
        "AUTOSCALER_MAX_CONCURRENT_LAUNCHES": "40000",
        "PYTHONPATH": "/usr/local/lib/sunspot/python",
        **ports.environment("head"),
        "AZURE_CLIENT_ID": node_values.FACTS.identity_client_id,
        "SUNSPOT_CLUSTER": "sunspot-hybrid",
        "SUNSPOT_STORAGE": node_values.FACTS.storage_url,
        "SUNSPOT_SUBSCRIPTION_ID": node_values.FACTS.subscription_id,
        "SUNSPOT_RESOURCE_GROUP": "sunspot-hybrid",
        "SUNSPOT_SCALE_SET": "",
    }
    seen = machine.text(f"{sandbox.NOTES}/env")
    assert node_values.RAY_TOKEN not in seen + " ".join(docker + ray)


def test_the_container_has_the_nodes_modules_and_keeps_the_path_of_its_image(boot: Boot) -> None:
    machine = ready(boot, node_values.HEAD)
    machine.path(f"{sandbox.NOTES}/image-env").write_text(
        "PYTHONPATH=/opt/app:/opt/lib\nOTHER=PYTHONPATH=x\n"
    )
    keep = f'case " $* " in *--entrypoint=ray*) printenv PYTHONPATH >{sandbox.NOTES}/path ;; esac'
    machine.stub("docker", DOCKER + keep)
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode == 0, ran.stderr
    docker, _ = container(machine)
    assert f"--volume={NODE_PYTHON}:{NODE_PYTHON}:ro" in docker
    assert machine.text(f"{sandbox.NOTES}/path") == f"{NODE_PYTHON}:/opt/app:/opt/lib\n"
    folder = machine.path(f"{NODE_PYTHON}/sunspot")
    shipped = [p for p in (folder / "node").rglob("*") if p.is_file()]
    assert sorted(str(p.relative_to(folder / "node")) for p in shipped) == sorted(
        {*NODE_MODULES} - {"azure/cuda.py"}  # for GPUs
    )
    assert [p.name for p in folder.iterdir()] == ["node"]  # a namespace: nothing else is needed


def test_the_token_belongs_to_the_user_of_the_image(boot: Boot) -> None:
    machine = ready(boot, node_values.HEAD)
    machine.start("sunspot-ray.service")
    token = machine.path("/run/sunspot/token").stat()
    assert stat.S_IMODE(token.st_mode) == 0o600
    if sandbox.IMAGE_USER:
        assert token.st_uid == sandbox.IMAGE_USER
        assert machine.path("/var/lib/sunspot/ray").stat().st_uid == sandbox.IMAGE_USER


def test_the_image_is_asked_for_its_user_once_a_boot(boot: Boot) -> None:
    machine = ready(boot, node_values.HEAD)
    for unit in ("ray", "eviction", "prometheus", "grafana"):
        ran = machine.start(f"sunspot-{unit}.service")
        assert ran.returncode == 0, ran.stderr
    assert len([call for call in machine.calls if "--entrypoint=id" in call]) == 1


def test_the_autoscaler_gets_a_file_that_it_may_write(boot: Boot, azure: FakeAzure) -> None:
    azure.user_data = SETTINGS.text()
    machine = ready(boot, node_values.AUTOSCALED_HEAD)
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode == 0, ran.stderr
    docker, ray = container(machine)
    assert "--autoscaling-config=/run/sunspot/autoscaler/config.yaml" in ray
    assert "--volume=/run/sunspot/autoscaler:/run/sunspot/autoscaler" in docker
    config = machine.path("/run/sunspot/autoscaler/config.yaml")
    assert json.loads(config.read_text()) == SETTINGS.autoscaler
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    if sandbox.IMAGE_USER:
        assert config.stat().st_uid == sandbox.IMAGE_USER


def test_a_link_that_a_job_has_put_there_is_replaced(boot: Boot, azure: FakeAzure) -> None:
    azure.user_data = SETTINGS.text()
    machine = ready(boot, node_values.AUTOSCALED_HEAD)
    folder = machine.path("/run/sunspot/autoscaler")
    folder.mkdir()
    victim = machine.path("/run/sunspot/victim")
    victim.write_text("the host's own")
    victim.chmod(0o644)
    (folder / "config.yaml").symlink_to("/run/sunspot/victim")
    assert machine.start("sunspot-ray.service").returncode == 0
    assert victim.read_text() == "the host's own"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644
    assert not (folder / "config.yaml").is_symlink()
    (folder / "config.yaml").unlink()
    (folder / "config.yaml").mkdir()
    assert machine.start("sunspot-ray.service").returncode == 0
    assert (folder / "config.yaml").is_file()
    assert not list(folder.parent.glob("live.*"))


def test_a_head_starts_with_its_last_right_settings(boot: Boot, azure: FakeAzure) -> None:
    machine = ready(boot, node_values.AUTOSCALED_HEAD)
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode != 0
    assert "user data is refused" in ran.stderr
    azure.user_data = SETTINGS.text()
    assert machine.start("sunspot-ray.service").returncode == 0
    azure.user_data = "wrong"
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode == 0, ran.stderr
    config = machine.path("/run/sunspot/autoscaler/config.yaml")
    assert json.loads(config.read_text()) == SETTINGS.autoscaler


@pytest.mark.parametrize("missing", ["token", "image.env", "instance.env", "disk.env"])
def test_ray_does_not_start_before_everything_is_there(boot: Boot, missing: str) -> None:
    machine = ready(boot, node_values.HEAD)
    machine.path(f"/run/sunspot/{missing}").unlink()
    machine.forget_calls()
    assert machine.start("sunspot-ray.service").returncode != 0
    assert not [call for call in machine.calls if "--entrypoint=ray" in call]


@pytest.mark.parametrize("values", node_values.ALL.values(), ids=list(node_values.ALL))
def test_ray_knows_every_flag(boot: Boot, azure: FakeAzure, values: NodeValues) -> None:
    from ray.scripts import scripts

    azure.user_data = SETTINGS.text()
    machine = ready(boot, values)
    machine.start("sunspot-ray.service")
    _, ray = container(machine)
    context = scripts.start.make_context("start", ray[2:])
    assert context.params["block"] is True
    assert context.params["object_store_memory"] == values.resources.object_store


def test_a_whole_boot_is_in_the_report_and_a_second_boot_changes_nothing(boot: Boot) -> None:
    machine = ready(boot, node_values.T4_WORKER)
    assert [entry["ok"] for entry in report(machine).values()] == [True] * 6
    machine.start("sunspot-ray.service")
    first = machine.calls[-1]
    machine.restart()
    machine.forget_calls()
    for unit in ("disk", "docker", "image", "instance", "token", "driver@nvidia", "ray"):
        assert machine.start(f"sunspot-{unit}.service").returncode == 0
    assert machine.calls[-1] == first
    assert not [call for call in machine.calls if call.startswith(("apt-get", "docker pull"))]


def test_joining_waits_for_the_raylet(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    asked, answers = [], [503, 200]

    def agent(request: Request) -> Reply:
        asked.append(request.path)
        return Reply(answers.pop(0), "success")

    with serving(agent) as url:
        machine.overrides["SUNSPOT_AGENT_PORT"] = url.rsplit(":", 1)[1]
        ran = machine.run(f"{sandbox.LIBRARY}/phase.sh", "join", f"{sandbox.LIBRARY}/join.sh")
    assert ran.returncode == 0, ran.stderr
    assert asked == ["/api/local_raylet_healthz"] * 2
    assert report(machine)["join"]["ok"] is True


def test_a_container_that_ends_is_not_waited_for(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.overrides |= {"SUNSPOT_AGENT_PORT": "9", "MAINPID": "999999999"}
    ran = machine.script("join.sh")
    assert ran.returncode == 1
    assert "container ended" in ran.stderr
    assert "sleep" not in " ".join(machine.calls)
