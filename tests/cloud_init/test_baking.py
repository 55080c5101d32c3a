"""What the disk of a baked VM image is prepared by, run for real in a machine made of folders."""

import json
import shlex

import node_values
import pytest
import sandbox
from booted import DOCKER, Boot, hide_docker

from cloud_init import baking
from sunspot.targets.azure.images import ON_EVERY_HEAD
from sunspot.targets.azure.vm_images import BakedDriver

IMAGES = ["rayproject/ray:2.60.0-py311", "rayproject/ray:2.60.0-py311-gpu"]
DATA_ROOT = "/var/lib/sunspot/docker"


def commands(driver: BakedDriver = "none") -> list[str]:
    return baking.commands(ray_version="2.60.0", driver=driver, images=IMAGES)


def fresh(boot: Boot) -> sandbox.Machine:
    """A VM of Ubuntu's image: none of our scripts, no Docker, no GPU."""
    machine = boot(node_values.HEAD)
    for script in machine.path(sandbox.LIBRARY).glob("*.sh"):
        script.unlink()
    machine.overrides.clear()
    machine.stub("sudo", 'exec "$@"')
    machine.stub("uname", "echo 6.8.0-1030-azure")
    machine.stub("dpkg", "echo amd64")
    machine.stub("curl")
    machine.stub("docker", DOCKER)
    machine.path("/etc/apt/sources.list.d").mkdir(parents=True, exist_ok=True)
    return machine


def bake(machine: sandbox.Machine, driver: BakedDriver = "none") -> None:
    for command in commands(driver):
        ran = machine.run("/bin/sh", "-c", command, env_files=())
        assert ran.returncode == 0, ran.stderr


def test_docker_and_the_container_images_are_on_the_disk(boot: Boot) -> None:
    machine = fresh(boot)
    # The build's VM has a temporary disk, which is not part of the image.
    machine.path("/mnt/.mounted").touch()
    bake(machine)
    pulled = [call.split()[-1] for call in machine.calls if call.startswith("docker pull")]
    assert pulled[:2] == IMAGES
    assert json.loads(machine.text("/etc/docker/daemon.json"))["data-root"] == DATA_ROOT
    baked = json.loads(machine.text("/etc/sunspot/baked.json"))
    assert baked == {"ray": "2.60.0", "driver": "none", "images": IMAGES}
    assert "systemctl stop docker.service docker.socket containerd.service" in machine.calls
    # Nothing of a node's: its own user data brings that.
    assert not machine.path(sandbox.LIBRARY).exists()
    assert not machine.path("/run/sunspot").exists()


@pytest.mark.parametrize("has_modules", [True, False])
def test_the_driver_is_installed_without_a_gpu_and_without_a_restart(
    boot: Boot, has_modules: bool
) -> None:
    machine = fresh(boot)
    if not has_modules:
        machine.stub("apt-get", 'case "$*" in *6.8.0-1030*) exit 100 ;; esac')
    bake(machine, "nvidia")
    installed = " ".join(call for call in machine.calls if call.startswith("apt-get install"))
    kernel = "6.8.0-1030-azure" if has_modules else "azure"
    assert f"linux-modules-nvidia-580-server-open-{kernel} " in installed
    assert "nvidia-container-toolkit" in installed
    assert "systemctl reboot" not in machine.calls
    assert not [call for call in machine.calls if call.startswith(("modprobe", "nvidia-ctk cdi"))]


def test_a_node_of_the_image_keeps_dockers_data_where_its_images_are(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.path("/mnt/.mounted").touch()
    machine.path("/etc/sunspot/baked.json").write_text("{}")
    assert machine.start("sunspot-disk.service").returncode == 0
    assert json.loads(machine.text("/etc/docker/daemon.json"))["data-root"] == DATA_ROOT
    # Ray's own files still go to the temporary disk.
    assert machine.text("/run/sunspot/disk.env") == "SUNSPOT_SCRATCH=/mnt/sunspot\n"


def test_what_fails_ends_the_baking(boot: Boot) -> None:
    machine = fresh(boot)
    machine.path("/usr/local/bin/docker").unlink()
    hide_docker(machine)
    for name in ("tar", "gzip", "base64", "sh", "env", "rm", "mountpoint", "dirname"):
        machine.path(f"/usr/local/bin/{name}").symlink_to(f"/usr/bin/{name}")
    machine.stub("apt-get", "exit 100")
    unpack, run = commands()
    assert machine.run("/bin/sh", "-c", unpack, env_files=()).returncode == 0
    assert machine.run("/bin/sh", "-c", run, env_files=()).returncode != 0


def test_the_same_commands_for_the_same_values() -> None:
    assert commands() == commands()
    # A shell splits them as they were meant.
    words = shlex.split(commands()[1])
    assert f"SUNSPOT_IMAGES={' '.join((*IMAGES, *ON_EVERY_HEAD))}" in words
