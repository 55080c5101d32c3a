"""What the commands do with containers, files and secrets; the engine is a stand-in."""

import json
import stat
from io import StringIO

import pytest
import yaml
from compose_stacks import COURSE, group, stack
from stand_in_docker import services

from sunspot.errors import HeadLostError, NotUpError, SunspotError, UsageError
from sunspot.targets.compose import secret_files
from sunspot.targets.protocol import silent
from sunspot.targets.scaling import Size
from sunspot.targets.tunnel import Tunnel

PROJECT = "sunspot-course"


def folder(target):
    return target.records.folder("course")


def test_up_starts_the_head_the_minimum_and_what_is_beside_them(up, docker):
    assert services(docker) == {"head", "workers-1", "s3", "metrics", "prometheus", "grafana"}
    handle = up.handle("course")
    assert handle.job_address.startswith("http://127.0.0.1:")
    assert handle.driver_address.startswith("ray://127.0.0.1:")
    assert set(handle.monitoring) == {"Grafana", "Prometheus", "S3"}
    assert up.stack("course") == COURSE


@pytest.mark.parametrize("tag", ["mine/ray", "mine/ray:latest"])
def test_an_image_that_the_engine_has_is_not_asked_for_again(target, docker, tag):
    engine = docker()
    engine.state["images"] = [tag]
    engine.save()
    target.up(stack(group(), image=tag), silent)
    (pull,) = [call["arguments"] for call in docker().calls() if "pull" in call["arguments"]]
    assert {*pull} >= {"s3", "prometheus", "grafana"}
    assert not {*pull} & {"head", "workers-1", "metrics"}


def test_secrets_are_private_files_and_variables_of_compose_alone(up, docker):
    values = []
    for name in secret_files.VARIABLES:
        file = folder(up) / name
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        values.append(file.read_text())
    assert len(set(values)) == len(values)
    # Twice only: in the files, and in the environment of one process.
    seen = json.dumps(docker().calls()) + (folder(up) / "compose.yaml").read_text()
    assert not [value for value in values if value in seen]
    (started,) = [call for call in docker().calls() if "up" in call["arguments"]]
    assert set(secret_files.VARIABLES.values()) <= set(started["variables"])


def test_jupyters_link_ends_with_its_token(target):
    target.up(stack(group(), images={"jupyter": "mine:1"}), silent)
    token = (folder(target) / secret_files.JUPYTER_TOKEN).read_text()
    assert target.handle("course").monitoring["Jupyter"].endswith(f"/lab?token={token}")


def test_a_second_up_leaves_the_cluster_as_it_is(up, docker):
    before = docker().state
    assert up.up(COURSE, silent).was_up
    assert docker().state == before
    assert len([call for call in docker().calls() if "up" in call["arguments"]]) == 1


def test_a_second_up_starts_what_has_ended(up, docker):
    engine = docker()
    engine.state["container"][f"{PROJECT}-workers-1-1"]["state"] = "exited"
    engine.save()
    assert up.up(COURSE, silent).was_up
    assert "workers-1" in services(docker)


SLOW = "RuntimeError: The current node timed out during startup. This could happen because"


def test_a_node_that_ray_gave_up_on_is_started_once_more(target, docker):
    engine = docker()
    engine.state["ends"] = {"workers-1": SLOW}
    engine.save()
    steps = []
    target.up(COURSE, steps.append)
    assert {"head", "workers-1"} <= services(docker)
    assert "Ray gave up starting workers-1, as on a busy host: once more" in steps
    assert len([call for call in docker().calls() if "up" in call["arguments"]]) == 2


def test_a_node_that_ends_for_another_reason_is_told_with_its_log(target, docker):
    engine = docker()
    engine.state["ends"] = {"workers-1": "ValueError: no such flag"}
    engine.save()
    with pytest.raises(SunspotError) as error:
        target.up(COURSE, silent)
    assert "container sunspot-course-workers-1-1 exited (1)" in str(error.value)
    assert "The end of the log of workers-1:\nValueError: no such flag" in str(error.value)
    assert len([call for call in docker().calls() if "up" in call["arguments"]]) == 1


