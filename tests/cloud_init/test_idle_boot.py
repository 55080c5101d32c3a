"""The unit that looks after a cluster which nothing uses, on the head."""

import shlex

import node_values
import pytest
import sandbox
from booted import DOCKER, INSTANCE, Boot, environment, ready

from sunspot.node.azure import idle
from sunspot.ray import ports
from sunspot.targets.azure import head

SESSIONS = "/run/sunspot/sessions"
RECORD = "/var/lib/sunspot/state/record"


@pytest.fixture
def machine(boot: Boot) -> sandbox.Machine:
    """A head on which everything before Ray has run, and whose state disk is mounted."""
    made = ready(boot, node_values.HEAD)
    made.stub("docker", DOCKER + f'case " $* " in *azure.idle*) env >{sandbox.NOTES}/env ;; esac')
    made.stub("mountpoint")
    return made


def test_it_runs_from_the_image_of_ray(
    machine: sandbox.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = machine.start("sunspot-idle.service")
    assert ran.returncode == 0, ran.stderr
    call = shlex.split(machine.calls[-1])
    at = call.index("--entrypoint=python")
    docker, python = call[2:at], call[at + 2 :]
    assert {
        "--network=host",
        "--cap-drop=ALL",
        "--rm",
        "--volume=/run/sunspot/token:/run/sunspot/token:ro",
        f"--volume={RECORD}:{RECORD}",
        f"--volume={SESSIONS}:{SESSIONS}:ro",
    } <= set(docker)
    found = environment(machine, docker)
    assert found["RAY_CLOUD_INSTANCE_ID"] == INSTANCE
    assert found["RAY_AUTH_TOKEN_PATH"] == "/run/sunspot/token"
    assert node_values.RAY_TOKEN not in machine.text(f"{sandbox.NOTES}/env") + machine.calls[-1]
    assert python[:2] == ["-m", idle.__name__]
    assert f"--dashboard-port={ports.get('dashboard').number}" in python
    assert machine.path(RECORD).stat().st_mode & 0o777 == 0o700
    # What it is told, its own parser takes; and `sunspot keep-alive` names the same container.
    for name, value in found.items():
        assert value is not None, name
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(idle, "watch", lambda *_: None)
    monkeypatch.setattr(idle.HeadCluster, "wake", lambda _: None)
    assert idle.main(python[2:]) == 0
    assert f"--name={head.LOOKS_AFTER_IDLE[4]}" in docker


def test_it_does_not_begin_a_record_on_the_disk_of_the_system(machine: sandbox.Machine) -> None:
    machine.stub("mountpoint", "exit 1")
    assert machine.start("sunspot-idle.service").returncode != 0
    assert not [call for call in machine.calls if "azure.idle" in call]
