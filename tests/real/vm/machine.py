"""A virtual machine without hardware acceleration, and the way into it."""

import contextlib
import json
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any, TypeVar

import yaml
from disk import DiskKind, Disks
from machines.processes import StepError, checked
from network import Network
from waiting import wait_for

T = TypeVar("T")

ADMIN = "sunspot"
CPUS = 2
MEMORY = "3G"
# What QEMU emulates, without what costs most to emulate and nothing here needs.
PROCESSOR = "max,-avx,-avx2,-f16c,-fma,-erms,-la57"
# The socket in a machine's folder, and what is said there without a question.
MONITOR, UNASKED = "qmp", {"QMP", "event"}
POLL_S = 5.0
STOP_S = 20.0
DATA_DISK_BYTES = str(4 * 2**30)
# Their images are not to be had here, and each of these units would try for them every 30 s. And a
# worker process takes 10 s of a processor to start: no more of them than there are tasks for.
_LIGHTER = """
drop_in() {
    folder=/etc/systemd/system/sunspot-$1.service.d
    mkdir -p $folder
    printf '%s\\n' "$2" "$3" >$folder/lighter.conf
}
drop_in prometheus '[Unit]' ConditionPathExists=/no/image
drop_in grafana '[Unit]' ConditionPathExists=/no/image
drop_in ray '[Service]' Environment=RAY_prestart_worker_first_driver=0
"""
# Of an emulated machine on a busy host.
COMMAND_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What the platform tells a machine when it boots it: on Azure, its provisioning data.

    `name` is what Azure's API calls the VM; `user_data` is what the stack renders for its first
    boot, `settings` what IMDS gives as Azure's user data; `hosts` are names that DNS would answer.
    `data_disk` says whether it has one, as the head has for its state; `disk` names the disk that
    it boots from.
    """

    name: str
    hostname: str
    address: IPv4Interface
    gateway: str
    mac: str
    user_data: bytes
    settings: str
    public_key: str
    authority: str
    hosts: dict[str, str]
    data_disk: bool
    disk: DiskKind

    def write(self, folder: Path) -> None:
        """The files of cloud-init's NoCloud source."""
        folder.mkdir()
        (folder / "user-data").write_bytes(self.user_data)
        identity = {"instance-id": self.name, "local-hostname": self.hostname}
        (folder / "meta-data").write_text(json.dumps(identity))
        (folder / "network-config").write_text(yaml.safe_dump(self._network()))
        (folder / "vendor-data").write_text("#cloud-config\n" + yaml.safe_dump(self._vendor()))

    def _network(self) -> dict[str, Any]:
        port = {
            "match": {"macaddress": self.mac},
            "addresses": [str(self.address)],
            "routes": [{"to": "0.0.0.0/0", "via": self.gateway}],
            # Nobody would tell it its IPv6 addresses: it would wait for them for 10 s.
            "accept-ra": False,
            "link-local": [],
        }
        return {"version": 2, "ethernets": {"primary": port}}

    def _vendor(self) -> dict[str, Any]:
        """What Azure's agent and network do: the admin with his key, DNS, and who is trusted."""
        user = {
            "name": ADMIN,
            "shell": "/bin/bash",
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "ssh_authorized_keys": [self.public_key],
        }
        lines = "".join(f"{address} {name}\n" for name, address in self.hosts.items())
        # Among those that Debian trusts: cloud-init's `ca_certs` would sort them anew for 20 s.
        trust = f"printf %s {shlex.quote(self.authority)} >>/etc/ssl/certs/ca-certificates.crt"
        return {
            "users": [user],
            "bootcmd": [
                f"cloud-init-per once hosts printf {shlex.quote(lines)} >>/etc/hosts",
                f"cloud-init-per once authority {trust}",
                f"cloud-init-per once lighter sh -c {shlex.quote(_LIGHTER)}",
            ],
            # As Azure's image has it; Debian's asks for one that the disk does not have.
            "locale": "C.UTF-8",
            # The other kinds take long to make without hardware.
            "ssh_genkeytypes": ["ed25519"],
        }


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that runs; `folder` has its console's output."""

    name: str
    address: str
    network: Network
    folder: Path
    key: Path
    process: subprocess.Popen[bytes]

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    def ssh(self, command: str, *, timeout_s: float = COMMAND_S) -> str:
        """What a command line of the admin's prints. Raises StepError, TimeoutExpired."""
        return checked(self.network.command(*self.ssh_command(), command), timeout=timeout_s)

    def ssh_command(self) -> list[str]:
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
            "ConnectTimeout": "10",
            "ServerAliveInterval": "15",
            # One session for all commands: to open one takes an emulated machine some seconds.
            "ControlMaster": "auto",
            "ControlPath": str(self.folder / "ssh"),
            "ControlPersist": "yes",
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return ["ssh", *flags, "-i", str(self.key), f"{ADMIN}@{self.address}"]

    def wait(self, what: str, ready: Callable[[], T | None], *, timeout_s: float) -> T:
        """The first answer of `ready` that is true; a command that fails counts as none yet."""

        def answer() -> T | None:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name}: QEMU ended with {self.process.returncode}")
            return ready()

        return wait_for(
            f"{what} on {self.name}",
            answer,
            timeout_s,
            poll_s=POLL_S,
            not_yet=(StepError, subprocess.TimeoutExpired),
            seen=self.told,
        )

    def told(self) -> str:
        """The end of its journal, or of its console where it lets nobody in."""
        try:
            return self.ssh("sudo journalctl --boot --no-pager --lines 100 --unit 'sunspot-*'")
        except (StepError, subprocess.TimeoutExpired):
            return self.console.read_text(errors="replace")[-3000:]

    def hang_up(self) -> None:
        """Ends the session that the commands share."""
        *command, host = self.ssh_command()
        with contextlib.suppress(StepError):
            checked(self.network.command(*command, "-O", "exit", host), timeout=COMMAND_S)

    def runs_ray(self) -> bool:
        """Whether Ray's unit is started: its container runs and its raylet is healthy."""
        return self.ssh("systemctl is-active sunspot-ray || true").strip() == "active"

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Its processors and its clock stand still while the block runs.

        An emulated head that is idle takes a whole processor.
        """
        self._tell("stop")
        try:
            yield
        finally:
            self._tell("cont")

    def _tell(self, command: str) -> None:
        """Has QEMU do something (its documentation, "QEMU Monitor Protocol")."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(COMMAND_S)
            connection.connect(str(self.folder / MONITOR))
            with connection.makefile("rw") as monitor:
                for one in ("qmp_capabilities", command):
                    monitor.write(json.dumps({"execute": one}) + "\n")
                    monitor.flush()
                    # A greeting and events may come before it.
                    said = map(json.loads, monitor)
                    answer = next(line for line in said if UNASKED.isdisjoint(line))
                    assert "return" in answer, answer

    def phases(self) -> list[dict[str, Any]]:
        """The phases of its boot that have ended."""
        return json.loads(self.ssh("cat /var/log/sunspot/boot.json"))

    def boot_id(self) -> str:
        return self.ssh("cat /proc/sys/kernel/random/boot_id").strip()


