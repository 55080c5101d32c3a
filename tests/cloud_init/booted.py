"""What tests of a boot share: what stubs of Docker answer, a machine before Ray, its report."""

import json
from collections.abc import Callable

import sandbox

from cloud_init import NodeValues

Boot = Callable[[NodeValues], sandbox.Machine]

INSTANCE = "hybrid-t4_1a2b3c4d"
BOOT_REPORT = "/var/log/sunspot/boot.json"

# An image's user, its GPUs, and a login that keeps what it was given.
DOCKER = f"""
case " $* " in
*--entrypoint=id*) echo {sandbox.IMAGE_USER} ;;
*' --format={{{{range'*) cat {sandbox.NOTES}/image-env 2>/dev/null || true ;;
*--entrypoint=python*cuda.py*) echo 'GPU 0: Tesla T4' ;;
*--entrypoint=rocminfo*) for _ in {{1..8}}; do echo '  Device Type:             GPU'; done ;;
*' login '*) cat >{sandbox.NOTES}/login; echo "$DOCKER_CONFIG" >{sandbox.NOTES}/config ;;
esac
"""
NVIDIA_TOOLS = ["nvidia-ctk", "nvidia-smi", "udevadm"]
UVM = "/dev/nvidia-uvm"


def report(machine: sandbox.Machine) -> dict[str, dict[str, object]]:
    return {entry["phase"]: entry for entry in json.loads(machine.text(BOOT_REPORT))}


def hide_docker(machine: sandbox.Machine) -> None:
    """Takes this machine's Docker off the PATH: only stubs and what our scripts need are left."""
    machine.overrides["PATH"] = "/usr/local/bin:/only"
    for name in ("mkdir", "flock", "cat", "sort", "sed", "mv", "bash"):
        machine.path(f"/usr/local/bin/{name}").symlink_to(f"/usr/bin/{name}")


def plug_in(machine: sandbox.Machine) -> None:
    """Puts an NVIDIA GPU on the PCI bus, with the file that its driver makes for CUDA."""
    card = machine.path("/sys/bus/pci/devices/0001:00:00.0/vendor")
    card.parent.mkdir(parents=True)
    card.write_text("0x10de\n")
    machine.path(UVM).symlink_to("null")


def ready(boot: Boot, values: NodeValues) -> sandbox.Machine:
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
    if values.role == "head":
        machine.stub("mountpoint")  # its data disk is mounted
    return machine


def environment(machine: sandbox.Machine, flags: list[str]) -> dict[str, str | None]:
    """Each variable that these flags of `docker run` pass on, as a stub that ran `env` had it."""
    passed = {flag.removeprefix("--env=") for flag in flags if flag.startswith("--env=")}
    lines = machine.text(f"{sandbox.NOTES}/env").splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line)
    return {name: given.get(name) for name in passed}
