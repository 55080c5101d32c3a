"""What the groups of a planned cluster cost an hour, at spot and on demand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sunspot.catalog.prices import Price, Prices
from sunspot.spec import HEAD, Market, size_for
from sunspot.targets.azure.plan import AzurePlan

HOURS_A_MONTH = 730


@dataclass(frozen=True, kw_only=True)
class GroupCost:
    """One group (the head is one too): how many machines, of which size, at which price each."""

    group: str
    size: str
    market: Market
    minimum: int
    maximum: int
    price: Price

    def at(self, count: int, *, spot: bool) -> float | None:
        """USD an hour of so many machines bought that way; None where the price is unknown."""
        each = self.price.spot if spot else self.price.on_demand
        return None if each is None else round(each * count, 4)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """USD an hour of every group, and of all as they are bought; machines alone.

    At the maximum, a group that falls back counts as on-demand. `assumed` names the sizes whose
    spot price is unknown, so that their on-demand price stands for it in the sums; `unknown` those
    without any price, which the sums leave out.
    """

    groups: tuple[GroupCost, ...]
    minimum: float
    maximum: float
    assumed: tuple[str, ...]
    unknown: tuple[str, ...]
    prices: Prices


def costs(plan: AzurePlan, prices: Prices) -> Costs:
    """The costs of a plan at these prices."""
    head = plan.head.size.name
    groups = [_group(HEAD, head, "on-demand", (1, 1), prices)] + [
        _group(
            group.name,
            size_for(group.worker_nodes).name,
            group.market,
            (group.min_workers, group.max_workers),
            prices,
        )
        for group in plan.cluster.scaling_groups
    ]
    return Costs(
        groups=tuple(groups),
        minimum=round(sum(_bought(g, g.minimum, spot=_is_spot(g)) for g in groups), 4),
        maximum=round(sum(_bought(g, g.maximum, spot=g.market == "spot") for g in groups), 4),
        assumed=_sizes(
            g for g in groups if _is_spot(g) and g.price.spot is None and g.price.on_demand
        ),
        unknown=_sizes(g for g in groups if g.price.on_demand is None and not _all_spot(g)),
        prices=prices,
    )


def _group(
    name: str, size: str, market: Market, counts: tuple[int, int], prices: Prices
) -> GroupCost:
    minimum, maximum = counts
    return GroupCost(
        group=name,
        size=size,
        market=market,
        minimum=minimum,
        maximum=maximum,
        price=prices.of(size),
    )


def _is_spot(group: GroupCost) -> bool:
    return group.market != "on-demand"


def _all_spot(group: GroupCost) -> bool:
    return group.market == "spot" and group.price.spot is not None


def _bought(group: GroupCost, count: int, *, spot: bool) -> float:
    price = group.price
    each = price.spot if spot and price.spot is not None else price.on_demand
    return 0.0 if each is None else each * count


def _sizes(groups: Iterable[GroupCost]) -> tuple[str, ...]:
    return tuple(sorted({group.size for group in groups}))
