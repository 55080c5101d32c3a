"""What only the head boots: the disk of its state, Prometheus and Grafana."""

import json
import re
from configparser import ConfigParser
from dataclasses import replace

import node_values
import pytest
import sandbox
import yaml
from booted import DOCKER, Boot, ready

from cloud_init.render import HEAD_UNITS, STATE_LUN, units
from sunspot import monitoring
from sunspot.ray import ports

STATE = "/var/lib/sunspot/state"
MONITORING = monitoring.FOLDER
GRAFANA_FILES = MONITORING / "grafana"

DISK_NAMES = [
    f"/dev/disk/azure/scsi1/lun{STATE_LUN}",
    f"/dev/disk/azure/data/by-lun/{STATE_LUN}",
]


@pytest.fixture
def head(boot: Boot) -> sandbox.Machine:
    machine = boot(node_values.HEAD)
    machine.stub("docker")
    machine.stub("mount")
    machine.stub("mountpoint", "exit 1")
    machine.stub("mkfs.ext4")
    machine.stub("sleep")
    return machine


def attach(machine: sandbox.Machine, name: str, found: int) -> None:
    """Puts a disk there about which blkid ends with `found`: 0 a file system, 2 nothing."""
    path = machine.path(name)
    path.parent.mkdir(parents=True)
    path.touch()
    machine.stub("blkid", f"exit {found}")


def test_only_a_head_has_these_units() -> None:
    assert set(HEAD_UNITS) <= set(units(node_values.HEAD))
    assert not set(HEAD_UNITS) & set(units(node_values.CPU_WORKER))


@pytest.mark.parametrize("name", DISK_NAMES)
def test_a_new_disk_is_formatted_and_mounted(head: sandbox.Machine, name: str) -> None:
    attach(head, name, found=2)
    assert head.start("sunspot-state.service").returncode == 0
    assert head.calls[-2:] == [
        f"mkfs.ext4 -q -L sunspot-state {name}",
        f"mount --options nodev\\,nosuid\\,noexec {name} {STATE}",
    ]


def test_a_disk_with_a_file_system_is_mounted_as_it_is(head: sandbox.Machine) -> None:
    attach(head, DISK_NAMES[0], found=0)
    assert head.start("sunspot-state.service").returncode == 0
    assert not any(call.startswith("mkfs") for call in head.calls)
    assert head.calls[-1].startswith("mount ")


def test_a_disk_that_cannot_be_judged_is_left_alone(head: sandbox.Machine) -> None:
    attach(head, DISK_NAMES[0], found=8)  # blkid: several file systems are possible
    assert head.start("sunspot-state.service").returncode == 8
    assert not any(call.startswith(("mkfs", "mount ")) for call in head.calls)


def test_a_disk_that_never_comes_is_named(head: sandbox.Machine) -> None:
    ended = head.start("sunspot-state.service")
    assert ended.returncode == 1
    assert f"no data disk at LUN {STATE_LUN}" in ended.stderr


def left_by(machine: sandbox.Machine, version: str | None) -> None:
    """Attaches a disk with the state of a head with this Ray; None: of an older Sunspot."""
    attach(machine, DISK_NAMES[0], found=0)
    gcs = machine.path(f"{STATE}/gcs")
    gcs.mkdir(parents=True)
    (gcs / "CURRENT").write_text("MANIFEST-000004\n")
    if version is not None:
        machine.path(f"{STATE}/ray-version").write_text(f"{version}\n")


def test_a_head_with_the_same_ray_goes_on_with_the_state_before_it(
    head: sandbox.Machine,
) -> None:
    left_by(head, "2.60.0")
    assert head.start("sunspot-state.service").returncode == 0
    assert head.text(f"{STATE}/gcs/CURRENT") == "MANIFEST-000004\n"
    names = {one.name for one in head.path(STATE).iterdir()}
    assert names == {"gcs", "ray-version"}


@pytest.mark.parametrize("before", ["2.59.0", None])
def test_a_head_with_another_ray_begins_anew_and_keeps_the_old_state(
    head: sandbox.Machine, before: str | None
) -> None:
    left_by(head, before)
    ended = head.start("sunspot-state.service")
    assert ended.returncode == 0
    assert not head.path(f"{STATE}/gcs").exists()
    (aside,) = head.path(STATE).glob(f"gcs-of-ray-{before or 'unknown'}-*")
    assert (aside / "CURRENT").read_text() == "MANIFEST-000004\n"
    assert f"{STATE}/{aside.name}" in ended.stderr
    assert "Ray 2.60.0: a new cluster begins" in " ".join(ended.stderr.split())
    assert head.text(f"{STATE}/ray-version") == "2.60.0\n"
    # The next start of this head goes on with what it has itself.
    head.path(f"{STATE}/gcs").mkdir()
    assert head.start("sunspot-state.service").returncode == 0
    assert head.path(f"{STATE}/gcs").exists()


def test_a_mounted_disk_stays(head: sandbox.Machine) -> None:
    head.stub("mountpoint")
    assert head.start("sunspot-state.service").returncode == 0
    assert not any(call.startswith(("mkfs", "mount ")) for call in head.calls)