def test_a_second_up_starts_all_nodes_anew_if_the_head_has_ended(up, docker):
    engine = docker()
    engine.state["container"][f"{PROJECT}-head-1"]["state"] = "exited"
    engine.save()
    assert up.up(COURSE, silent).was_up
    assert {"head", "workers-1"} <= services(docker)
    (removed,) = [call["arguments"] for call in docker().calls() if "rm" in call["arguments"]]
    assert removed[-2:] == ["head", "workers-1"]


def test_an_edited_file_is_kept_and_used_and_said(up, docker, tmp_path):
    file = folder(up) / "compose.yaml"
    edited = file.read_text().replace("retention.size=4GB", "retention.size=1GB")
    file.write_text(edited)
    again = up.up(COURSE, silent)
    assert again.was_up
    (said,) = again.notes
    assert "edited by hand" in said
    assert str(file) in said
    assert file.read_text() == edited
    removal = up.down("course", silent)
    (kept,) = [line for line in removal.kept if "edited" in line]
    assert (tmp_path / "state" / "compose" / "course.edited.yaml").read_text() == edited
    assert "course.edited.yaml" in kept
    assert up.names() == []


def test_down_keeps_the_volumes_with_results(up, docker):
    removal = up.down("course", silent)
    removal.check("course")
    assert docker().state["container"] == docker().state["network"] == {}
    left = {f"{PROJECT}_{name}" for name in ("s3", "prometheus")}
    assert docker().state["volume"].keys() == left
    assert any("--volumes" in line and f"{PROJECT}_s3" in line for line in removal.kept)
    assert not folder(up).exists()
    assert up.down("course", silent) is None


@pytest.mark.parametrize("at_once", [True, False])
def test_down_with_volumes_leaves_nothing(up, docker, at_once):
    if not at_once:
        up.down("course", silent)
    removal = up.down("course", silent, delete_storage=True)
    assert removal.kept == []
    assert docker().state == {"container": {}, "volume": {}, "network": {}, "images": []}


def test_volumes_that_were_kept_are_used_again(up, docker):
    up.down("course", silent)
    up.up(COURSE, silent)
    assert f"{PROJECT}_s3" in docker().state["volume"]


def test_nodes_are_those_that_are_wanted(up, docker):
    found = [(node.name, node.group, node.market, node.state) for node in up.nodes("course")]
    assert found == [("head", "head", "on-demand", "up"), ("workers-1", "workers", "spot", "up")]
    assert [node.memory_gb for node in up.nodes("course")] == [8, 16]


def test_what_the_plan_has_decided_is_shown_with_the_head(up):
    head, *workers = up.nodes("course")
    assert any("no autoscaler" in note for note in head.notes)
    assert not any(worker.notes for worker in workers)
    file = folder(up) / "compose.yaml"
    file.write_text(file.read_text() + "\n# mine\n")
    assert any("edited by hand" in note for note in up.nodes("course")[0].notes)


def test_a_worker_that_ended_is_lost_and_shows_its_log(up, docker):
    engine = docker()
    engine.state["container"][f"{PROJECT}-workers-1-1"]["state"] = "exited"
    engine.save()
    lost = up.nodes("course")[-1]
    assert (lost.name, lost.state) == ("workers-1", "lost")
    assert "Ray runtime started" in lost.log


def test_a_head_that_ended_is_told(up, docker):
    engine = docker()
    engine.state["container"][f"{PROJECT}-head-1"]["state"] = "exited"
    engine.save()
    with pytest.raises(HeadLostError, match=r"sunspot up course --target compose"):
        up.handle("course")
    assert [node.state for node in up.nodes("course")] == ["starting", "lost"]


def test_the_log_of_a_node_and_of_a_service(up):
    for name in ("head", "grafana"):
        out = StringIO()
        assert up.node_log("course", name, out, silent) == 0
        assert "Ray runtime started" in out.getvalue()
    with pytest.raises(UsageError, match="moon"):
        up.node_log("course", "moon", StringIO(), silent)


