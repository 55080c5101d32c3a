"""The image, and what a stack on Azure needs of this machine."""

import os

import pytest
from azure_stacks import run, write
from doctor_runs import config, diagnosed, only_failure, write_tool

from sunspot.targets.azure.doctor import image, machine

# The image, and this machine


@pytest.mark.parametrize(
    ("reference", "level"),
    [
        ("rayproject/ray:2.60.0-py311", "ok"),
        ("rayproject/ray:2.60.0-py399", "failure"),
        ("private/ray:2.60.0-py311", "warning"),
    ],
)
def test_a_tag_that_does_not_exist_is_a_failure(subscription, project, reference, level):
    config(project, {"sunspot:image": {"reference": reference}})
    finding = diagnosed(1 if level == "failure" else 0)[f"image {reference}"]
    assert finding["level"] == level
    assert level != "failure" or "2.60.0-py399" in finding["detail"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ubuntu", (image.DOCKER_HUB, "library/ubuntu", "latest")),
        ("rayproject/ray:2.60.0", (image.DOCKER_HUB, "rayproject/ray", "2.60.0")),
        ("docker.io/prom/node@sha256:ab", (image.DOCKER_HUB, "prom/node", "sha256:ab")),
        ("my.azurecr.io/ray:1", ("my.azurecr.io", "ray", "1")),
        ("localhost:5000/a/b", ("localhost:5000", "a/b", "latest")),
    ],
)
def test_a_reference_is_read_as_docker_reads_it(text, parts):
    found = image.parse(text)
    assert (found.host, found.name, found.version) == parts


@pytest.mark.parametrize(
    ("ahead", "level"), [(0, "ok"), (100, "ok"), (-400, "warning"), (400, "warning")]
)
def test_a_clock_that_is_wrong_is_a_warning(subscription, ahead, level):
    subscription.clock_s -= ahead
    assert diagnosed()["clock"]["level"] == level


def test_no_way_out_is_a_failure_and_names_the_proxy(subscription, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    found = diagnosed(1)
    assert found["outbound ports"]["level"] == "failure"
    assert "HTTPS_PROXY" in found["outbound ports"]["remedy"]
    assert found["clock"]["detail"].startswith("not checked")


def test_a_missing_ssh_key_is_a_failure(subscription, project):
    write(project, "x", key="missing.pub")
    finding = only_failure("SSH key")
    assert "missing.pub" in finding["detail"]
    assert "ssh-keygen" in finding["remedy"]


def test_no_pulumi_is_a_warning(subscription, tools, monkeypatch, tmp_path):
    (tools / "pulumi").unlink()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    found = diagnosed()
    assert found["pulumi"]["level"] == "warning"
    assert "sunspot" not in found["pulumi"]["remedy"]  # it would create the cluster
    for name in ("pulumi login", "secrets"):
        assert found[name]["detail"].startswith("not checked")


def test_no_backend_is_a_failure(subscription, tools):
    said = "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
    write_tool(
        tools / "pulumi", f'[ "$1" = version ] && echo v3.999.0 || {{ echo "{said}" >&2; exit 1; }}'
    )
    assert only_failure("pulumi login")["remedy"] == "pulumi login --local"


def test_no_passphrase_is_a_failure(subscription, monkeypatch):
    monkeypatch.delenv(machine.PASSPHRASES[0])
    assert machine.PASSPHRASES[0] in only_failure("secrets")["remedy"]


def test_a_stack_that_is_wrong_is_exit_code_2(subscription, project):
    config(project, {"azure-native:location": "UK South"})
    result = run("doctor", "x")
    assert result.exit_code == 2
    assert "azure-native:location" in result.stderr