@pytest.mark.parametrize("unit", ["sunspot-ray.service", "sunspot-prometheus.service"])
def test_nothing_is_written_where_the_disk_is_not_mounted(boot: Boot, unit: str) -> None:
    machine = ready(boot, node_values.HEAD)
    machine.stub("mountpoint", "exit 1")
    assert machine.start("sunspot-state.service").returncode == 1, "there is no disk"
    machine.forget_calls()
    ended = machine.start(unit)
    assert ended.returncode == 1
    assert STATE in ended.stderr
    assert not [call for call in machine.calls if call.startswith("docker run")]
    assert list(machine.path(STATE).iterdir()) == []
    # It starts by itself once the disk is there: systemd restarts it, and the unit of the disk.
    machine.stub("mountpoint")
    assert machine.start(unit).returncode == 0
    assert [call for call in machine.calls if call.startswith("docker run")]


def started(machine: sandbox.Machine, unit: str) -> str:
    machine.path("/run/sunspot").mkdir(parents=True, exist_ok=True)
    machine.path("/run/sunspot/disk.env").write_text("SUNSPOT_SCRATCH=/mnt/sunspot\n")
    machine.path("/run/sunspot/image.env").write_text(f"SUNSPOT_IMAGE_USER={sandbox.IMAGE_USER}\n")
    machine.path(STATE).mkdir(parents=True)
    machine.stub("mountpoint")
    assert machine.start(unit).returncode == 0
    return next(call for call in machine.calls if "--name=" in call)


def test_prometheus_listens_only_on_the_loopback_address(head: sandbox.Machine) -> None:
    call = started(head, "sunspot-prometheus.service")
    port = ports.get("prometheus").number
    assert f"--web.listen-address=127.0.0.1:{port}" in call
    assert f"--user={sandbox.IMAGE_USER}" in call
    assert monitoring.PROMETHEUS in call
    assert head.path(f"{STATE}/prometheus").stat().st_mode & 0o777 == 0o700


def test_grafana_listens_only_on_the_loopback_address(head: sandbox.Machine) -> None:
    call = started(head, "sunspot-grafana.service")
    assert f"GF_SERVER_HTTP_PORT={ports.get('grafana').number}" in call
    assert monitoring.GRAFANA in call
    settings = ConfigParser(interpolation=None)
    settings.read(GRAFANA_FILES / "grafana.ini")
    assert settings["server"]["http_addr"] == "127.0.0.1"


REGISTRY = "sunspothybrid.azurecr.io"


@pytest.mark.parametrize("unit", ["prometheus", "grafana"])
def test_a_copy_in_the_registry_is_pulled_after_a_login_by_identity(boot: Boot, unit: str) -> None:
    copied = {f"{unit}_image": f"{REGISTRY}/{unit}:1"}
    machine = boot(replace(node_values.HEAD, facts=node_values.FACTS, **copied))
    machine.stub("docker", DOCKER + '[ "$1" != image ]')
    started(machine, f"sunspot-{unit}.service")
    calls = [" ".join(call.split()[:2]) for call in machine.calls if call.startswith("docker")]
    assert calls == ["docker login", "docker pull", "docker run"]
    assert f"docker pull --quiet {REGISTRY}/{unit}:1" in machine.calls


@pytest.mark.parametrize("unit", ["prometheus", "grafana"])
def test_an_image_of_elsewhere_needs_no_login_to_the_registry(boot: Boot, unit: str) -> None:
    machine = boot(replace(node_values.HEAD, facts=node_values.FACTS))
    machine.stub("docker", DOCKER + '[ "$1" != image ]')
    started(machine, f"sunspot-{unit}.service")
    assert not any(call.startswith("docker login") for call in machine.calls)


@pytest.mark.parametrize("unit", ["prometheus", "grafana"])
def test_a_head_runs_what_it_has_while_the_registry_is_away(boot: Boot, unit: str) -> None:
    copied = {f"{unit}_image": f"{REGISTRY}/{unit}:1"}
    machine = boot(replace(node_values.HEAD, facts=node_values.FACTS, **copied))
    machine.stub("docker", '[ "$1" != login ] && [ "$1" != pull ]')
    assert f"{REGISTRY}/{unit}:1" in started(machine, f"sunspot-{unit}.service")


def test_grafana_has_no_login_and_is_read_only() -> None:
    settings = ConfigParser(interpolation=None)
    settings.read(GRAFANA_FILES / "grafana.ini")
    assert settings["auth.anonymous"]["org_role"] == "Viewer"
    assert settings.getboolean("auth", "disable_login_form")
    assert settings.getboolean("security", "disable_initial_admin_creation")
    assert not settings.getboolean("auth.basic", "enabled")


def test_prometheus_asks_ray_and_the_heads_own_endpoint() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    ours = jobs["sunspot"]["static_configs"][0]["targets"]
    assert ours == [f"127.0.0.1:{ports.get('eviction-metrics').number}"]
    [files] = jobs["ray"]["file_sd_configs"]
    # Ray's name for it (ray_constants.PROMETHEUS_SERVICE_DISCOVERY_FILE).
    assert files["files"] == ["/tmp/ray/prom_metrics_service_discovery.json"]  # noqa: S108


def test_grafana_asks_that_prometheus() -> None:
    sources = yaml.safe_load(
        (GRAFANA_FILES / "provisioning/datasources/prometheus.yml").read_text()
    )
    [source] = sources["datasources"]
    assert source["url"] == f"http://127.0.0.1:{ports.get('prometheus').number}"
    dashboard = json.loads((GRAFANA_FILES / "dashboards/sunspot.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert re.search(r"\b(ray|sunspot)_\w+", target["expr"])