def test_an_up_that_fails_takes_away_what_it_made(target, docker):
    docker().fail(compose_up="Error: dependency failed to start: container head is unhealthy")
    with pytest.raises(SunspotError, match="unhealthy"):
        target.up(COURSE, silent)
    assert target.names() == []
    assert docker().state["container"] == {}
    assert any("down" in call["arguments"] for call in docker().calls())


def test_an_up_that_was_killed_is_begun_anew(target, docker):
    target.up(COURSE, silent)
    target.records.change("course", ready=False)
    with pytest.raises(SunspotError, match="still starting"):
        target.handle("course")
    token = (folder(target) / secret_files.RAY_TOKEN).read_text()
    assert not target.up(COURSE, silent).was_up
    assert (folder(target) / secret_files.RAY_TOKEN).read_text() != token


OTHERS = {"project": PROJECT, "owner": "somebody", "service": "head", "state": "running"}


def test_an_up_that_was_killed_leaves_what_somebody_else_has_started_since(target, docker):
    target.up(COURSE, silent)
    target.records.change("course", ready=False)
    engine = docker()
    engine.state |= {"container": {"theirs": OTHERS}, "volume": {}, "network": {}}
    engine.save()
    for _ in range(2):
        with pytest.raises(UsageError, match="another user"):
            target.up(COURSE, silent)
    removal = target.down("course", silent)
    assert removal is not None
    assert removal.left == []
    assert docker().state["container"] == {"theirs": OTHERS}
    assert target.names() == []


def test_somebody_else_may_start_one_of_that_name_while_images_come(target, docker, monkeypatch):
    def theirs(*_, **__):
        docker().add("container", "theirs", **OTHERS)

    monkeypatch.setattr("sunspot.targets.compose.starting.fetch_images", theirs)
    with pytest.raises(UsageError, match="another user"):
        target.up(COURSE, silent)
    assert docker().state["container"] == {"theirs": OTHERS}
    assert target.names() == []


def ups(docker):
    """Whether each `docker compose up` leaves what runs as it is."""
    calls = [call["arguments"] for call in docker().calls()]
    return ["--no-recreate" in one for one in calls if "up" in one]


def test_no_command_makes_a_running_head_anew(up, docker):
    up.scale("course", {"workers": Size(minimum=2)}, silent)
    engine = docker()
    engine.state["container"][f"{PROJECT}-workers-1-1"]["state"] = "exited"
    engine.save()
    up.up(COURSE, silent)
    assert ups(docker) == [True, True, True]
    file = folder(up) / "compose.yaml"
    file.write_text(file.read_text() + "# mine\n")
    up.up(COURSE, silent)
    assert ups(docker)[3:] == [False]


def test_each_edited_file_is_kept(target, docker):
    for text in ("# first\n", "# second\n"):
        target.up(COURSE, silent)
        file = folder(target) / "compose.yaml"
        file.write_text(file.read_text() + text)
        target.down("course", silent)
    kept = sorted(target.records.root.glob("course.edited*.yaml"))
    assert [one.read_text().splitlines()[-1] for one in kept] == ["# second", "# first"]


