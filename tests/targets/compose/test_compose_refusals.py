"""What is refused on one host before anything is made; the engine is a stand-in."""

import pytest
from compose_stacks import group, stack

from sunspot.errors import SunspotError, UsageError
from sunspot.node.free_ports import PortClaims, free_port
from sunspot.targets.compose.records import Records
from sunspot.targets.compose.target import ComposeTarget
from sunspot.targets.protocol import silent

PROJECT = "sunspot-course"
COURSE = stack(group(minimum=1, maximum=3))


@pytest.fixture
def up(target):
    target.up(COURSE, silent)
    return target


def services(docker):
    found = docker().state["container"].values()
    return {one["service"] for one in found if one["state"] == "running"}


@pytest.mark.parametrize(
    ("failing", "said", "named"),
    [
        ("version", "Cannot connect to the Docker daemon at unix:///x", "no Docker engine"),
        (
            "version",
            "permission denied while trying to connect to the Docker daemon socket",
            "usermod -aG docker",
        ),
        ("compose_version", "docker: 'compose' is not a docker command.", "Compose plugin"),
        ("compose_version", "unknown shorthand flag: 'p' in -p", "Compose plugin"),
    ],
)
def test_an_engine_that_cannot_be_used_is_told(target, docker, failing, said, named):
    docker().fail(**{failing: said})
    with pytest.raises(UsageError, match=named):
        target.up(COURSE, silent)
    assert target.names() == []
    assert not any("up" in call["arguments"] for call in docker().calls())


def test_without_docker_it_says_where_to_get_it(target, tools):
    (tools.folder / "docker").unlink()
    with pytest.raises(UsageError, match=r"docs\.docker\.com"):
        target.up(COURSE, silent)
    assert target.names() == []
    assert target.down("course", silent) is None


def test_an_old_plugin_is_told(target, tools):
    tools.add("docker", "case $1 in context) echo unix:///x;; *) echo 2.20.0;; esac")
    with pytest.raises(UsageError, match=r"2\.20\.0.*2\.23\.1"):
        target.check(COURSE)


def test_a_port_that_is_taken_is_told(target, docker):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port(set())))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=str(port)):
            target.up(COURSE, silent, dashboard_port=port)
    with PortClaims() as claims:
        claimed = free_port(set())
        assert claims.take(claimed)
        with pytest.raises(UsageError, match=f"{claimed} is taken by a cluster that is starting"):
            target.up(COURSE, silent, dashboard_port=claimed)
    assert docker().state["container"] == {}
    with pytest.raises(UsageError, match="--port"):
        target.up(COURSE, silent, port=6379)


@pytest.mark.parametrize(
    ("command", "said", "named"),
    [
        ("compose_up", "Bind for 127.0.0.1:8265 failed: port is already allocated", "port"),
        ("compose_pull", "write /var/lib/docker/tmp/x: no space left on device", "full"),
        ("compose_pull", "pull access denied for mine/ray, repository does not exist", "pulled"),
        ("compose_up", 'could not select device driver "nvidia"', "nvidia-ctk"),
        ("compose_up", "kex_exchange_identification: Connection closed", "MaxStartups"),
        ("compose_up", "bind source path does not exist: /srv/data", "sunspot:compose > data"),
    ],
)
def test_what_docker_fails_with_is_explained_and_taken_away(target, docker, command, said, named):
    docker().fail(**{command: said})
    with pytest.raises(SunspotError, match=named):
        target.up(COURSE, silent)
    assert target.names() == []


def test_gpus_on_a_host_without_and_too_many_are_refused(target, tools):
    with pytest.raises(UsageError, match="nvidia-smi"):
        target.up(stack(group(gpus=1)), silent)
    tools.add("nvidia-smi", "echo 0")
    with pytest.raises(UsageError, match="has 1"):
        target.up(stack(group(gpus=1, minimum=2)), silent)
    assert target.names() == []


def test_a_folder_that_the_host_lacks_is_refused(target, tmp_path):
    there, missing = str(tmp_path), str(tmp_path / "a b")
    with pytest.raises(UsageError, match=f"no folder {missing}:"):
        target.up(stack(group(), data={there: "/mnt/a", missing: "/mnt/b"}), silent)
    assert target.names() == []


def test_an_engine_that_no_tunnel_reaches_is_refused(target, docker, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2376")
    with pytest.raises(UsageError, match=r"tcp://10\.0\.0\.1:2376"):
        target.up(COURSE, silent)
    assert docker().calls() == []


@pytest.mark.parametrize("owner", ["somebody-else", ""])
def test_a_volume_of_another_cluster_is_not_used(target, docker, owner):
    docker().add("volume", f"{PROJECT}_s3", PROJECT if owner else "", owner)
    with pytest.raises(UsageError, match=f"{PROJECT}_s3 belong"):
        target.up(COURSE, silent)
    assert target.names() == []
    assert f"{PROJECT}_s3" in docker().state["volume"]
    assert target.down("course", silent, delete_storage=True) is None


def test_a_cluster_of_another_state_directory_is_left_alone(up, docker, tmp_path):
    other = ComposeTarget(Records(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="another state directory"):
        other.up(COURSE, silent)
    assert other.down("course", silent) is None
    assert "head" in services(docker)
