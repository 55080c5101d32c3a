"""The dashboard of a head that starts."""

from __future__ import annotations

from typing import Any


def announce(client: Any, address: str) -> None:
    """Tells the starting head the address of its dashboard, HOST:PORT, in advance.

    `ray start` starts the dashboard, waits until the address is in the GCS, and only then starts
    the raylet (ray/_private/services.py, start_api_server, 2.60). We chose the port, so we can
    say it at once: the raylet starts beside the dashboard, about two seconds earlier.

    Args:
        client: a client of the GCS, see `gcs.connect`.
        address: where the dashboard will answer.
    """
    from ray._private import ray_constants

    client.internal_kv_put(
        ray_constants.DASHBOARD_ADDRESS.encode(),
        address.encode(),
        True,
        ray_constants.KV_NAMESPACE_DASHBOARD,
    )
