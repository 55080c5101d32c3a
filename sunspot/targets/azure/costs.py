"""What the machines of a plan cost an hour."""

from sunspot.catalog import cost
from sunspot.catalog.prices import Prices
from sunspot.spec import HEAD, size_for
from sunspot.targets.azure.plan import AzurePlan


def costs(plan: AzurePlan, prices: Prices) -> cost.Costs:
    """The costs of the head and of each group at these prices."""
    head = cost.Group(name=HEAD, size=plan.head.size.name, market="on-demand", minimum=1, maximum=1)
    workers = (
        cost.Group(
            name=group.name,
            size=size_for(group.worker_nodes).name,
            market=group.market,
            minimum=group.min_workers,
            maximum=group.max_workers,
        )
        for group in plan.cluster.scaling_groups
    )
    return cost.of((head, *workers), prices)
