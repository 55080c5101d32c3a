"""What a first contact costs, by the catalogue's prices."""

from __future__ import annotations

from sunspot.catalog.prices import from_catalog
from sunspot.targets.azure import costs
from sunspot.targets.azure.plan import AzurePlan

# Guesses: it has not been timed on Azure. Up and down take most of the usual time; at most is the
# sum of all that the steps wait for, the registry's run (images.RUN_S), and Pulumi's work.
ABOUT_H = 1.5
AT_MOST_H = 6.0


def offer(plan: AzurePlan) -> str:
    """What is made and what it costs, in some lines."""
    prices = from_catalog()
    found = costs.costs(plan, prices)
    usd = found.total()[1]  # with the worker, which is there for a part of the time
    size = plan.head.size.name
    unknown = f" Not counted, its price is not known: {', '.join(found.unknown)}."
    what = (
        f"In {plan.location}, a cluster of its own is made: a head and at most one spot worker, "
        f"both {size}, and what belongs to them. All of it is taken away at the end."
    )
    price = (
        f"It costs about {usd:.2f} USD an hour ({prices.source}, {prices.region}) and takes about "
        f"{ABOUT_H:g} hours, {AT_MOST_H:g} at most: about {usd * ABOUT_H:.2f} USD, at most about "
        f"{usd * AT_MOST_H:.2f} USD."
    )
    return f"{what}\n{price}{unknown if found.unknown else ''}"