@contextlib.contextmanager
def booted(
    seed: Seed, disks: Disks, network: Network, *, folder: Path, key: Path
) -> Iterator[Machine]:
    """A machine that starts; it and its disk are gone when the block ends."""
    folder.mkdir()
    seed.write(folder / "seed")
    overlay = folder / "overlay.qcow2"
    create = ["qemu-img", "create", "-q", "-f", "qcow2"]
    checked([*create, "-F", "raw", "-b", disks.of(seed.disk), overlay])
    checked([*create, folder / "data.qcow2", DATA_DISK_BYTES])
    tap = f"tap{seed.mac[-1]}"
    network.add_tap(tap)
    arguments = _qemu(seed, disks, tap, folder, overlay)
    with (folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            network.command(*arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    machine = Machine(
        name=seed.name,
        address=str(seed.address.ip),
        network=network,
        folder=folder,
        key=key,
        process=process,
    )
    try:
        yield machine
    finally:
        machine.hang_up()
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        overlay.unlink()
        (folder / "data.qcow2").unlink()


def _qemu(seed: Seed, disks: Disks, tap: str, folder: Path, overlay: Path) -> list[str]:
    # `ip netns exec` becomes the command, so the process is QEMU itself. The kernel keeps its
    # mitigations: with `mitigations=off` and `-cpu max,-svm`, QEMU 7.2 runs one that shows every
    # path in /proc/self/mountinfo as "xxx". It is told that the processors' clocks agree, as they
    # do here: else it reads the time from a device, each time under the emulator's one lock.
    data = ("-drive", f"file={folder / 'data.qcow2'},if=none,id=data,format=qcow2,cache=unsafe")
    return [
        *("qemu-system-x86_64", "-name", seed.name, "-nodefaults", "-display", "none"),
        *("-accel", "tcg,thread=multi", "-cpu", PROCESSOR, "-smp", str(CPUS), "-m", MEMORY),
        *("-kernel", str(disks.kernel), "-initrd", str(disks.initrd)),
        *("-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0 tsc=reliable"),
        *("-serial", f"file:{folder / 'console.log'}"),
        *("-qmp", f"unix:{folder / MONITOR},server=on,wait=off"),
        *("-drive", f"file={overlay},if=none,id=root,format=qcow2,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=root"),
        *((*data, "-device", "virtio-blk-pci,drive=data,serial=lun0") if seed.data_disk else ()),
        *("-blockdev", f"vvfat,node-name=seed,dir={folder / 'seed'},label=cidata,read-only=on"),
        *("-device", "virtio-blk-pci,drive=seed"),
        *("-netdev", f"tap,id=port,ifname={tap},script=no,downscript=no"),
        # Without the boot ROM: it starts from -kernel.
        *("-device", f"virtio-net-pci,netdev=port,mac={seed.mac},romfile="),
        *("-device", "virtio-rng-pci"),
    ]
