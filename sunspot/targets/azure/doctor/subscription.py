"""The subscription: its state, its offer, and the resource providers that a stack needs."""

from __future__ import annotations

from collections.abc import Iterator

from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.doctor.findings import failure, ok, warning
from sunspot.targets.azure.doctor.login import SUBSCRIPTION
from sunspot.targets.azure.doctor.types import namespaces
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.protocol import Finding

OFFER, PROVIDERS = "offer", "resource providers"

# Microsoft, "Use Azure Spot Virtual Machines", supported offers: Enterprise Agreement,
# pay-as-you-go, sponsored, and subscriptions of a cloud solution provider. The ids of offers:
# "Understand Cost Management data".
WITH_SPOT = ("EnterpriseAgreement", "PayAsYouGo", "Sponsored", "CSP")
WITHOUT_SPOT = {
    "FreeTrial": "a free trial",
    "AzureForStudents": "Azure for Students",
    "DreamSpark": "Azure for Students Starter",
}
TO_UPGRADE = (
    "upgrade it to pay-as-you-go (Azure portal > Subscriptions > Upgrade), or set market: "
    "on-demand for every group"
)


# Still active, other than Warned and Disabled (Microsoft, "Azure subscription states").
PAST_DUE = "PastDue"


def state(azure: Clients, plan: AzurePlan) -> Iterator[Finding]:
    """Whether the subscription is enabled, and whether its offer has spot machines."""
    found = azure.subscriptions.subscriptions.get(azure.subscription)
    name = f"{found.display_name} ({azure.subscription})"
    state = getattr(found.state, "value", found.state)
    if state == "Enabled":
        yield ok(SUBSCRIPTION, name)
    elif state == PAST_DUE:
        yield warning(
            SUBSCRIPTION,
            f"{name} is {state}: Azure disables it if the bill stays unpaid",
            "pay in the Azure portal (Cost Management + Billing)",
        )
    else:
        yield failure(
            SUBSCRIPTION,
            f"{name} is {state}",
            "enable it in the Azure portal (Subscriptions), or choose another one",
        )
    policies = found.subscription_policies
    yield _offer(str(policies.quota_id if policies and policies.quota_id else ""), plan)


def _offer(quota_id: str, plan: AzurePlan) -> Finding:
    groups = sorted({pool.group for pool in plan.pools if pool.market == "spot"})
    name = quota_id.partition("_")[0]
    if not groups:
        return ok(OFFER, f"{quota_id or 'unknown'}; the stack uses no spot machines")
    if name in WITHOUT_SPOT:
        return failure(
            OFFER,
            f"{WITHOUT_SPOT[name]} ({quota_id}) has no spot machines, which {', '.join(groups)} "
            "would be",
            TO_UPGRADE,
        )
    if name in WITH_SPOT:
        return ok(OFFER, f"{quota_id}, which has spot machines")
    return warning(
        OFFER,
        f"{quota_id or 'unknown'} is not among those that Microsoft names as having spot machines: "
        "enterprise, pay-as-you-go, sponsored and CSP subscriptions",
    )


def providers(azure: Clients, plan: AzurePlan) -> Iterator[Finding]:
    """Whether the subscription is registered with the provider of each of the plan's resources."""
    missing = []
    for namespace in namespaces(plan):
        state = azure.resources.providers.get(namespace).registration_state
        if state == "Registering":
            yield warning(PROVIDERS, f"{namespace} is being registered, which takes minutes")
        elif state != "Registered":
            missing.append(namespace)
    if missing:
        yield failure(
            PROVIDERS,
            f"not registered: {', '.join(missing)}",
            " && ".join(f"az provider register --wait --namespace {one}" for one in missing),
        )
    else:
        yield ok(PROVIDERS, f"{len(namespaces(plan))} registered")
