"""What needrestart restarts by itself, by its own language: Perl reads the file that lands."""

import shutil
import subprocess
from pathlib import Path

import node_values
import pytest
import sandbox
from booted import Boot, hide_docker, plug_in

from cloud_init import render
from cloud_init.render import HEAD_UNITS, UNITS

# As needrestart 3.6 does: it evaluates each file of conf.d after its own settings (its
# needrestart.conf), and the first pattern that matches a service decides about it.
READ = r"""
our %nrconf = (override_rc => {qr(^dbus) => 0});
if (-e $ARGV[0]) {
    eval do { local(@ARGV, $/) = shift(@ARGV); <> };
    die "Error parsing: $@" if $@;
} else { shift }
for my $unit (@ARGV) {
    my $restart = 1;
    for my $pattern (keys %{$nrconf{override_rc}}) {
        if ($unit =~ /$pattern/) { $restart = $nrconf{override_rc}->{$pattern}; last }
    }
    print "$unit\n" if $restart;
}
"""
FILE = "/etc/needrestart/conf.d/sunspot.conf"
OURS = {unit for unit in (*UNITS, *HEAD_UNITS) if unit.endswith(".service")}


def restarted(user_data: bytes, folder: Path, units: set[str]) -> set[str]:
    """The units that needrestart would restart on a node with this user data."""
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("perl is not installed")
    file = folder / "sunspot.conf"
    content, _ = sandbox.landed(user_data).get(FILE, (b"", 0))
    file.write_bytes(content)
    ran = subprocess.run(
        [perl, "-w", "-e", READ, str(file), *units], capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return set(ran.stdout.split())


@pytest.mark.parametrize("values", node_values.ALL.values(), ids=list(node_values.ALL))
def test_an_updated_library_restarts_neither_ray_nor_what_runs_it(values, tmp_path: Path) -> None:
    kept = OURS | {"docker.service", "containerd.service", "dbus.service"}
    others = {"ssh.service", "walinuxagent.service", "my-sunspot-like.service"}
    assert restarted(render(values), tmp_path, kept | others) == others


def test_a_boot_does_not_wait_for_needrestart(boot: Boot) -> None:
    machine = boot(node_values.T4_WORKER)
    machine.stub("apt-get", f'echo "${{NEEDRESTART_SUSPEND-}}" >>{sandbox.NOTES}/suspended')
    machine.stub("modprobe", "exit 1")
    plug_in(machine)
    hide_docker(machine)
    machine.script("docker.sh")
    machine.overrides.clear()
    machine.script("driver-nvidia.sh")
    asked = machine.text(f"{sandbox.NOTES}/suspended").splitlines()
    assert len(asked) == len([call for call in machine.calls if call.startswith("apt-get")])
    assert len(asked) > 3
    assert set(asked) == {"1"}
