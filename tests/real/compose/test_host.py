"""One whole host: its services, its dashboards' questions, its object store, and who reaches it."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import compose_site
import pytest
import yaml
from compose_engine import Behind
from compose_images import services
from machines.network import SUBNET, Network, network_of
from machines.processes import DEADLINE_S, environment
from sites import Site
from waiting import wait_for

from sunspot import monitoring
from sunspot.targets.compose import plan, secret_files

NAME = "host"
FOOD = "/mnt/Food-11"
PROJECT = plan.project(NAME)

# What a cluster without GPUs and evictions has nothing of.
EMPTY = {
    "GPU use",
    "GPU use by node",
    "Seconds to leave",
    "Nodes that left on a notice",
    "Notices by kind",
    # There is no record of nodes that come and go.
    "Cost so far by market",
    "Events by kind",
    "Groups that get no machines",
    "Workers and their limits",
}
# Of Ray's own dashboard, what every cluster has data for.
OF_RAY = {
    "Logical CPUs Usage",
    "Node CPU Usage %",
    "Node Memory Usage % (heap + object store)",
    "Object Store Memory Usage",
}
DASHBOARD = json.loads((monitoring.FOLDER / "grafana/dashboards/sunspot.json").read_text())
QUERIES = {
    panel["title"]: target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
}
# Where Grafana looks for Ray's own.
PROVIDERS = yaml.safe_load(
    (monitoring.FOLDER / "grafana/provisioning/dashboards/sunspot.yml").read_text()
)
[RAYS_DASHBOARDS] = [
    one["options"]["path"] for one in PROVIDERS["providers"] if one["name"] == "Ray"
]

# A bucket, written from one node and read from another, with what the nodes find in their places.
STORE = """
import os, ray, sys, urllib.request
ray.init(address="auto", log_to_driver=False)

@ray.remote(num_cpus=1)
def look():
    path = os.environ["AWS_SHARED_CREDENTIALS_FILE"]
    assert "aws_secret_access_key" in open(path).read()
    url = os.environ["AWS_ENDPOINT_URL"] + "/health"
    return os.environ["SUNSPOT_STORAGE"], urllib.request.urlopen(url, timeout=30).status

print("ANSWER", ray.get(look.remote()))
"""


@pytest.fixture(scope="module")
def food(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the host that the containers' user may read."""
    folder = tmp_path_factory.mktemp("food")
    folder.chmod(0o755)
    (folder / "class_00").write_text("bread")
    return folder


@pytest.fixture(scope="module")
def up(site: Site, images: dict[str, str], food: Path) -> Iterator[dict[str, Any]]:
    """What `sunspot status` tells of a cluster with two workers."""
    settings = compose_site.config(images["ray"], services(images), data={str(food): FOOD})
    shape = compose_site.cluster("workers", minimum=2, maximum=3)
    with compose_site.up(site, NAME, shape, settings) as made:
        yield made.status(NAME)


def inspect(behind: Behind) -> dict[str, dict[str, Any]]:
    """The containers of the project, by their services."""
    label = f"label=com.docker.compose.project={PROJECT}"
    ids = behind.docker("ps", "--all", "--quiet", "--filter", label).split()
    found = json.loads(behind.docker("inspect", *ids))
    return {one["Config"]["Labels"]["com.docker.compose.service"]: one for one in found}


def ask(behind: Behind, url: str) -> Any:
    answer = behind.run("curl", "--silent", "--fail", "--max-time", "120", url)
    return json.loads(answer.stdout) if answer.returncode == 0 else None


def result(behind: Behind, up: dict[str, Any], query: str) -> list[Any]:
    url = f"{up['services']['Prometheus']}/api/v1/query?query={quote(query)}"
    return (ask(behind, url) or {"data": {"result": []}})["data"]["result"]


def test_every_service_is_healthy(behind: Behind, up: dict[str, Any]) -> None:
    found = inspect(behind)
    assert found.keys() >= {"head", "workers-1", "workers-2", "s3", "prometheus", "grafana"}
    health = {
        name: one["State"].get("Health", {}).get("Status")
        for name, one in found.items()
        if name != "prepare"
    }
    assert set(health.values()) == {"healthy"}, health
    assert found["prepare"]["State"]["ExitCode"] == 0


def test_limits_and_processors_are_the_stacks(behind: Behind, up: dict[str, Any]) -> None:
    found = inspect(behind)
    for name in ("head", "workers-1", "workers-2"):
        assert found[name]["HostConfig"]["Memory"] == 2 * 2**30
        assert found[name]["HostConfig"]["CpusetCpus"].isdecimal()


def test_no_secret_is_in_docker_inspect(behind: Behind, up: dict[str, Any], site: Site) -> None:
    told = json.dumps(inspect(behind))
    folder = site.state / "compose" / NAME
    for name in secret_files.VARIABLES:
        value = (folder / name).read_text().strip()
        assert value
        assert value not in told, name
    for name, one in inspect(behind).items():
        assert not [v for v in one["Config"]["Env"] or [] if v.startswith("ROOT_SECRET")], name


