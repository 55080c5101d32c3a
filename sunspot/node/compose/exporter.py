"""Serves Prometheus the metrics of a cluster's nodes, their cost and evictions; in a container.

Its arguments are HOST:PORT of the cluster's GCS and the port to serve at; SUNSPOT_PRICES has USD an
hour by node group, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from sunspot.node import metrics
from sunspot.node.collector import NodeCollector

# Of the container: only what shares its network reaches it.
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104


def main(address: str, port: str) -> None:
    """Serves until the container is stopped."""
    prices = json.loads(os.environ.get("SUNSPOT_PRICES", "{}"))
    collectors = [
        NodeCollector(address, lambda: prices),
        metrics.EvictionCollector(metrics.EventLog(address)),
    ]
    metrics.serve(collectors, int(port), address=EVERY_ADDRESS)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
