"""A preview as plain data, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sunspot.targets.azure.preview.costs import Costs, GroupCost
from sunspot.targets.azure.preview.tree import Resource

if TYPE_CHECKING:
    from sunspot.targets.azure.preview import Preview


def to_json(preview: Preview) -> dict[str, Any]:
    """The preview as plain data; prices in USD an hour, None where one is unknown."""
    plan = preview.plan
    return {
        "stack": plan.stack,
        "target": preview.target,
        "location": plan.location,
        "resources": _resource(preview.resources),
        "cost": _costs(preview.costs),
        "ports": [asdict(opening) for opening in preview.openings],
        "public_ip": plan.access.public_ip,
        "quota": [asdict(quota) for quota in preview.quotas],
        "notes": preview.notes,
        "warnings": preview.warnings,
    }


def _resource(resource: Resource) -> dict[str, Any]:
    return {
        "type": resource.type,
        "name": resource.name,
        "detail": resource.detail,
        "protected": resource.protected,
        "children": [_resource(child) for child in resource.children],
    }


def _costs(costs: Costs) -> dict[str, Any]:
    prices = costs.prices
    return {
        "currency": "USD",
        "minimum": costs.minimum,
        "maximum": costs.maximum,
        "prices": {"source": prices.source, "region": prices.region, "date": prices.date},
        "on_demand_price_taken_for": list(costs.assumed),
        "price_unknown": list(costs.unknown),
        "groups": [_group(group) for group in costs.groups],
    }


def _group(group: GroupCost) -> dict[str, Any]:
    return {
        "group": group.group,
        "size": group.size,
        "market": group.market,
        "each": asdict(group.price),
        **{
            name: {
                "machines": count,
                "spot": group.at(count, spot=True),
                "on_demand": group.at(count, spot=False),
            }
            for name, count in (("minimum", group.minimum), ("maximum", group.maximum))
        },
    }