def test_prometheus_has_every_node_as_a_target(behind: Behind, up: dict[str, Any]) -> None:
    found = inspect(behind)
    (network,) = found["head"]["NetworkSettings"]["Networks"]
    nodes = {
        found[name]["NetworkSettings"]["Networks"][network]["IPAddress"]
        for name in ("head", "workers-1", "workers-2")
    }

    def healthy() -> set[str]:
        url = f"{up['services']['Prometheus']}/api/v1/targets?state=active"
        targets = (ask(behind, url) or {"data": {"activeTargets": []}})["data"]["activeTargets"]
        return {one["labels"]["instance"] for one in targets if one["health"] == "up"}

    expected = {f"{address}:8080" for address in nodes} | {"metrics:8081"}
    wait_for("every target", lambda: expected <= healthy(), DEADLINE_S)


@pytest.mark.parametrize("title", QUERIES)
def test_the_dashboards_questions_have_answers(
    behind: Behind, up: dict[str, Any], title: str
) -> None:
    if title in EMPTY:
        assert result(behind, up, QUERIES[title]) == []
    else:
        wait_for(title, lambda: result(behind, up, QUERIES[title]), DEADLINE_S)


def test_rays_own_dashboard_lies_where_grafana_looks_and_has_data(
    behind: Behind, up: dict[str, Any]
) -> None:
    file = f"{RAYS_DASHBOARDS}/default_grafana_dashboard.json"
    found = json.loads(behind.docker("exec", inspect(behind)["grafana"]["Id"], "cat", file))
    asked = {
        panel["title"]: [re.sub(r"\$\w+", ".*", target["expr"]) for target in panel["targets"]]
        for panel in panels(found)
    }
    assert asked.keys() >= OF_RAY
    for title, queries in asked.items():
        for query in queries:
            url = f"{up['services']['Prometheus']}/api/v1/query?query={quote(query)}"
            assert ask(behind, url) is not None, (title, query)  # what it cannot parse is a 400
    for title in OF_RAY:
        queries = asked[title]
        wait_for(title, lambda qs=queries: any(result(behind, up, q) for q in qs), DEADLINE_S)


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels that ask something, those in rows too."""
    for panel in dashboard.get("panels", []):
        if panel.get("targets"):
            yield panel
        yield from panels(panel)


def test_nodes_find_the_object_store(site: Site, up: dict[str, Any]) -> None:
    done = site.submit("--stack", NAME, "--num-cpus", "1", "--", "python", "-c", STORE)
    assert "ANSWER ('s3://ray', 200)" in done.stdout, done.stderr


def test_nodes_read_the_hosts_data_and_do_not_change_it(behind: Behind, up: dict[str, Any]) -> None:
    for name in ("head", "workers-1"):
        container = inspect(behind)[name]["Id"]
        assert behind.docker("exec", container, "cat", f"{FOOD}/class_00") == "bread"
        changed = behind.docker.run("exec", "--user", "0", container, "touch", f"{FOOD}/class_00")
        assert "Read-only file system" in changed.stderr


def test_a_stopped_worker_is_lost_and_up_starts_it_again(
    behind: Behind, site: Site, up: dict[str, Any]
) -> None:
    behind.docker("kill", inspect(behind)["workers-2"]["Id"])
    lost = site.status(NAME)["nodes"][-1]
    assert (lost["name"], lost["state"]) == ("workers-2", "lost")
    site.ok("up", NAME)
    assert [node["state"] for node in site.status(NAME)["nodes"]] == ["up"] * 3


def test_from_another_network_no_port_answers(
    behind: Behind, lan: Network, up: dict[str, Any]
) -> None:
    ports = [url.rpartition(":")[2] for url in (up["job_address"], *up["services"].values())]
    command = ["unshare", "--net", "sleep", "infinity"]
    holder = subprocess.Popen(command, env=environment())
    try:
        wait_for("a network", lambda: _is_apart(holder.pid), DEADLINE_S)
        lan.join(holder.pid, 10)
        with network_of(holder.pid):
            refused = {port: _connects(f"{SUBNET}.9", port) for port in ports}
    finally:
        holder.kill()
        holder.wait()
    assert not any(refused.values()), refused
    # They do answer where they are meant to.
    assert all(_answers(behind, port) for port in ports)


SERVE = "exec python -m http.server 8123 --bind 127.0.0.1 --directory /tmp"


def test_a_port_of_the_head_that_is_not_published(
    site: Site, behind: Behind, up: dict[str, Any]
) -> None:
    with site.started("ssh", NAME, "--", SERVE):
        look = ("ssh", NAME, "--", "exec 3<>/dev/tcp/127.0.0.1/8123")
        wait_for("the server in the head", lambda: site(*look).returncode == 0, DEADLINE_S)
        with site.started("forward", NAME, "8123") as forward:
            assert forward.stdout is not None
            address = forward.stdout.readline().strip()
            asked = behind.run("curl", "--silent", "--max-time", "120", f"{address}/")
            assert "Directory listing" in asked.stdout
            forward.send_signal(signal.SIGINT)
            assert forward.wait(DEADLINE_S) == 130
        assert behind.run("curl", "--silent", "--max-time", "5", address).returncode != 0


def _is_apart(pid: int) -> bool:
    mine, its = (Path(f"/proc/{one}/ns/net").readlink() for one in ("self", pid))
    return mine != its


def _connects(host: str, port: str) -> bool:
    command = ["curl", "--silent", "--max-time", "5", f"http://{host}:{port}/"]
    # 7: refused or no way there; 28: nothing within the time.
    return subprocess.run(command, env=environment(), capture_output=True).returncode not in (7, 28)


def _answers(behind: Behind, port: str) -> bool:
    url = f"http://127.0.0.1:{port}/"
    return behind.run("curl", "--silent", "--max-time", "10", url).returncode == 0
