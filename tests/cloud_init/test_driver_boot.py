"""driver-nvidia.sh and driver-rocm.sh, run for real in a machine made of folders, with stubs."""

import shlex

import node_values
import pytest
import sandbox
from booted import NVIDIA_TOOLS, UVM, Boot, plug_in

# What CDI's tool does: it lists the devices that there are.
LIST = f'case "$1" in cdi) ls -d {UVM} >/etc/cdi/nvidia.yaml 2>/dev/null || true ;; esac'


def nvidia(boot: Boot) -> sandbox.Machine:
    """A machine whose driver answers, whose toolkit is there."""
    machine = boot(node_values.T4_WORKER)
    for name in NVIDIA_TOOLS:
        machine.stub(name)
    plug_in(machine)
    machine.stub("uname", "echo 6.8.0-1030-azure")
    machine.stub("dpkg", "echo amd64")
    return machine


def installs(machine: sandbox.Machine) -> list[list[str]]:
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


@pytest.mark.parametrize("maker", ["udevadm settle", "nvidia-ctk system create-device-nodes"])
def test_cudas_device_is_there_before_cdi_lists_what_is_there(boot: Boot, maker: str) -> None:
    machine = nvidia(boot)
    machine.path(UVM).unlink()
    program, _, what = maker.partition(" ")
    machine.stub(program, f'case "$*" in {shlex.quote(what)}*) ln -s null {UVM} ;; esac\n{LIST}')
    if program != "nvidia-ctk":
        machine.stub("nvidia-ctk", LIST)
    ran = machine.start("sunspot-driver@nvidia.service")
    assert ran.returncode == 0, ran.stderr
    assert machine.text("/etc/cdi/nvidia.yaml") == f"{UVM}\n"
    made = [call for call in machine.calls if "create-device-nodes" in call]
    assert made == ([] if program == "udevadm" else [f"{maker} --control-devices"])


def test_a_driver_without_cudas_device_is_not_used(boot: Boot) -> None:
    machine = nvidia(boot)
    machine.path(UVM).unlink()
    ran = machine.start("sunspot-driver@nvidia.service")
    assert ran.returncode == 1
    assert UVM in ran.stderr
    assert not machine.path("/run/sunspot/devices.env").exists()


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
