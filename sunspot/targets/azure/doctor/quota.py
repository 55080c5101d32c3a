"""Quota: the vCPUs that a stack needs with all groups full, against what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from sunspot import catalog
from sunspot.errors import UsageError
from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.doctor.findings import failure, ok, warning
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.preview import advice
from sunspot.targets.protocol import Finding

QUOTA = "quota"

# How the usage list (Compute, Usage - List) calls the two quotas of all sizes.
_VALUES = {advice.ALL_ON_DEMAND: "cores", advice.ALL_SPOT: "lowPriorityCores"}


def quotas(azure: Clients, plan: AzurePlan, group: str | None) -> Iterator[Finding]:
    """Whether each quota has room for the whole plan.

    Args:
        azure: Azure's clients.
        plan: the plan.
        group: the stack's resource group if it exists, whose machines already count.
    """
    usages = {
        _key(str(usage.name.value)): usage for usage in azure.compute.usage.list(plan.location)
    }
    own = _own(azure, group) if group else {}
    for quota in advice.quotas(plan):
        value = _VALUES.get(quota.name, quota.name)
        check = f"{QUOTA} {quota.name}"
        usage = usages.get(_key(value))
        if usage is None:
            yield warning(check, f"not checked: Azure's list for {plan.location} does not have it")
            continue
        free = usage.limit - usage.current_value + own.get(_key(value), 0)
        yield _compared(azure, plan, quota, check, str(usage.name.value), free, usage.limit)


def _compared(
    azure: Clients,
    plan: AzurePlan,
    quota: advice.Quota,
    check: str,
    resource: str,
    free: int,
    limit: int,
) -> Finding:
    needs = f"all groups full need {quota.vcpus} vCPUs ({', '.join(quota.needed_by)})"
    if free >= quota.vcpus:
        return ok(check, f"{free} of {limit} free; {needs}")
    short = quota.vcpus - free
    wanted = limit + short
    kind = "lowPriority" if quota.name == advice.ALL_SPOT else "dedicated"
    scope = f"{azure.scope}/providers/Microsoft.Compute/locations/{plan.location}"
    return failure(
        check,
        f"{free} of {limit} free, {short} too few; {needs}",
        f"az quota update --resource-name '{resource}' --resource-type {kind} --scope {scope} "
        f"--limit-object value={wanted}; or lower max_workers",
    )


def _own(azure: Clients, group: str) -> Mapping[str, int]:
    """The vCPUs of the stack's own machines, by the quotas that they count against."""
    found: Counter[str] = Counter()
    for machine in azure.compute.virtual_machines.list(group):
        hardware = machine.hardware_profile
        try:
            size = catalog.get(str(hardware.vm_size if hardware else ""))
        except UsageError:
            continue
        is_spot = str(getattr(machine.priority, "value", machine.priority)) == "Spot"
        names = ["lowPriorityCores"] if is_spot else [size.quota_family, "cores"]
        found.update({_key(name): size.vcpus for name in names})
    return found


def _key(name: str) -> str:
    """A quota's name as it is compared: its spelling differs between lists."""
    return name.lower().replace(" ", "")
