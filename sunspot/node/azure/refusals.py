"""Why Azure made no machines: there are none now, a right is missing, another change came first.

Sources: Microsoft's pages "Allocation failures", "SKU not available errors", "Resource quota
errors", "Error messages for Azure Spot Virtual Machines and scale sets" and "Troubleshoot Azure
RBAC"; for `QuotaExceeded`, mspnp/aks-baseline#377; for `OperationPreempted`,
kubernetes/autoscaler#9834 and #3018: a scale set that gets another goal ends the operation of the
earlier one, and works on.
"""

from __future__ import annotations

import re

from sunspot.node.azure.arm import ArmError

# No such machine now, or none for this subscription.
REFUSALS = frozenset(
    code.lower()
    for code in (
        "AllocationFailed",
        "ZonalAllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",
        "QuotaExceeded",
        "AzureSpotFeatureNotEnabledForSubscription",
        "AzureSpotIsNotSupportedForThisVMSize",
        "SpotPriceGreaterThanProvidedMaxPrice",
    )
)
# Azure's code for a request above the quota, which has other meanings as well.
NOT_ALLOWED = "operationnotallowed"

FORBIDDEN = 403
RIGHTS = frozenset({"authorizationfailed", "linkedauthorizationfailed", "forbidden"})
# What the subscription's owners forbid to everybody. Sources: Microsoft's pages "Resolve errors for
# request disallowed by policy", "Lock your Azure resources", "Azure subscription states".
FORBIDS = frozenset({"requestdisallowedbypolicy", "scopelocked", "readonlydisabledsubscription"})

SUPERSEDED = frozenset({"operationpreempted", "canceled", "cancelled", "operationcanceled"})

_LACKING = re.compile(
    r"does not have (?:authorization|permission) to perform action '(?P<action>[^']+)'"
    r".*?scope(?:\(s\))? '(?P<scope>[^']+)'",
    re.DOTALL | re.IGNORECASE,
)


def is_refusal(error: ArmError) -> bool:
    """Whether there are no such machines now; others may be granted."""
    codes = _codes(error)
    return bool(codes & REFUSALS) or (NOT_ALLOWED in codes and "quota" in str(error).lower())


def is_denial(error: ArmError) -> bool:
    """Whether the caller lacks a right, or the subscription's owners forbid it.

    No other machine would be granted then.

    A long-running operation that fails so has no HTTP status.
    """
    if is_refusal(error):
        return False
    lacks = _LACKING.search(str(error)) is not None
    return error.status == FORBIDDEN or bool(_codes(error) & (RIGHTS | FORBIDS)) or lacks


def is_superseded(error: ArmError) -> bool:
    """Whether a newer change of the set ended this operation, which says nothing of machines."""
    if is_refusal(error) or is_denial(error):
        return False
    return bool(_codes(error) & SUPERSEDED) or "preempted by a more recent" in str(error).lower()


def lacking(error: ArmError) -> str:
    """What a denial is about, in words: the action and its scope if Azure names them."""
    if _codes(error) & FORBIDS:
        return f"a policy, a lock or the subscription's state forbids it to everybody: {error}"
    found = _LACKING.search(str(error))
    what = f"lacks the right {found['action']} at {found['scope']}" if found else "may not do this"
    return f"the head's identity {what}; `sunspot up` gives its roles, see docs/azure.md: {error}"


def _codes(error: ArmError) -> set[str]:
    return {code.lower() for code in error.codes}
