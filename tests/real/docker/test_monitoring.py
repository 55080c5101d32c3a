"""Prometheus on the head, by its unit's own command line: Debian's, in a container of Ray's image.

Grafana's image is not to be had here: what it would ask Prometheus is asked by the test.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from machines import needs
from machines.processes import DEADLINE_S
from machines.units import running
from node_cluster import HEAD_ADDRESS, IMAGE, Cluster, Machine
from waiting import wait_for

from cloud_init.render import NODE_ENV
from sunspot import monitoring
from sunspot.node.azure.live import LiveSettings
from sunspot.ray import ports

pytestmark = pytest.mark.timeout(1800)

STAND_IN = "local/prometheus"
PORT = ports.get("prometheus").number
API = f"http://127.0.0.1:{PORT}/api/v1"
PRICES = {"head": 0.2, "spot": 0.05, "steady": 0.5}

DASHBOARD = json.loads((monitoring.FOLDER / "grafana/dashboards/sunspot.json").read_text())
QUERIES = {
    panel["title"]: target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
}
# What a cluster without GPUs, evictions and an autoscaler has nothing of.
EMPTY = {
    "Groups that get no machines",
    "GPU use",
    "GPU use by node",
    "Seconds to leave",
    "Nodes that left on a notice",
    "Notices by kind",
    "Workers and their limits",
}


@pytest.fixture(scope="module")
def head(cluster: Cluster) -> Iterator[Machine]:
    """The cluster's head with its eviction watcher and its Prometheus."""
    needs.need({"prometheus": "prometheus"}, needs.NEED_DOCKER)
    machine = cluster.head
    make_stand_in(machine)
    env = machine.node.path(NODE_ENV)
    env.write_text(env.read_text().replace(monitoring.PROMETHEUS, STAND_IN))
    machine.node.azure.user_data = LiveSettings(prices=PRICES).text()
    watcher = running(machine.node, "sunspot-eviction.service")
    with watcher, running(machine.node, "sunspot-prometheus.service") as prometheus:
        wait_for(
            "Prometheus", lambda: prometheus.main.poll() is None and answers(machine), DEADLINE_S
        )
        yield machine


def make_stand_in(machine: Machine) -> None:
    docker = machine.docker
    made = docker("create", IMAGE).strip()
    docker("cp", "--follow-link", "/usr/bin/prometheus", f"{made}:/usr/local/bin/prometheus")
    docker("commit", made, STAND_IN)
    docker("rm", made)


def answers(machine: Machine) -> bool:
    return machine.node.run("curl", "--fail", "--silent", f"{API}/targets").returncode == 0


def ask(machine: Machine, path: str) -> Any:
    answer = json.loads(machine.node("curl", "--silent", f"{API}/{path}"))
    assert answer["status"] == "success", answer
    return answer["data"]


def result(machine: Machine, query: str) -> list[Any]:
    return ask(machine, f"query?query={quote(query)}")["result"]


def test_every_endpoint_is_scraped(head: Machine, cluster: Cluster) -> None:
    node, autoscaler, dashboard = (
        ports.get(name).number
        for name in ("metrics-export", "autoscaler-metrics", "dashboard-metrics")
    )
    expected = {f"{machine.node.address}:{node}" for machine in cluster.machines}
    expected |= {f"{HEAD_ADDRESS}:{autoscaler}", f"{HEAD_ADDRESS}:{dashboard}"}
    expected |= {f"127.0.0.1:{ports.get('eviction-metrics').number}"}

    def up() -> set[str]:
        targets = ask(head, "targets?state=active")["activeTargets"]
        return {t["labels"]["instance"] for t in targets if t["health"] == "up"}

    wait_for("every target", lambda: up() == expected, DEADLINE_S)


def test_nodes_and_cost_are_the_clusters(head: Machine) -> None:
    wait_for("the nodes", lambda: result(head, "sum(sunspot_nodes)"), DEADLINE_S)
    found = {
        one["metric"]["group"]: (one["metric"]["market"], float(one["value"][1]))
        for one in result(head, "sunspot_nodes")
    }
    assert found == {
        "head": ("on-demand", 1),
        "spot": ("spot", 1),
        "steady": ("on-demand", 1),
    }
    [cost] = result(head, QUERIES["Cost an hour"])
    assert float(cost["value"][1]) == pytest.approx(sum(PRICES.values()))


@pytest.mark.parametrize("title", QUERIES)
def test_the_dashboards_questions_have_answers(head: Machine, title: str) -> None:
    found = result(head, QUERIES[title])
    if title in EMPTY:
        assert found == []
    else:
        wait_for(title, lambda: result(head, QUERIES[title]), DEADLINE_S)


def test_no_other_node_reaches_it(head: Machine, cluster: Cluster) -> None:
    for name in ("prometheus", "eviction-metrics"):
        url = f"http://{HEAD_ADDRESS}:{ports.get(name).number}/"
        assert cluster.workers[0].node.run("curl", "--silent", url).returncode == 7
