"""What `sunspot doctor` warns of: what an engine is like."""

import pytest

from sunspot.targets.compose import engine_findings
from sunspot.targets.compose.engine import Engine


def warnings(docker, **info):
    """The warnings for an engine whose `docker info` has these values."""
    engine = docker()
    engine.state["info"] = info
    engine.save()
    found = list(engine_findings.check(Engine.current()))
    assert all(one.level == "warning" and one.remedy for one in found)
    return [one.detail for one in found]


def test_a_new_engine_as_docker_installs_it_has_none(docker):
    assert warnings(docker) == []
    assert warnings(docker, ServerVersion="dev", SecurityOptions=None) == []


def test_before_28_ports_on_the_loopback_address_can_be_reached(docker):
    (found,) = warnings(docker, ServerVersion="27.5.1")
    assert "27.5.1" in found
    assert "127.0.0.1" in found


def test_an_engine_that_is_too_old_for_newer_images_is_told(docker):
    assert len(warnings(docker, ServerVersion="20.10.24+dfsg1")) == 1
    assert any("seccomp" in one for one in warnings(docker, ServerVersion="20.10.9"))


def test_a_snap_is_told(docker):
    (found,) = warnings(docker, DockerRootDir="/var/snap/docker/common/var-lib-docker")
    assert "snap" in found


@pytest.mark.parametrize(
    ("option", "named"),
    [("rootless", "rootless"), ("selinux", "SELinux"), ("userns", "userns-remap")],
)
def test_what_keeps_containers_from_the_host_is_told(docker, option, named):
    (found,) = warnings(docker, SecurityOptions=["name=cgroupns", f"name={option}"])
    assert named in found


def test_an_engine_that_does_not_say_has_none(docker):
    docker().fail(info="Cannot connect to the Docker daemon")
    assert list(engine_findings.check(Engine.current())) == []
