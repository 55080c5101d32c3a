"""Metrics of a cluster's nodes, and of their cost per hour, for Prometheus."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sunspot.node import gcs

GROUP_LABEL, MARKET_LABEL = "ray.io/node-group", "ray.io/market-type"
# What a machine booted from, as a short hash; see cloud_init/boots.py.
BOOT_LABEL = "sunspot/boot"
RPC_TIMEOUT_S = 2.0

log = logging.getLogger(__name__)


class NodeCollector:
    """A metrics collector that counts the cluster's members at each scrape.

    Args:
        address: HOST:PORT of the cluster's GCS.
        prices: gives USD per hour by node group, at each scrape; a group without a price has no
            cost metric.
    """

    def __init__(self, address: str, prices: Callable[[], Mapping[str, float]]) -> None:
        self._address = address
        self._prices = prices

    def collect(self) -> Iterator[Any]:
        """The metric families, for `prometheus_client`."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ["group", "market"]
        nodes = GaugeMetricFamily("sunspot_nodes", "Nodes that are alive.", labels=labels)
        cost = GaugeMetricFamily(
            "sunspot_cost_usd_per_hour", "What the nodes that are alive cost.", labels=labels
        )
        try:
            client = gcs.connect(self._address)
            members = gcs.alive_labels(client, RPC_TIMEOUT_S)
        except Exception as error:  # Ray's errors have no common class; the endpoint lives on
            log.warning("the nodes cannot be counted: %s", error)
            return
        counts = Counter((m.get(GROUP_LABEL, ""), m.get(MARKET_LABEL, "")) for m in members)
        prices = self._prices()
        for (group, market), count in sorted(counts.items()):
            nodes.add_metric([group, market], count)
            if group in prices:
                cost.add_metric([group, market], count * prices[group])
        yield from (nodes, cost)
