"""The host's ports that lead to a cluster's servers, all on its loopback address."""

from __future__ import annotations

from collections.abc import Mapping

from sunspot.node.free_ports import PortClaims, free_port
from sunspot.targets import host_ports
from sunspot.targets.compose import services
from sunspot.targets.compose.plan import ComposePlan

DASHBOARD = "dashboard"
DASHBOARD_FLAG = "--dashboard-port"


def choose(
    plan: ComposePlan, *, dashboard: int | None, taken: set[int], claims: PortClaims | None
) -> dict[str, int]:
    """A port of the host for each server: the usual number where it is free, or else any.

    Args:
        plan: the plan.
        dashboard: the wished port of the dashboard.
        taken: ports that other clusters have, or that the host is known to use.
        claims: keep other commands of this machine from choosing the same; None if the host is
            another, whose free ports cannot be seen.

    Raises:
        UsageError: the wished port cannot be had.
    """
    chosen: dict[str, int] = {}
    if dashboard is not None:
        chosen[DASHBOARD] = _wished(dashboard, taken, claims)
    for named in services.published(plan).values():
        for name, usual in named.items():
            if name not in chosen:
                chosen[name] = _any(usual, taken | set(chosen.values()), claims)
    return chosen


def _wished(port: int, taken: set[int], claims: PortClaims | None) -> int:
    host_ports.check_number(DASHBOARD_FLAG, port)
    if port in taken:
        raise host_ports.taken(DASHBOARD_FLAG, port, " by another cluster, or on the host")
    if claims and not claims.take(port):
        raise host_ports.taken(DASHBOARD_FLAG, port, host_ports.taken_by(port))
    return port


def _any(usual: int, taken: set[int], claims: PortClaims | None) -> int:
    if usual not in taken and (claims is None or claims.take(usual)):
        return usual
    return free_port(taken)


def addresses(local: Mapping[str, int], jupyter_token: str) -> dict[str, str]:
    """The URL of each server beside Ray, by its name for people.

    Args:
        local: this machine's port for each server.
        jupyter_token: the token that Jupyter's link ends with.
    """
    names = {"grafana": "Grafana", "prometheus": "Prometheus", "s3": "S3", "jupyter": "Jupyter"}
    found = {
        shown: f"http://127.0.0.1:{local[name]}" for name, shown in names.items() if name in local
    }
    if "Jupyter" in found:
        found["Jupyter"] += f"/lab?token={jupyter_token}"
    return found
