"""The scripts, run for real in a machine made of folders, with stubs for what changes a machine."""

import json
import shlex
import stat
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import fake_azure
import node_values
import pytest
import vm

from cloud_init import NodeValues
from cloud_init.render import NODE_MODULES, NODE_PYTHON
from sunspot import ports

Boot = Callable[[NodeValues], vm.Machine]

INSTANCE = "hybrid-t4_1a2b3c4d"
BOOT_REPORT = "/var/log/sunspot/boot.json"

# An image's user, its GPUs, and a login that keeps what it was given.
DOCKER = f"""
case " $* " in
*--entrypoint=id*) echo {vm.IMAGE_USER} ;;
*' --format={{{{range'*) cat {vm.NOTES}/image-env 2>/dev/null || true ;;
*--entrypoint=nvidia-smi*) echo 'GPU 0: Tesla T4 (UUID: GPU-1)' ;;
*--entrypoint=rocminfo*) for _ in {{1..8}}; do echo '  Device Type:             GPU'; done ;;
*' login '*) cat >{vm.NOTES}/login; echo "$DOCKER_CONFIG" >{vm.NOTES}/config ;;
esac
"""


def report(machine: vm.Machine) -> dict[str, dict[str, object]]:
    return {entry["phase"]: entry for entry in json.loads(machine.text(BOOT_REPORT))}


# boot.json


