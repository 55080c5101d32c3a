"""The eviction watcher's unit, and what the machine does when the watcher asks for it."""

import re
import shlex
from collections.abc import Callable

import node_values
import pytest
import sandbox
from booted import DOCKER, INSTANCE, Boot, environment, ready

from cloud_init.render import FILES, UNITS
from sunspot.node.azure import eviction
from sunspot.node.azure.record import FOLDER
from sunspot.ray import ports

MARKS = "/run/sunspot/eviction"
SYSTEM = FILES / "etc/systemd/system"


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    return sandbox.read_unit((SYSTEM / name).read_text())


def container(machine: sandbox.Machine) -> tuple[list[str], list[str]]:
    """The flags of the last `docker run`, and what follows the image's name."""
    call = shlex.split(machine.calls[-1])
    assert call[:2] == ["docker", "run"]
    index = call.index("--entrypoint=python")
    return call[2:index], call[index + 2 :]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """Gives a command line to the watcher's own parser; fails where that refuses it."""

    def run(arguments: list[str]) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("RAY_CLOUD_INSTANCE_ID", INSTANCE)
            patch.setenv("RAY_ADDRESS", "10.20.0.4:6379")
            patch.setattr(eviction.Watcher, "run", lambda _: None)
            patch.setattr(eviction.Attendance, "run", lambda _: None)
            patch.setattr(eviction.metrics, "serve", lambda *_: None)
            assert eviction.main(arguments) == 0

    return run


def test_the_watcher_of_a_worker(boot: Boot, parse: Callable[[list[str]], None]) -> None:
    machine = ready(boot, node_values.CPU_WORKER)
    keep = f'case " $* " in *--entrypoint=python*) env >{sandbox.NOTES}/env ;; esac'
    machine.stub("docker", DOCKER + keep)
    ran = machine.start("sunspot-eviction.service")
    assert ran.returncode == 0, ran.stderr
    docker, python = container(machine)
    assert python[:2] == ["-m", "sunspot.node.azure.eviction"]
    assert "--role=worker" in python
    assert f"--marks={MARKS}" in python
    assert not [flag for flag in python if flag.startswith(("--metrics-port", "--record"))]
    parse(python[2:])
    assert {
        "--network=host",
        "--rm",
        "--cap-drop=ALL",
        "--volume=/run/sunspot/token:/run/sunspot/token:ro",
        f"--volume={MARKS}:{MARKS}",
    } <= set(docker)
    assert environment(machine, docker) == {
        "RAY_ADDRESS": "10.20.0.4:6379",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/run/sunspot/token",
        "RAY_CLOUD_INSTANCE_ID": INSTANCE,
        "RAY_NODE_TYPE_NAME": "cpu",
        "PYTHONPATH": f"{sandbox.LIBRARY}/python",
    }
    seen = machine.text(f"{sandbox.NOTES}/env")
    assert node_values.RAY_TOKEN not in seen + " ".join(docker + python)
    folder = machine.path(MARKS).stat()
    assert folder.st_mode & 0o777 == 0o700
    if sandbox.IMAGE_USER:
        assert folder.st_uid == sandbox.IMAGE_USER


def test_no_container_of_ours_has_dockers_socket_or_the_hosts_processes() -> None:
    texts = [script.read_text() for script in (FILES / "usr/local/lib/sunspot").glob("*.sh")]
    assert not [text for text in texts if re.search(r"docker\.sock|--pid|--privileged", text)]


def test_the_watcher_of_the_head_serves_the_counters(
    boot: Boot, parse: Callable[[list[str]], None]
) -> None:
    machine = ready(boot, node_values.HEAD)
    assert machine.start("sunspot-eviction.service").returncode == 0
    _, python = container(machine)
    assert "--role=head" in python
    assert f"--metrics-port={ports.get('eviction-metrics').number}" in python
    # It is stopped by Ray's unit, whose stop takes its time.
    margin = float(next(f for f in python if f.startswith("--margin=")).split("=")[1])
    stop = unit("sunspot-ray.service")["Service"]["ExecStop"][0]
    assert margin > float(re.findall(r"-t (\d+)", stop)[0])
    parse(python[2:])


