"""A preview as plain data, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sunspot.catalog.cost import Costs, Group
from sunspot.targets.azure.tree import Resource

if TYPE_CHECKING:
    from sunspot.targets.azure.preview import Preview


def to_json(preview: Preview) -> dict[str, Any]:
    """The preview as plain data; prices in USD an hour, None where one is unknown."""
    plan = preview.plan
    return {
        "stack": plan.stack,
        "target": preview.target,
        "location": plan.location,
        "resources": resource_as_dict(preview.resources),
        "cost": costs_as_dict(preview.costs),
        "ports": [asdict(opening) for opening in preview.openings],
        "public_ip": plan.access.public_ip,
        "quota": [asdict(quota) for quota in preview.quotas],
        "notes": preview.notes,
        "warnings": preview.warnings,
    }


def resource_as_dict(resource: Resource) -> dict[str, Any]:
    """A resource with all within it."""
    return {
        "type": resource.type,
        "name": resource.name,
        "detail": resource.detail,
        "protected": resource.protected,
        "children": [resource_as_dict(child) for child in resource.children],
    }


def costs_as_dict(costs: Costs) -> dict[str, Any]:
    """The sums, the prices and the groups."""
    prices = costs.prices
    return {
        **costs.as_dict(),
        "prices": {"source": prices.source, "region": prices.region, "date": prices.date},
        "groups": [_group(costs, group) for group in costs.groups],
    }


def _group(costs: Costs, group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "size": group.size,
        "market": group.market,
        "each": asdict(costs.prices.of(group.size)),
        **{
            name: {
                "machines": count,
                "spot": costs.usd(group, count, spot=True),
                "on_demand": costs.usd(group, count, spot=False),
            }
            for name, count in (("minimum", group.minimum), ("maximum", group.maximum))
        },
    }
