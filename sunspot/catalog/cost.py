"""What a cluster's machines cost an hour, by the catalogue's prices."""

from collections.abc import Iterable
from dataclasses import dataclass

from sunspot import catalog
from sunspot.spec import RayClusterConfig, ScalingGroup, size_for


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """USD an hour with every group at its minimum, and at its maximum; machines alone.

    `assumed` names the sizes whose spot price is not known, so that their on-demand price stands
    for it; `unknown` those without any known price, which are left out of the sums.
    """

    minimum: float
    maximum: float
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, float | str | list[str]]:
        """The estimate as plain values, with where its prices are from."""
        source = catalog.source()
        return {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "currency": "USD",
            "prices": f"{source['region']}, {source['date']}; machines alone",
            "on_demand_price_taken_for": list(self.assumed),
            "price_unknown": list(self.unknown),
        }


def estimate(cluster: RayClusterConfig) -> Estimate:
    """The estimate for a cluster; nodes that only name needs count as the size that fits them."""
    head = size_for(cluster.head_node)
    groups = [(group, size_for(group.worker_nodes)) for group in cluster.scaling_groups]
    minimum = maximum = _price(head, spot=False)
    for group, size in groups:
        minimum += group.min_workers * _price(size, spot=_may_be_spot(group))
        # A group that falls back may be all on-demand.
        maximum += group.max_workers * _price(size, spot=group.market == "spot")
    return Estimate(
        minimum=round(minimum, 4),
        maximum=round(maximum, 4),
        assumed=_names(
            size
            for group, size in groups
            if _may_be_spot(group) and size.spot_usd is None and size.on_demand_usd is not None
        ),
        unknown=_names(
            size for size in (head, *(size for _, size in groups)) if size.on_demand_usd is None
        ),
    )


def _may_be_spot(group: ScalingGroup) -> bool:
    return group.market != "on-demand"


def _price(size: catalog.VmSize, *, spot: bool) -> float:
    return size.price_usd(spot=spot) or 0.0


def _names(sizes: Iterable[catalog.VmSize]) -> tuple[str, ...]:
    return tuple(sorted({size.name for size in sizes}))
