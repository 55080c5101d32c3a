"""The scripts before Ray, run for real in a machine made of folders, with stubs."""

import json
import stat
from dataclasses import replace
from itertools import pairwise

import node_values
import pytest
import sandbox
from azure_model import imds
from azure_model.access_tokens import MANAGEMENT, VAULT, access_token
from azure_model.container_registry import REFRESH_TOKEN
from azure_model.imds import FakeAzure
from booted import BOOT_REPORT, DOCKER, INSTANCE, Boot, hide_docker, report

from sunspot.node.azure import serial_log

# boot.json


def test_phases_are_timed_in_the_order_in_which_they_began(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    for name, command in (("b", "true"), ("a", "false"), ("c", "true")):
        ended = machine.run(f"{sandbox.LIBRARY}/phase.sh", name, command)
        assert ended.returncode == (command == "false")
    entries = json.loads(machine.text(BOOT_REPORT))
    assert [(entry["phase"], entry["ok"]) for entry in entries] == [
        ("b", True),
        ("a", False),
        ("c", True),
    ]
    assert all(set(entry) == {"start", "phase", "seconds", "ok"} for entry in entries)
    assert all(a["start"] <= b["start"] for a, b in pairwise(entries))


def test_a_phase_that_fails_is_on_the_console_with_what_it_said_last(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("journalctl", 'echo "manifest unknown ($*)"')
    ended = machine.run("env", "INVOCATION_ID=abc", f"{sandbox.LIBRARY}/phase.sh", "image", "false")
    assert ended.returncode == 1
    said = machine.text("/dev/console")
    assert said.startswith("sunspot: phase image failed: manifest unknown")
    assert "_SYSTEMD_INVOCATION_ID=abc" in said
    assert "phase image of its boot failed: manifest unknown" in serial_log.reason(said)
    machine.run(f"{sandbox.LIBRARY}/phase.sh", "token", "true")
    assert "token" not in machine.text("/dev/console")


def test_a_phase_that_runs_again_replaces_its_line(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.run(f"{sandbox.LIBRARY}/phase.sh", "token", "false")
    machine.run(f"{sandbox.LIBRARY}/phase.sh", "token", "true")
    assert [entry["ok"] for entry in json.loads(machine.text(BOOT_REPORT))] == [True]


def test_phases_at_the_same_time_are_all_in_the_report(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    many = f'for n in {{1..8}}; do {sandbox.LIBRARY}/phase.sh "p$n" sleep 0.1 & done; wait'
    machine.run("/usr/bin/bash", "-c", many)
    assert set(report(machine)) == {f"p{n}" for n in range(1, 9)}


def test_a_reboot_starts_the_report_anew(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.run(f"{sandbox.LIBRARY}/phase.sh", "driver", "false")
    machine.restart()
    machine.run(f"{sandbox.LIBRARY}/phase.sh", "token", "true")
    assert set(report(machine)) == {"token"}


# disk


@pytest.mark.parametrize("mounted", [True, False], ids=["temporary-disk", "no-temporary-disk"])
def test_large_files_go_to_the_temporary_disk_where_there_is_one(boot: Boot, mounted: bool) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("systemctl", "exit 3")  # Docker does not run yet
    if mounted:
        machine.path("/mnt/.mounted").touch()
    assert machine.start("sunspot-disk.service").returncode == 0
    scratch = "/mnt/sunspot" if mounted else "/var/lib/sunspot"
    assert machine.text("/run/sunspot/disk.env") == f"SUNSPOT_SCRATCH={scratch}\n"
    daemon = json.loads(machine.text("/etc/docker/daemon.json"))
    assert daemon["data-root"] == f"{scratch}/docker"
    assert daemon["features"]["cdi"] is True
    assert not [call for call in machine.calls if "restart" in call]


def test_a_docker_that_runs_already_is_restarted_once(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.start("sunspot-disk.service")
    assert "systemctl --no-block restart docker.service" in machine.calls
    machine.restart()
    machine.forget_calls()
    assert machine.start("sunspot-disk.service").returncode == 0
    assert machine.calls == []
    assert "SUNSPOT_SCRATCH" in machine.text("/run/sunspot/disk.env")


# docker


def test_docker_is_installed_from_ubuntu_where_there_is_none(boot: Boot) -> None:
    machine = boot(replace(node_values.HEAD, admin_user="someone"))
    hide_docker(machine)
    assert machine.start("sunspot-docker.service").returncode == 0
    assert machine.calls == [
        "apt-get update",
        "apt-get install --yes --no-install-recommends docker.io apparmor pigz",
        "usermod --append --groups docker someone",
    ]


def test_docker_of_the_image_is_kept(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker")
    assert machine.start("sunspot-docker.service").returncode == 0
    assert machine.calls == ["usermod --append --groups docker sunspot"]


# image


def test_a_private_image_is_pulled_after_a_login_by_identity(boot: Boot, azure: FakeAzure) -> None:
    machine = boot(replace(node_values.CPU_WORKER, image="sunspothybrid.azurecr.io/ray:1"))
    machine.stub("docker", DOCKER)
    ran = machine.start("sunspot-image.service")
    assert ran.returncode == 0, ran.stderr
    login, pull, _ = machine.calls
    assert login == (
        "docker login --username 00000000-0000-0000-0000-000000000000 --password-stdin "
        "sunspothybrid.azurecr.io"
    )
    assert pull == "docker pull --quiet sunspothybrid.azurecr.io/ray:1"
    assert machine.text(f"{sandbox.NOTES}/login") == REFRESH_TOKEN
    (exchange,) = [asked for asked in azure.requests if asked.path == "/oauth2/exchange"]
    assert exchange.fields["service"] == "sunspothybrid.azurecr.io"
    # The login was in memory, and is gone.
    config = machine.text(f"{sandbox.NOTES}/config").strip()
    assert config.startswith("/run/sunspot/")
    assert not machine.path(config).exists()
    assert REFRESH_TOKEN not in ran.stdout + ran.stderr


def test_a_public_image_needs_no_login(boot: Boot, azure: FakeAzure) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker", DOCKER)
    assert machine.start("sunspot-image.service").returncode == 0
    assert machine.calls[0] == "docker pull --quiet rayproject/ray:2.60.0"
    assert azure.requests == []


def test_the_image_tells_its_user(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker", DOCKER)
    assert machine.start("sunspot-image.service").returncode == 0
    asked = f"docker run --rm --network=none --entrypoint=id {node_values.HEAD.image} -u"
    assert machine.calls[-1] == asked
    assert machine.text("/run/sunspot/image.env") == f"SUNSPOT_IMAGE_USER={sandbox.IMAGE_USER}\n"


def test_an_image_that_does_not_tell_its_user_fails_the_phase(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker", '[ "$1" != run ]')
    assert machine.start("sunspot-image.service").returncode != 0
    assert report(machine)["image"]["ok"] is False
    assert not machine.path("/run/sunspot/image.env").exists()


def test_a_digest_that_is_here_is_not_pulled_again(boot: Boot) -> None:
    machine = boot(node_values.CPU_WORKER)
    machine.stub("docker", DOCKER)
    assert machine.start("sunspot-image.service").returncode == 0
    assert [call.split()[1] for call in machine.calls] == ["image", "run"]


@pytest.mark.parametrize("fails", [2, 99])
def test_a_pull_is_tried_again_but_not_for_ever(boot: Boot, fails: int) -> None:
    machine = boot(node_values.HEAD)
    pulled = f'grep --count "docker pull" {sandbox.NOTES}/calls'
    machine.stub("docker", f'[ "$1" != image ] && [ "$({pulled})" -gt {fails} ]')
    ended = machine.start("sunspot-image.service")
    pulls = [call for call in machine.calls if call.startswith("docker pull")]
    waits = [call for call in machine.calls if call.startswith("sleep")]
    assert (ended.returncode, len(pulls)) == ((0, 3) if fails == 2 else (1, 6))
    assert waits == [f"sleep {10 * n}" for n in range(1, len(waits) + 1)]
    assert report(machine)["image"]["ok"] is (fails == 2)


def test_a_registry_that_is_away_does_not_stop_a_machine_that_has_the_image(boot: Boot) -> None:
    machine = boot(node_values.HEAD)
    machine.stub("docker", '[ "$1" = image ] || [ "$1" = run ]')
    assert machine.start("sunspot-image.service").returncode == 0


# instance


@pytest.mark.parametrize("zone", ["2", ""])
def test_name_and_place_come_from_azure(boot: Boot, azure: FakeAzure, zone: str) -> None:
    azure.zone = zone
    machine = boot(node_values.CPU_WORKER)
    assert machine.start("sunspot-instance.service").returncode == 0
    expected = f"RAY_CLOUD_INSTANCE_ID={INSTANCE}\nRAY_NODE_REGION=uksouth\n"
    expected += "RAY_NODE_ZONE=2\n" if zone else ""
    assert machine.text("/run/sunspot/instance.env") == expected


# token


def test_the_token_comes_from_the_vault_into_memory(boot: Boot, azure: FakeAzure) -> None:
    machine = boot(node_values.HEAD)
    ran = machine.start("sunspot-token.service")
    assert ran.returncode == 0, ran.stderr
    token = machine.path("/run/sunspot/token")
    assert token.read_text() == node_values.RAY_TOKEN
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert [p.name for p in token.parent.iterdir() if p.name.startswith("token")] == ["token"]
    access, secret = azure.requests
    assert access.path == imds.TOKEN
    assert access.fields["client_id"] == node_values.FACTS.identity_client_id
    assert secret.path == "/secrets/ray-token"
    assert ran.stdout + ran.stderr == ""


def test_identity_and_role_may_come_late(boot: Boot, azure: FakeAzure) -> None:
    azure.answers[imds.TOKEN].append({"status": 400})
    azure.answers["/secrets/ray-token"].append({"status": 403})
    machine = boot(node_values.HEAD)
    ran = machine.start("sunspot-token.service")
    assert ran.returncode == 0, ran.stderr
    assert machine.text("/run/sunspot/token") == node_values.RAY_TOKEN
    assert len(azure.requests) == 4


def test_an_empty_token_is_refused(boot: Boot, azure: FakeAzure) -> None:
    azure.secrets["ray-token"] = ""
    machine = boot(node_values.HEAD)
    assert machine.start("sunspot-token.service").returncode != 0
    assert not machine.path("/run/sunspot/token").exists()
    assert report(machine)["token"]["ok"] is False


def test_no_token_is_ever_an_argument(boot: Boot) -> None:
    machine = boot(node_values.CPU_WORKER)
    machine.stub("docker", DOCKER + '[ "$1" != image ]')
    machine.stub("curl", 'exec /usr/bin/curl "$@"')
    machine.stub("python3", 'exec /usr/bin/python3 "$@"')
    assert machine.start("sunspot-token.service").returncode == 0
    assert machine.start("sunspot-image.service").returncode == 0
    arguments = "\n".join(machine.calls)
    assert arguments.count("curl") >= 4
    access = [access_token(resource) for resource in (MANAGEMENT, VAULT)]
    secrets = [node_values.RAY_TOKEN, REFRESH_TOKEN, *access]
    assert not [secret for secret in secrets if secret in arguments]
