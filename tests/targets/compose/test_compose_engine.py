"""How `docker` is called, followed and ended; it is a script of a line or two here."""

import contextlib
import json

import psutil
import pytest
from waiting import wait_for

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.compose import engine as engines
from sunspot.targets.compose.engine import Engine
from sunspot.targets.protocol import silent

HERE = Engine("unix:///run/docker.sock")


def compose(folder, progress=silent, **options):
    HERE.compose("sunspot-x", "up", folder=folder, progress=progress, **options)


def sleeping(tools, tmp_path):
    """A `docker` that goes on, and the file with its process."""
    file = tmp_path / "pid"
    tools.add("docker", f"echo $$ > {file}; echo begun; exec /bin/sleep 1000")
    return file


def assert_ended(file):
    pid = int(file.read_text())
    wait_for("its end", lambda: not psutil.pid_exists(pid))


def test_what_compose_prints_is_progress(tools, tmp_path):
    tools.add("docker", "echo ' Container  x-head-1   Started '; echo; echo done >&2")
    said = []
    compose(tmp_path, said.append)
    assert said == ["Container x-head-1 Started", "done"]
    assert list(tmp_path.glob("running.json")) == []


def test_the_end_of_what_it_printed_is_the_error(tools, tmp_path):
    tools.add("docker", "for n in 1 2 3 4 5; do echo line $n; done; exit 1")
    with pytest.raises(SunspotError, match=r"`docker compose up` failed: line 3; line 4; line 5$"):
        compose(tmp_path)


def test_it_gets_its_file_its_project_and_its_secrets(tools, tmp_path, monkeypatch):
    monkeypatch.setenv("COMPOSE_PROFILES", "more")
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    names = "$COMPOSE_PROFILES,$DOCKER_CONTEXT,$DOCKER_HOST,$SUNSPOT_RAY_TOKEN"
    tools.add("docker", f'echo "$@"; echo "{names}"')
    said = []
    compose(tmp_path, said.append, secrets={"SUNSPOT_RAY_TOKEN": "t"})
    assert f"--project-name sunspot-x --file {tmp_path}/compose.yaml up" in said[0]
    assert said[1] == f",,{HERE.address},t"


def test_it_is_ended_after_its_time(tools, tmp_path):
    file = sleeping(tools, tmp_path)
    with pytest.raises(SunspotError, match=r"timed out.*more than 2 s.*begun"):
        compose(tmp_path, timeout_s=2)
    assert_ended(file)


def test_it_is_ended_with_its_caller(tools, tmp_path):
    file = sleeping(tools, tmp_path)

    def interrupt(_line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compose(tmp_path, interrupt)
    assert_ended(file)


def test_one_whose_command_was_killed_is_ended_by_the_next(tools, tmp_path):
    file, said = sleeping(tools, tmp_path), []

    def end_it(line):
        if line == "begun":
            assert json.loads((tmp_path / "running.json").read_text())["pid"]
            engines.end_recorded(tmp_path, said.append)

    with contextlib.suppress(SunspotError):  # its exit code goes to who waits first
        compose(tmp_path, end_it)
    assert_ended(file)
    assert str(int(file.read_text())) in said[0]


def test_the_engine_is_that_of_the_variable_or_of_the_context(tools, monkeypatch):
    tools.add("docker", "echo unix:///of/the/context.sock")
    assert Engine.current().address == "unix:///of/the/context.sock"
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@there")
    assert Engine.current().address == "ssh://me@there"


def test_a_context_that_does_not_exist_is_told(tools, monkeypatch):
    monkeypatch.setenv("DOCKER_CONTEXT", "typo")
    tools.add("docker", "echo 'context \"typo\": not found' >&2; exit 1")
    for asked in (Engine.current, Engine.current_or_here):
        with pytest.raises(UsageError, match=r"typo.*docker context ls"):
            asked()


def test_builds_see_the_hosts_images(monkeypatch):
    monkeypatch.setenv("BUILDX_BUILDER", "in-a-container")
    assert HERE.environment()["BUILDX_BUILDER"] == "default"


def test_by_ssh_few_connections_begin_at_once(monkeypatch):
    limit = "COMPOSE_PARALLEL_LIMIT"
    monkeypatch.delenv(limit, raising=False)
    assert limit not in HERE.environment()
    assert Engine("ssh://me@there").environment()[limit] == "2"
    monkeypatch.setenv(limit, "5")
    assert Engine("ssh://me@there").environment()[limit] == "5"


def test_an_engine_that_hangs_is_told(tools):
    tools.add("docker", "exec /bin/sleep 1000")
    with pytest.raises(SunspotError, match=r"within 0\.2 s"):
        HERE.read("version", timeout_s=0.2)


def test_ports_that_containers_have(tools):
    tools.add(
        "docker",
        "echo '127.0.0.1:8265->8265/tcp, 127.0.0.1:20001->10001/tcp, 80/tcp'\n"
        "echo '0.0.0.0:9000-9002->9000-9002/tcp, [::]:3000->3000/tcp'",
    )
    assert HERE.published_ports() == {8265, 20001, 9000, 9001, 9002, 3000}