def test_the_head_records_who_comes_and_goes_on_its_state_disk(boot: Boot) -> None:
    machine = ready(boot, node_values.HEAD)
    assert machine.start("sunspot-eviction.service").returncode == 0
    docker, python = container(machine)
    assert f"--record={FOLDER}" in python
    assert f"--volume={FOLDER}:{FOLDER}" in docker
    folder = machine.path(FOLDER).stat()
    assert folder.st_mode & 0o777 == 0o700
    assert "sunspot-state.service" in unit("sunspot-eviction.service")["Unit"]["After"]


def test_without_the_state_disk_nothing_is_recorded(boot: Boot) -> None:
    machine = ready(boot, node_values.HEAD)
    machine.stub("mountpoint", "exit 1")
    assert machine.start("sunspot-eviction.service").returncode == 0
    docker, python = container(machine)
    assert not [flag for flag in docker + python if "/record" in flag]
    assert not machine.path(FOLDER).exists()


def test_it_waits_for_the_token(boot: Boot) -> None:
    machine = ready(boot, node_values.CPU_WORKER)
    machine.path("/run/sunspot/token").unlink()
    machine.forget_calls()
    assert machine.start("sunspot-eviction.service").returncode != 0
    assert not [call for call in machine.calls if "--entrypoint=python" in call]
    assert unit("sunspot-eviction.service")["Service"]["Restart"] == ["always"]


def leave(boot: Boot, *marks: str, systemctl: str = "") -> sandbox.Machine:
    machine = boot(node_values.HEAD)
    machine.stub("systemctl", systemctl)
    machine.path(MARKS).mkdir(parents=True)
    for mark in marks:
        machine.path(f"{MARKS}/{mark}").touch()
    ran = machine.start("sunspot-leave.service")
    assert (ran.returncode != 0) == bool(systemctl)
    return machine


def left(machine: sandbox.Machine) -> set[str]:
    return {path.name for path in machine.path(MARKS).iterdir()}


def test_ray_is_stopped_before_the_watcher_hears_that_it_is(boot: Boot) -> None:
    machine = leave(boot, "leaving", "stop")
    assert machine.calls == ["systemctl stop sunspot-ray.service"]
    assert left(machine) == {"leaving", "stopped"}


def test_a_stop_that_failed_is_not_told_as_done(boot: Boot) -> None:
    assert left(leave(boot, "leaving", "stop", systemctl="exit 1")) == {"leaving", "stop"}


@pytest.mark.parametrize("marks", [("return",), ("leaving", "stopped", "return")])
def test_ray_starts_again_after_an_event_that_passed(boot: Boot, marks: tuple[str, ...]) -> None:
    machine = leave(boot, *marks)
    assert machine.calls == ["systemctl restart --no-block sunspot-ray.service"]
    assert left(machine) == set()


def test_the_path_unit_looks_for_what_the_script_takes_away() -> None:
    paths = unit("sunspot-leave.path")["Path"]["PathExists"]
    assert paths == [f"{MARKS}/stop", f"{MARKS}/return"]  # else systemd would start it for ever


def test_a_vm_that_is_about_to_go_does_not_join_again() -> None:
    # In /run: after a reboot nothing holds it back.
    condition = unit("sunspot-ray.service")["Unit"]["ConditionPathExists"]
    assert condition == [f"!{MARKS}/leaving"]


@pytest.mark.parametrize("name", ["sunspot-eviction.service", "sunspot-leave.path"])
def test_it_starts_with_ray_and_at_every_boot(name: str) -> None:
    assert name in UNITS
    wanted = unit(name)["Install"]["WantedBy"][0].split()
    assert set(wanted) == {"multi-user.target", "sunspot-ray.service"}


def test_the_stop_takes_no_longer_than_its_units_allow() -> None:
    stop = int(unit("sunspot-ray.service")["Service"]["TimeoutStopSec"][0])
    assert int(unit("sunspot-leave.service")["Service"]["TimeoutStartSec"][0]) > stop
