"""What groups of machines, and what belongs to them, cost an hour: the one calculator of cost.

The rule for what is unknown: where no spot price is known, the on-demand price stands in for it and
the size is named in `assumed`; where a machine then still has no price, the sums leave it out and
its size is named in `unknown`.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sunspot.catalog.prices import Prices


@dataclass(frozen=True, kw_only=True)
class Group:
    """Between `minimum` and `maximum` machines of one size.

    `market` is "on-demand", "spot", or "spot-with-fallback", which may be all on-demand once full.
    `never_spot` holds for machines that the user cannot have on the spot market, such as the head.
    """

    name: str
    size: str
    market: str
    minimum: int
    maximum: int
    never_spot: bool = False


@dataclass(frozen=True, kw_only=True)
class Other:
    """USD an hour of something that is not a machine, with all groups at minimum and at maximum.

    `guess` says what was assumed where the use decides; "" where nothing was.
    """

    name: str
    minimum: float
    maximum: float
    guess: str = ""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """USD an hour of all groups as they are bought, and of what is not a machine.

    `minimum` and `maximum` are the sums of the machines with every group at its minimum and at its
    maximum; those with `others` are `total`. `assumed` and `unknown` name sizes, sorted: see the
    rule of this module.
    """

    groups: tuple[Group, ...]
    prices: Prices
    minimum: float
    maximum: float
    assumed: tuple[str, ...]
    unknown: tuple[str, ...]
    others: tuple[Other, ...] = ()

    def total(self) -> tuple[float, float]:
        """All of it, at the minimum and at the maximum."""
        return (
            round(self.minimum + sum(other.minimum for other in self.others), 4),
            round(self.maximum + sum(other.maximum for other in self.others), 4),
        )

    def usd(self, group: Group, count: int, *, spot: bool) -> float | None:
        """USD an hour of `count` machines of a group at one price; None where it is not known.

        No machines cost nothing, whatever the price.
        """
        if not count:
            return 0.0
        price = self.prices.of(group.size)
        each = price.spot if spot else price.on_demand
        return None if each is None else round(each * count, 4)

    def as_dict(self) -> dict[str, Any]:
        """The sums as plain values, with the assumptions behind them."""
        minimum, maximum = self.total()
        return {
            "minimum": minimum,
            "maximum": maximum,
            "machines": {"minimum": self.minimum, "maximum": self.maximum},
            "others": [asdict(other) for other in self.others],
            "currency": "USD",
            "on_demand_price_taken_for": list(self.assumed),
            "price_unknown": list(self.unknown),
        }


def of(groups: Iterable[Group], prices: Prices, others: Iterable[Other] = ()) -> Costs:
    """The costs of these groups at these prices, and of what is not a machine."""
    groups = tuple(groups)
    at_minimum = [(g, g.minimum, prices.of(g.size).usd(spot=_starts_on_spot(g))) for g in groups]
    at_maximum = [(g, g.maximum, prices.of(g.size).usd(spot=g.market == "spot")) for g in groups]
    bought = [*at_minimum, *at_maximum]
    return Costs(
        groups=groups,
        prices=prices,
        minimum=round(sum(count * (each or 0.0) for _, count, each in at_minimum), 4),
        maximum=round(sum(count * (each or 0.0) for _, count, each in at_maximum), 4),
        assumed=_sizes(
            g
            for g, _, each in at_minimum
            if _starts_on_spot(g) and prices.of(g.size).spot is None and each is not None
        ),
        unknown=_sizes(g for g, _, each in bought if each is None),
        others=tuple(others),
    )


def _starts_on_spot(group: Group) -> bool:
    return group.market != "on-demand"


def _sizes(groups: Iterable[Group]) -> tuple[str, ...]:
    return tuple(sorted({group.size for group in groups}))