def test_phases_are_timed_in_the_order_in_which_they_began(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    for name, command in (("b", "true"), ("a", "false"), ("c", "true")):
        ended = machine.run(f"{vm.LIBRARY}/phase.sh", name, command)
        assert ended.returncode == (command == "false")
    entries = json.loads(machine.text(BOOT_REPORT))
    assert [(entry["phase"], entry["ok"]) for entry in entries] == [
        ("b", True),
        ("a", False),
        ("c", True),
    ]
    assert all(set(entry) == {"start", "phase", "seconds", "ok"} for entry in entries)
    assert all(a["start"] <= b["start"] for a, b in pairwise(entries))


def test_a_phase_that_runs_again_replaces_its_line(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.run(f"{vm.LIBRARY}/phase.sh", "token", "false")
    machine.run(f"{vm.LIBRARY}/phase.sh", "token", "true")
    assert [entry["ok"] for entry in json.loads(machine.text(BOOT_REPORT))] == [True]


def test_phases_at_the_same_time_are_all_in_the_report(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    many = f'for n in {{1..8}}; do {vm.LIBRARY}/phase.sh "p$n" sleep 0.1 & done; wait'
    machine.run("/usr/bin/bash", "-c", many)
    assert set(report(machine)) == {f"p{n}" for n in range(1, 9)}


def test_a_reboot_starts_the_report_anew(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.run(f"{vm.LIBRARY}/phase.sh", "driver", "false")
    machine.restart()
    machine.run(f"{vm.LIBRARY}/phase.sh", "token", "true")
    assert set(report(machine)) == {"token"}


# disk


@pytest.mark.parametrize("mounted", [True, False], ids=["temporary-disk", "no-temporary-disk"])
def test_large_files_go_to_the_temporary_disk_where_there_is_one(boot: Boot, mounted: bool) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("systemctl", "exit 3")  # Docker does not run yet
    if mounted:
        machine.path("/mnt/.mounted").touch()
    assert machine.start("sunspot-disk.service").returncode == 0
    scratch = "/mnt/sunspot" if mounted else "/var/lib/sunspot"
    assert machine.text("/run/sunspot/disk.env") == f"SUNSPOT_SCRATCH={scratch}\n"
    daemon = json.loads(machine.text("/etc/docker/daemon.json"))
    assert daemon["data-root"] == f"{scratch}/docker"
    assert daemon["features"]["cdi"] is True
    assert not [call for call in machine.calls if "restart" in call]


def test_a_docker_that_runs_already_is_restarted_once(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.start("sunspot-disk.service")
    assert "systemctl --no-block restart docker.service" in machine.calls
    machine.restart()
    machine.forget_calls()
    assert machine.start("sunspot-disk.service").returncode == 0
    assert machine.calls == []
    assert "SUNSPOT_SCRATCH" in machine.text("/run/sunspot/disk.env")


# docker


def test_docker_is_installed_from_ubuntu_where_there_is_none(boot: Boot) -> None:
    machine = boot(replace(node_values.HEAD, admin_user="someone"))
    # This machine may have a docker: only the stubs and what bash needs are on the PATH.
    machine.overrides["PATH"] = "/usr/local/bin:/only"
    for name in ("mkdir", "flock", "cat", "sort", "sed", "mv", "bash"):
        machine.path(f"/usr/local/bin/{name}").symlink_to(f"/usr/bin/{name}")
    assert machine.start("sunspot-docker.service").returncode == 0
    assert machine.calls == [
        "apt-get update",
        "apt-get install --yes --no-install-recommends docker.io apparmor pigz",
        "usermod --append --groups docker someone",
    ]


def test_docker_of_the_image_is_kept(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker")
    assert machine.start("sunspot-docker.service").returncode == 0
    assert machine.calls == ["usermod --append --groups docker sunspot"]


# image


def test_a_private_image_is_pulled_after_a_login_by_identity(
    boot: Boot, azure: fake_azure.Azure
) -> None:
    machine = boot(replace(node_values.CPU_WORKER, image="sunspothybrid.azurecr.io/ray:1"))
    machine.stub("docker", DOCKER)
    ran = machine.start("sunspot-image.service")
    assert ran.returncode == 0, ran.stderr
    login, pull = machine.calls
    assert login == (
        "docker login --username 00000000-0000-0000-0000-000000000000 --password-stdin "
        "sunspothybrid.azurecr.io"
    )
    assert pull == "docker pull --quiet sunspothybrid.azurecr.io/ray:1"
    assert machine.text(f"{vm.NOTES}/login") == fake_azure.REFRESH_TOKEN
    _, _, _, form = next(r for r in azure.requests if r[1] == "/oauth2/exchange")
    assert form["service"] == "sunspothybrid.azurecr.io"
    # The login was in memory, and is gone.
    config = machine.text(f"{vm.NOTES}/config").strip()
    assert config.startswith("/run/sunspot/")
    assert not machine.path(config).exists()
    assert fake_azure.REFRESH_TOKEN not in ran.stdout + ran.stderr


def test_a_public_image_needs_no_login(boot: Boot, azure: fake_azure.Azure) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker", DOCKER)
    assert machine.start("sunspot-image.service").returncode == 0
    assert machine.calls == ["docker pull --quiet rayproject/ray:2.60.0"]
    assert azure.requests == []


def test_a_digest_that_is_here_is_not_pulled_again(boot: Boot) -> None:
    machine = boot(node_values.CPU_WORKER)
    machine.stub("docker", DOCKER)
    assert machine.start("sunspot-image.service").returncode == 0
    assert [call.split()[1] for call in machine.calls] == ["image"]


@pytest.mark.parametrize("fails", [2, 99])
def test_a_pull_is_tried_again_but_not_for_ever(boot: Boot, fails: int) -> None:
    machine = boot(node_values.HEAD)
    machine.stub(
        "docker",
        f'[ "$1" != image ] && [ "$(grep --count "docker pull" {vm.NOTES}/calls)" -gt {fails} ]',
    )
    ended = machine.start("sunspot-image.service")
    pulls = [call for call in machine.calls if call.startswith("docker pull")]
    waits = [call for call in machine.calls if call.startswith("sleep")]
    assert (ended.returncode, len(pulls)) == ((0, 3) if fails == 2 else (1, 6))
    assert waits == [f"sleep {10 * n}" for n in range(1, len(waits) + 1)]
    assert report(machine)["image"]["ok"] is (fails == 2)


def test_a_registry_that_is_away_does_not_stop_a_machine_that_has_the_image(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker", '[ "$1" = image ]')
    assert machine.start("sunspot-image.service").returncode == 0


# instance


@pytest.mark.parametrize("zone", ["2", ""])
def test_name_and_place_come_from_azure(boot: Boot, azure: fake_azure.Azure, zone: str) -> None:
    azure.zone = zone
    machine = boot(node_values.CPU_WORKER)
    assert machine.start("sunspot-instance.service").returncode == 0
    expected = f"RAY_CLOUD_INSTANCE_ID={INSTANCE}\nRAY_NODE_REGION=uksouth\n"
    expected += "RAY_NODE_ZONE=2\n" if zone else ""
    assert machine.text("/run/sunspot/instance.env") == expected


# token


def test_the_token_comes_from_the_vault_into_memory(boot: Boot, azure: fake_azure.Azure) -> None:
    machine = boot(node_values.HEAD)
    ran = machine.start("sunspot-token.service")
    assert ran.returncode == 0, ran.stderr
    token = machine.path("/run/sunspot/token")
    assert token.read_text() == fake_azure.RAY_TOKEN
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert [p.name for p in token.parent.iterdir() if p.name.startswith("token")] == ["token"]
    (_, path, _, form), (_, secret, _, _) = azure.requests
    assert path == "/metadata/identity/oauth2/token"
    assert form["client_id"] == node_values.HEAD.identity_client_id
    assert secret == "/secrets/ray-token"
    assert ran.stdout + ran.stderr == ""


def test_identity_and_role_may_come_late(boot: Boot, azure: fake_azure.Azure) -> None:
    azure.failures = {"/metadata/identity/oauth2/token": [400], "/secrets/ray-token": [403]}
    machine = boot(node_values.HEAD)
    ran = machine.start("sunspot-token.service")
    assert ran.returncode == 0, ran.stderr
    assert machine.text("/run/sunspot/token") == fake_azure.RAY_TOKEN
    assert len(azure.requests) == 4


def test_an_empty_token_is_none(boot: Boot, azure: fake_azure.Azure) -> None:
    azure.secret = ""
    machine = boot(node_values.HEAD)
    assert machine.start("sunspot-token.service").returncode != 0
    assert not machine.path("/run/sunspot/token").exists()
    assert report(machine)["token"]["ok"] is False


def test_no_token_is_ever_an_argument(boot: Boot) -> None:
    machine = boot(node_values.CPU_WORKER)
    machine.stub("docker", DOCKER + '[ "$1" != image ]')
    machine.stub("curl", 'exec /usr/bin/curl "$@"')
    machine.stub("python3", 'exec /usr/bin/python3 "$@"')
    assert machine.start("sunspot-token.service").returncode == 0
    assert machine.start("sunspot-image.service").returncode == 0
    arguments = "\n".join(machine.calls)
    assert arguments.count("curl") >= 4
    secrets = [fake_azure.RAY_TOKEN, fake_azure.REFRESH_TOKEN, fake_azure.ACCESS_TOKEN[:10]]
    assert not [secret for secret in secrets if secret in arguments]


# driver


NVIDIA_TOOLS = ["nvidia-ctk", "nvidia-smi"]


def plug_in(machine: vm.Machine) -> None:
    """Puts a card of NVIDIA's on the PCI bus."""
    card = machine.path("/sys/bus/pci/devices/0001:00:00.0/vendor")
    card.parent.mkdir(parents=True)
    card.write_text("0x10de\n")


def nvidia(boot: Boot) -> vm.Machine:
    """A machine whose driver answers, whose toolkit is there."""
    machine = boot(node_values.T4_WORKER)
    for name in NVIDIA_TOOLS:
        machine.stub(name)
    plug_in(machine)
    machine.stub("uname", "echo 6.8.0-1030-azure")
    machine.stub("dpkg", "echo amd64")
    return machine


def installs(machine: vm.Machine) -> list[list[str]]:
    flags = "apt-get install --yes --no-install-recommends "
    return [call.removeprefix(flags).split() for call in machine.calls if call.startswith(flags)]


def modules_for(kernel: str) -> list[str]:
    return [
        f"linux-modules-nvidia-580-server-open-{kernel}",
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
    ]


def test_a_driver_that_answers_is_left_alone(boot: Boot) -> None:
    machine = nvidia(boot)
    ran = machine.start("sunspot-driver@nvidia.service")
    assert ran.returncode == 0, ran.stderr
    assert not [call for call in machine.calls if call.startswith("apt-get")]
    assert "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml" in machine.calls
    assert machine.text("/run/sunspot/devices.env") == (
        "SUNSPOT_DEVICE_FLAGS=--device=nvidia.com/gpu=all\n"
    )


def test_modules_for_the_running_kernel_are_installed_without_a_restart(boot: Boot) -> None:
    machine = nvidia(boot)
    machine.stub("modprobe", "test -e /var/lib/installed")
    machine.stub("apt-get", 'if [ "$1" = install ]; then touch /var/lib/installed; fi')
    assert machine.start("sunspot-driver@nvidia.service").returncode == 0
    assert installs(machine) == [modules_for("6.8.0-1030-azure")]
    assert "systemctl reboot" not in machine.calls


def test_a_kernel_without_modules_is_replaced_by_one_restart(boot: Boot) -> None:
    machine = nvidia(boot)
    machine.stub("modprobe", "test -e /var/lib/new-kernel")
    machine.stub("apt-get", 'case "$*" in *6.8.0*) exit 100 ;; esac')
    ran = machine.start("sunspot-driver@nvidia.service")
    assert ran.returncode == 1
    assert "Restarting into a kernel" in ran.stderr
    assert installs(machine) == [modules_for("6.8.0-1030-azure"), modules_for("azure")]
    assert machine.calls[-1] == "systemctl reboot"
    # Nothing tells the Ray unit of GPUs that are not there.
    assert not machine.path("/run/sunspot/devices.env").exists()

    machine.restart()
    machine.forget_calls()
    machine.path("/var/lib/new-kernel").touch()
    assert machine.start("sunspot-driver@nvidia.service").returncode == 0
    assert installs(machine) == []
    assert machine.path("/run/sunspot/devices.env").exists()


def test_a_driver_that_never_answers_restarts_the_machine_but_once(boot: Boot) -> None:
    machine = nvidia(boot)
    machine.stub("modprobe", "exit 1")
    machine.start("sunspot-driver@nvidia.service")
    assert machine.calls.count("systemctl reboot") == 1
    for _ in range(2):
        machine.restart()
        ran = machine.start("sunspot-driver@nvidia.service")
        assert ran.returncode == 1
        assert "even after a restart" in ran.stderr
    assert machine.calls.count("systemctl reboot") == 1


def test_no_restart_while_packages_cannot_be_had_at_all(boot: Boot) -> None:
    machine = nvidia(boot)
    machine.stub("modprobe", "exit 1")
    machine.stub("apt-get", "exit 100")
    assert machine.start("sunspot-driver@nvidia.service").returncode != 0
    assert "systemctl reboot" not in machine.calls


def test_the_container_toolkit_comes_from_nvidia(boot: Boot) -> None:
    machine = nvidia(boot)
    machine.path("/usr/local/bin/nvidia-ctk").unlink()
    machine.path("/etc/apt/sources.list.d").mkdir(parents=True)
    machine.stub("curl")
    machine.stub(
        "apt-get",
        'if [ "$1" = install ]; then ln -s nvidia-smi /usr/local/bin/nvidia-ctk; fi',
    )
    assert machine.start("sunspot-driver@nvidia.service").returncode == 0
    assert installs(machine) == [["nvidia-container-toolkit"]]
    keyring = "/usr/share/keyrings/nvidia-container-toolkit.asc"
    fetched = next(call for call in machine.calls if call.startswith("curl"))
    assert fetched.endswith(f"{keyring} https://nvidia.github.io/libnvidia-container/gpgkey")
    assert machine.text("/etc/apt/sources.list.d/nvidia-container-toolkit.list") == (
        f"deb [signed-by={keyring}] "
        "https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n"
    )


def test_rocm_devices_are_named_with_their_groups(boot: Boot) -> None:
    machine = boot(node_values.MI300X_WORKER)
    machine.path("/dev/kfd").touch()
    machine.path("/dev/dri").mkdir()
    machine.path("/dev/dri/renderD128").touch()
    machine.stub("stat", "echo 993; echo 44; echo 993")
    ran = machine.start("sunspot-driver@rocm.service")
    assert ran.returncode == 0, ran.stderr
    assert machine.text("/run/sunspot/devices.env") == (
        "SUNSPOT_DEVICE_FLAGS='--device=/dev/kfd --device=/dev/dri "
        "--security-opt=seccomp=unconfined --group-add=44 --group-add=993'\n"
    )


@pytest.mark.parametrize("has_module", [True, False])
def test_a_vm_image_without_rocm_is_named(boot: Boot, has_module: bool) -> None:
    machine = boot(node_values.MI300X_WORKER)
    machine.stub("modprobe", "" if has_module else "exit 1")
    ran = machine.start("sunspot-driver@rocm.service")
    assert ran.returncode == 1
    assert "ubuntu-hpc:2404-rocm" in ran.stderr


# ray


def ready(boot: Boot, values: NodeValues) -> vm.Machine:
    """A machine on which everything before Ray has run."""
    machine = boot(values)
    machine.stub("docker", DOCKER)
    machine.path("/dev/kfd").touch()
    machine.path("/dev/dri").mkdir()
    machine.path("/dev/dri/renderD128").touch()
    plug_in(machine)
    for name in NVIDIA_TOOLS:
        machine.stub(name)
    units = ["disk", "docker", "image", "instance", "token"]
    if values.driver != "none":
        units.append(f"driver@{values.driver}")
    for unit in units:
        ran = machine.start(f"sunspot-{unit}.service")
        assert ran.returncode == 0, ran.stderr
    return machine


def container(machine: vm.Machine) -> tuple[list[str], list[str]]:
    """The flags of the last `docker run`, and the command line inside, `ray` first."""
    call = shlex.split(machine.calls[-1])
    assert call[:2] == ["docker", "run"]
    index = call.index("--entrypoint=ray")
    return call[2:index], ["ray", *call[index + 2 :]]


def test_gpus_are_asked_from_inside_the_container(boot: Boot) -> None:
    machine = ready(boot, node_values.T4_WORKER)
    ran = machine.script("gpus.sh")
    assert ran.returncode == 0, ran.stderr
    assert machine.calls[-1] == (
        "docker run --rm --network=none --device=nvidia.com/gpu=all --entrypoint=nvidia-smi "
        f"{node_values.T4_WORKER.image} --list-gpus"
    )


@pytest.mark.parametrize("values", [node_values.T4_WORKER, node_values.MI300X_WORKER])
def test_a_node_whose_gpus_are_not_all_there_does_not_join(boot: Boot, values: NodeValues) -> None:
    machine = ready(boot, values)
    assert machine.script("gpus.sh").returncode == 0
    machine.overrides["SUNSPOT_GPUS"] = "9"
    ran = machine.script("gpus.sh")
    assert ran.returncode == 1
    assert f"{values.gpus} of 9 GPUs ({values.accelerator}) answer" in ran.stderr


def test_no_gpu_in_the_container_is_none_of_one(boot: Boot) -> None:
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
    assert set(ports.start_flags("head")) <= set(ray)
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
    assert set(ports.start_flags("worker")) <= set(ray)
    assert "--device=nvidia.com/gpu=all" in docker
    assert not [flag for flag in ray if flag.startswith(("--head", "--dashboard-host", "--port"))]


def test_devices_of_rocm_reach_the_container_one_by_one(boot: Boot) -> None:
    machine = ready(boot, node_values.MI300X_WORKER)
    machine.start("sunspot-ray.service")
    docker, _ = container(machine)
    assert {"--device=/dev/kfd", "--device=/dev/dri"} <= set(docker)
    assert [flag for flag in docker if flag.startswith("--group-add=")]


def test_the_container_gets_names_of_variables_not_values(boot: Boot) -> None:
    machine = ready(boot, node_values.AUTOSCALED_HEAD)
    keep = f'case " $* " in *--entrypoint=ray*) env >{vm.NOTES}/env ;; esac'
    machine.stub("docker", DOCKER + keep)
    machine.start("sunspot-ray.service")
    docker, ray = container(machine)
    passed = {flag.removeprefix("--env=") for flag in docker if flag.startswith("--env=")}
    given = dict(
        line.split("=", 1) for line in machine.text(f"{vm.NOTES}/env").splitlines() if "=" in line
    )
    assert {name: given.get(name) for name in passed} == {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/run/sunspot/token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CLOUD_INSTANCE_ID": INSTANCE,
        "RAY_NODE_TYPE_NAME": "head",
        "RAY_NODE_MARKET_TYPE": "on-demand",
        "RAY_NODE_REGION": "uksouth",
        "RAY_NODE_ZONE": "2",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_enable_infeasible_task_early_exit": "true",
        "RAY_gcs_storage": "rocksdb",
        "RAY_gcs_storage_path": "/var/lib/sunspot/state/gcs",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
        "RAY_PROMETHEUS_HOST": "http://127.0.0.1:9090",
        "RAY_GRAFANA_HOST": "http://127.0.0.1:3000",
        "AUTOSCALER_MAX_LAUNCH_BATCH": "1000",
        "AUTOSCALER_MAX_CONCURRENT_LAUNCHES": "40000",
        "PYTHONPATH": "/usr/local/lib/sunspot/python",
        **ports.environment("head"),
        "AZURE_CLIENT_ID": node_values.HEAD.identity_client_id,
        "SUNSPOT_CLUSTER": "sunspot-hybrid",
        "SUNSPOT_STORAGE": node_values.HEAD.storage_url,
        "SUNSPOT_SUBSCRIPTION_ID": node_values.HEAD.subscription_id,
        "SUNSPOT_RESOURCE_GROUP": "sunspot-hybrid",
        "SUNSPOT_SCALE_SET": "",
    }
    assert fake_azure.RAY_TOKEN not in machine.text(f"{vm.NOTES}/env") + " ".join(docker + ray)


def test_the_container_has_the_nodes_modules_and_keeps_the_path_of_its_image(boot: Boot) -> None:
    machine = ready(boot, node_values.AUTOSCALED_HEAD)
    machine.path(f"{vm.NOTES}/image-env").write_text(
        "PYTHONPATH=/opt/app:/opt/lib\nOTHER=PYTHONPATH=x\n"
    )
    keep = f'case " $* " in *--entrypoint=ray*) printenv PYTHONPATH >{vm.NOTES}/path ;; esac'
    machine.stub("docker", DOCKER + keep)
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode == 0, ran.stderr
    docker, _ = container(machine)
    assert f"--volume={NODE_PYTHON}:{NODE_PYTHON}:ro" in docker
    assert machine.text(f"{vm.NOTES}/path") == f"{NODE_PYTHON}:/opt/app:/opt/lib\n"
    folder = machine.path(f"{NODE_PYTHON}/sunspot")
    assert sorted(p.name for p in (folder / "node").iterdir()) == sorted(NODE_MODULES)
    assert [p.name for p in folder.iterdir()] == ["node"]  # a namespace: nothing else is needed


def test_the_token_belongs_to_the_user_of_the_image(boot: Boot) -> None:
    machine = ready(boot, node_values.HEAD)
    machine.start("sunspot-ray.service")
    token = machine.path("/run/sunspot/token").stat()
    assert stat.S_IMODE(token.st_mode) == 0o600
    if vm.IMAGE_USER:
        assert token.st_uid == vm.IMAGE_USER
        assert machine.path("/var/lib/sunspot/ray").stat().st_uid == vm.IMAGE_USER


def test_the_autoscaler_gets_a_file_that_it_may_write(boot: Boot) -> None:
    machine = ready(boot, node_values.AUTOSCALED_HEAD)
    ran = machine.start("sunspot-ray.service")
    assert ran.returncode == 0, ran.stderr
    docker, ray = container(machine)
    assert "--autoscaling-config=/run/sunspot/autoscaler/config.yaml" in ray
    assert "--volume=/run/sunspot/autoscaler:/run/sunspot/autoscaler" in docker
    config = machine.path("/run/sunspot/autoscaler/config.yaml")
    assert config.read_text() == node_values.AUTOSCALED_HEAD.autoscaler_config
    if vm.IMAGE_USER:
        assert config.stat().st_uid == vm.IMAGE_USER


@pytest.mark.parametrize("missing", ["token", "instance.env", "disk.env"])
def test_ray_does_not_start_before_everything_is_there(boot: Boot, missing: str) -> None:
    machine = ready(boot, node_values.HEAD)
    machine.path(f"/run/sunspot/{missing}").unlink()
    machine.forget_calls()
    assert machine.start("sunspot-ray.service").returncode != 0
    assert not [call for call in machine.calls if "--entrypoint=ray" in call]


@pytest.mark.parametrize("values", node_values.ALL.values(), ids=list(node_values.ALL))
def test_ray_knows_every_flag(boot: Boot, values: NodeValues) -> None:
    from ray.scripts import scripts

    machine = ready(boot, values)
    machine.start("sunspot-ray.service")
    _, ray = container(machine)
    context = scripts.start.make_context("start", ray[2:])
    assert context.params["block"] is True
    assert context.params["object_store_memory"] == int(values.memory_gb * 2**30 * 0.3)


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


def test_joining_waits_for_the_raylet(boot: Boot, azure: fake_azure.Azure) -> None:
    machine = boot(node_values.HEAD)
    machine.overrides["SUNSPOT_AGENT_PORT"] = azure.url.rsplit(":", 1)[1]
    azure.failures = {"/api/local_raylet_healthz": [503]}
    ran = machine.run(f"{vm.LIBRARY}/phase.sh", "join", f"{vm.LIBRARY}/join.sh")
    assert ran.returncode == 0, ran.stderr
    assert azure.paths() == ["/api/local_raylet_healthz"] * 2
    assert report(machine)["join"]["ok"] is True


def test_a_container_that_ends_is_not_waited_for(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.overrides |= {"SUNSPOT_AGENT_PORT": "9", "MAINPID": "999999999"}
    ran = machine.script("join.sh")
    assert ran.returncode == 1
    assert "container ended" in ran.stderr
    assert "sleep" not in " ".join(machine.calls)
