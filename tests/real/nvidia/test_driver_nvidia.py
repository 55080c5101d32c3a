"""The NVIDIA driver's script with a real apt: what it installs, when it restarts, what it says."""

import json

import pytest
from apt_machine import Archives, Boot
from stand_in_packages import BARE, DRIVER, NEWEST, OUTDATED, TOO_NEW

MARKER = "/var/lib/sunspot/restarted-for-driver"
DEVICES = "/run/sunspot/devices.env"
CDI = "/etc/cdi/nvidia.yaml"
UVM = "/dev/nvidia-uvm"
TOOLKIT = {"nvidia-container-toolkit", "nvidia-container-toolkit-base"}

pytestmark = pytest.mark.timeout(600)


def modules(kernel: str) -> str:
    return f"linux-modules-nvidia-580-server-open-{kernel}"


def test_modules_for_the_running_kernel_come_from_ubuntu(boot: Boot, archives: Archives) -> None:
    machine = boot(NEWEST)
    ran = machine.driver()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert machine.installed() >= {
        modules(NEWEST),
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
        *TOOLKIT,
    }
    assert machine.restarts == 0
    assert not machine.path(MARKER).exists()
    assert machine.text(DEVICES) == "SUNSPOT_DEVICE_FLAGS=--device=nvidia.com/gpu=all\n"
    assert f"driver: {DRIVER}" in machine.text(CDI)
    assert UVM in machine.text(CDI)
    (entry,) = json.loads(machine.text("/var/log/sunspot/boot.json"))
    assert (entry["phase"], entry["ok"]) == ("driver", True)

    # From then on it needs no archive; the file that names libraries is made anew all the same.
    machine.restart()
    asked, had = len(archives.requests), machine.installed()
    machine.write(CDI, b"of an older driver\n")
    assert machine.driver().returncode == 0
    assert machine.text(DEVICES)
    assert f"driver: {DRIVER}" in machine.text(CDI)
    assert UVM in machine.text(CDI)
    assert len(archives.requests) == asked
    assert machine.installed() == had


def test_where_udev_makes_cudas_device_the_script_waits_for_it(boot: Boot) -> None:
    machine = boot(NEWEST)
    machine.write("/etc/stand-in/udev-rules", b"")
    # A second mknod would fail.
    ran = machine.driver()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert UVM in machine.text(CDI)


@pytest.mark.parametrize("kernel", [BARE, OUTDATED], ids=["no-modules", "modules-of-old-driver"])
def test_a_kernel_without_fitting_modules_is_replaced_by_one_restart(
    boot: Boot, kernel: str
) -> None:
    machine = boot(kernel)
    ran = machine.driver()
    assert ran.returncode == 1
    assert "Restarting into a kernel that has NVIDIA modules" in ran.stderr
    assert machine.restarts == 1
    assert machine.path(MARKER).exists()
    assert machine.installed() >= {modules("azure"), modules(NEWEST), f"linux-image-{NEWEST}"}
    # Nothing tells the Ray unit of GPUs that do not answer yet.
    assert not machine.path(DEVICES).exists()

    machine.restart()
    ran = machine.driver()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert machine.restarts == 1
    assert not machine.path(MARKER).exists()
    assert f"driver: {DRIVER}" in machine.text(CDI)


def test_a_restart_that_did_not_help_is_said_and_not_repeated(boot: Boot) -> None:
    machine = boot(TOO_NEW)
    assert machine.driver().returncode == 1
    assert machine.restarts == 1
    for _ in range(2):
        machine.restart()
        ran = machine.driver()
        assert ran.returncode == 1
        assert "No NVIDIA driver answers, even after a restart" in ran.stderr
        # And the line above it names what there was none for.
        assert modules(TOO_NEW) in ran.stdout + ran.stderr
    assert machine.restarts == 1
    assert not machine.path(DEVICES).exists()


def test_a_machine_without_a_card_installs_nothing_and_does_not_restart(boot: Boot) -> None:
    machine = boot(NEWEST)
    machine.plug_in(vendor="0x1414")  # Microsoft's own
    had = machine.installed()
    ran = machine.driver()
    assert ran.returncode == 1
    assert "No NVIDIA GPU is in this machine" in ran.stderr
    assert machine.installed() == had
    assert machine.restarts == 0
    assert not machine.path(DEVICES).exists()


def test_a_repository_of_nvidias_with_another_signature_is_refused(
    boot: Boot, archives: Archives
) -> None:
    machine = boot(NEWEST)
    right = archives.nvidia_key.read_bytes()
    archives.nvidia_key.write_bytes((archives.folder / "ubuntu-key/public.asc").read_bytes())
    try:
        ran = machine.driver()
    finally:
        archives.nvidia_key.write_bytes(right)
    assert ran.returncode != 0
    assert "NO_PUBKEY" in ran.stdout + ran.stderr
    assert not TOOLKIT & machine.installed()
    assert not machine.path(DEVICES).exists()

    # What was fetched wrongly does not stay: the unit tries again.
    ran = machine.driver()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert machine.installed() >= TOOLKIT


# Another unit installs; the script starts, is seen to wait, and only then the other goes on.
BOTH = """
apt-get install --yes stand-in-slow >/dev/null &
until [ -e /var/log/stand-in-slow ]; do kill -0 $! || exit 99; sleep 0.1; done
/usr/local/lib/sunspot/driver-nvidia.sh >/var/log/driver 2>&1 &
script=$!
for _ in {1..900}; do
    if grep --quiet 'Waiting for cache lock' /var/log/driver; then break; fi
    if ! kill -0 "$script" 2>/dev/null; then break; fi
    sleep 0.1
done
touch /var/log/stand-in-go
wait "$script"
"""


def test_it_waits_for_another_that_installs(boot: Boot) -> None:
    machine = boot(NEWEST)
    ran = machine.run("bash", "-c", BOTH)
    log = machine.text("/var/log/driver")
    assert "Waiting for cache lock" in log
    assert ran.returncode == 0, log
    assert machine.restarts == 0
    assert machine.installed() >= {"stand-in-slow", modules(NEWEST)}


# As apt itself locks its lists, and nothing in apt waits for that.
HOLD_LISTS = """
hold='use Fcntl; my $lock = pack("s s l! l! i", F_WRLCK, 0, 0, 0, 0);
    open(F, "+>>", "/var/lib/apt/lists/lock"); fcntl(F, F_SETLK, $lock) or die;
    open(G, ">", "/run/held"); sleep 300'
perl -e "$hold" &
until [ -e /run/held ]; do kill -0 $! || exit 99; sleep 0.1; done
/usr/local/lib/sunspot/driver-nvidia.sh
"""


def test_lists_that_cannot_be_had_are_no_reason_to_restart(boot: Boot) -> None:
    machine = boot(BARE)
    ran = machine.run("bash", "-c", HOLD_LISTS)
    assert ran.returncode != 0
    assert "Could not get lock /var/lib/apt/lists/lock" in ran.stderr
    assert machine.restarts == 0
    assert not machine.path(MARKER).exists()
    # What the unit's next start finds.
    machine.driver()
    assert machine.restarts == 1
