"""The count of a cluster's nodes and their cost, as Prometheus gets it."""

import pytest
import requests

from sunspot.node import gcs, metrics
from sunspot.node.collector import NodeCollector
from sunspot.node.free_ports import free_port

LABELS = {"ray.io/node-group": "gpu", "ray.io/market-type": "spot"}
HEAD_LABELS = {"ray.io/node-group": "head", "ray.io/market-type": "on-demand"}


@pytest.fixture
def members(monkeypatch):
    """The members' labels; what is raised instead, where it is an error."""
    told = [HEAD_LABELS, LABELS, LABELS]

    def alive(client, timeout_s):
        if isinstance(told[0], Exception):
            raise told[0]
        return told

    monkeypatch.setattr(gcs, "connect", lambda _: object())
    monkeypatch.setattr(gcs, "alive_labels", alive)
    return told


@pytest.fixture
def scraped():
    port = free_port(set())
    server = metrics.serve([NodeCollector("nowhere:1", lambda: {"gpu": 0.25, "head": 0.2})], port)
    yield lambda: requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    server.shutdown()
    server.server_close()


def test_nodes_are_counted_by_group_and_market(members, scraped):
    text = scraped()
    assert 'sunspot_nodes{group="gpu",market="spot"} 2.0' in text
    assert 'sunspot_nodes{group="head",market="on-demand"} 1.0' in text


def test_their_cost_is_the_groups_price(members, scraped):
    text = scraped()
    assert 'sunspot_cost_usd_per_hour{group="gpu",market="spot"} 0.5' in text
    assert 'sunspot_cost_usd_per_hour{group="head",market="on-demand"} 0.2' in text


def test_a_node_without_a_price_is_counted_and_costs_nothing_known(members, scraped):
    members.append({})
    text = scraped()
    assert 'sunspot_nodes{group="",market=""} 1.0' in text
    assert 'sunspot_cost_usd_per_hour{group=""' not in text


def test_a_gcs_that_is_away_leaves_the_endpoint_alive(members, scraped):
    members[0] = RuntimeError("away")
    assert "sunspot_nodes" not in scraped()
