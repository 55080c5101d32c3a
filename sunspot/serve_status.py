"""What `sunspot serve status` shows: applications, their replicas, and the ingress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sunspot.ray.serving import Application, Deployment, Instance

STYLES = {
    "RUNNING": "green",
    "HEALTHY": "green",
    "DEPLOYING": "yellow",
    "DEPLOY_FAILED": "red",
    "UNHEALTHY": "red",
}


def show(found: Instance, nodes: Mapping[str, str], console: Console) -> None:
    """Prints the ingress and a table with a line for each deployment.

    Args:
        found: what Serve has.
        nodes: the nodes' names by Ray's ids.
        console: where it is printed.
    """
    ingress = Counter(found.proxies.values())
    states = ", ".join(f"{count} {state}" for state, count in sorted(ingress.items())) or "none"
    console.print(f"ingress {address(found)} · {found.proxy_location}: {states}", markup=False)
    if not found.applications:
        console.print("no application is deployed")
        return
    table = Table(box=None, header_style="dim")
    for heading in ("application", "state", "route", "deployment", "state", "replicas", "on"):
        table.add_column(heading, no_wrap=heading in {"application", "deployment"})
    for app in found.applications.values():
        for row in _rows(app, nodes):
            table.add_row(*row)
    console.print(table)
    for app in found.applications.values():
        if app.reason:
            console.print(f"[red]{escape(app.name)}:[/] {escape(app.reason)}", soft_wrap=True)


def address(found: Instance) -> str:
    """The ingress's URL, on the head."""
    return f"http://{found.host}:{found.port}"


def to_json(name: str, found: Instance | None, nodes: Mapping[str, str]) -> dict[str, Any]:
    """The same as plain data; `ingress` is None where Serve does not run."""
    if found is None or not found.runs:
        return {"name": name, "ingress": None, "applications": []}
    return {
        "name": name,
        "ingress": {
            "host": found.host,
            "port": found.port,
            "location": found.proxy_location,
            "proxies": {nodes.get(node, node): state for node, state in found.proxies.items()},
        },
        "applications": [
            {
                "name": app.name,
                "status": app.status,
                "route": app.route,
                "message": app.message,
                "deployments": [_deployment(one, nodes) for one in app.deployments],
            }
            for app in found.applications.values()
        ],
    }


def _deployment(one: Deployment, nodes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": one.name,
        "status": one.status,
        "message": one.message,
        "target": one.target,
        "replicas": dict(one.replicas),
        "nodes": [nodes.get(node, node) for node in one.nodes],
    }


def _rows(app: Application, nodes: Mapping[str, str]) -> list[tuple[str, ...]]:
    first = (escape(app.name), _coloured(app.status), escape(app.route or "-"))
    rows = [
        (
            escape(one.name),
            _coloured(one.status),
            f"{one.running}/{one.target}",
            ", ".join(sorted({nodes.get(node, node) for node in one.nodes})),
        )
        for one in app.deployments
    ] or [("", "", "", "")]
    return [(*(first if at == 0 else ("", "", "")), *row) for at, row in enumerate(rows)]


def _coloured(status: str) -> str:
    style = STYLES.get(status)
    return f"[{style}]{status}[/]" if style else status