def test_an_interrupt_as_the_file_is_written_is_not_an_edit(target, docker, monkeypatch):
    def interrupted(path, text):
        path.write_text(text)
        raise KeyboardInterrupt

    monkeypatch.setattr("sunspot.targets.compose.records.write_private", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target.up(COURSE, silent)
    assert not [*target.records.root.glob("course*")]


def test_down_of_a_broken_record_finds_the_containers_all_the_same(up, docker):
    (folder(up) / "cluster.json").write_text("{")
    with pytest.raises(SunspotError, match="the records of 'course' are broken") as caught:
        up.handle("course")
    assert "sunspot up course --target compose" in str(caught.value)
    up.down("course", silent).check("course")
    assert docker().state["container"] == {}


def test_without_a_cluster_there_is_nothing(target):
    assert target.down("course", silent) is None
    assert not target.discover("course")
    with pytest.raises(NotUpError):
        target.handle("course")


def test_a_host_elsewhere_is_reached_through_a_tunnel(target, docker, tools, monkeypatch):
    asked = {}

    def opened(_tunnel, ssh, port, *, preferred=None, also=()):
        asked.update(ssh=ssh.command, port=port, also=list(also))
        return 21000

    monkeypatch.setenv("DOCKER_HOST", "ssh://me@gpu-host")
    monkeypatch.setattr(Tunnel, "open", opened)
    monkeypatch.setattr(Tunnel, "also", lambda _: {port: port + 1 for port in asked["also"]})
    target.up(COURSE, silent)
    monkeypatch.delenv("DOCKER_HOST")
    handle, ports = target.handle("course"), target.records.known("course").ports
    assert asked["ssh"] == ("ssh", "me@gpu-host")
    assert asked["port"] == ports["dashboard"]
    assert handle.job_address == "http://127.0.0.1:21000"
    assert handle.monitoring["Grafana"] == f"http://127.0.0.1:{ports['grafana'] + 1}"
    # The record knows where it is.
    assert target.records.known("course").engine == "ssh://me@gpu-host"


def test_a_tunnel_that_ends_at_once_is_told(target, docker, tools, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@gpu-host")
    monkeypatch.setattr(Tunnel, "open", lambda *_, **__: 21000)
    with pytest.raises(SunspotError, match="has ended just now: try again"):
        target.up(COURSE, silent)


def test_ports_that_a_host_elsewhere_uses_are_left_to_it(target, docker, tools, monkeypatch):
    line = "   0: 0100007F:2049 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0"
    tools.add("ssh", f"""case "$*" in */proc/net/tcp*) echo '{line}';; *) exit 1;; esac""")
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@gpu-host")
    with pytest.raises(UsageError, match="port 8265 is taken"):
        target.up(COURSE, silent, dashboard_port=0x2049)
    assert target.names() == []


def test_a_secret_that_is_gone_is_named(up):
    (folder(up) / secret_files.JUPYTER_TOKEN).unlink()
    with pytest.raises(SunspotError, match=secret_files.JUPYTER_TOKEN):
        up.handle("course")


def test_what_the_plan_has_decided_is_told_once(target):
    assert any("no autoscaler" in note for note in target.up(COURSE, silent).notes)
    assert target.up(COURSE, silent).notes == ()


def test_two_clusters_have_different_ports(up):
    up.up(stack(group(), name="other"), silent)
    one, other = (set(up.records.known(name).ports.values()) for name in ("course", "other"))
    assert not one & other


def test_the_manifest_is_what_up_would_write(target, docker, monkeypatch):
    # Whatever other programs of this machine have, or other tests claim.
    monkeypatch.setattr("sunspot.node.free_ports.PortClaims.take", lambda _self, _port: True)
    printed = yaml.safe_load(target.manifest(COURSE))
    target.up(COURSE, silent)
    written = yaml.safe_load((folder(target) / "compose.yaml").read_text())
    assert printed == written
    # Its own ports, although they are taken now.
    monkeypatch.setattr("sunspot.node.free_ports.PortClaims.take", lambda _self, _port: False)
    assert yaml.safe_load(target.manifest(COURSE)) == written


def test_the_manifest_needs_no_docker(target, tools):
    (tools.folder / "docker").unlink()
    small = stack(group(cpu=1, memory_gb=2), head={"cpu": 1, "memory_gb": 2})
    assert "name: sunspot-course" in target.manifest(small)


def test_preconditions_are_findings(target, docker, tools):
    found = target.preconditions(COURSE, silent)
    assert {one.level for one in found} <= {"ok", "warning"}
    wanting = target.preconditions(stack(group(gpus=1)), silent)
    assert {one.check for one in wanting if one.level == "failure"} == {"GPUs", "nodes"}
    tools.add("nvidia-smi", "echo 0")
    with_gpu = {one.check: one for one in target.preconditions(stack(group(gpus=1)), silent)}
    assert with_gpu["GPUs"].level == "ok"
    assert with_gpu["container toolkit"].level == "warning"
    tools.add("nvidia-ctk", "")
    with_toolkit = target.preconditions(stack(group(gpus=1)), silent)
    assert "container toolkit" not in {one.check for one in with_toolkit}
    (tools.folder / "docker").unlink()
    (only,) = target.preconditions(COURSE, silent)
    assert (only.check, only.level) == ("docker", "failure")
