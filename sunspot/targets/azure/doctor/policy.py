"""Policy: what Azure would refuse of a stack, asked by validating a template of its outline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sunspot.errors import SunspotError
from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.doctor.findings import failure, not_checked, ok, short
from sunspot.targets.azure.doctor.types import ARM_TYPES
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.protocol import Finding

POLICY = "policy"
# The errors of "Resolve errors for request disallowed by policy", and of a region that Azure itself
# closes to some subscriptions: to students', or to new customers.
DENIED, REGION_DENIED = "RequestDisallowedByPolicy", "RequestDisallowedByAzure"

# Of the whole validation, which usually takes seconds.
PATIENCE_S = 60.0

_SCHEMAS = "https://schema.management.azure.com/schemas"
_DEPLOYMENT = "sunspot-doctor"


def check(azure: Clients, plan: AzurePlan) -> Iterator[Finding]:
    """What policies refuse of the plan's regions, tags, sizes and public addresses.

    Deployments - Validate At Subscription Scope creates nothing.
    """
    body: Any = {
        "location": plan.location,
        "properties": {"mode": "Incremental", "template": template(plan)},
    }
    error = _problem(azure, body)
    if error is None:
        yield ok(POLICY, "none denies the stack's region, tags, sizes or addresses")
        return
    found = list(_errors(error))
    denied = [one for one in found if one.code in (DENIED, REGION_DENIED)]
    for one in denied:
        yield failure(POLICY, short(one.message), _to_allow(azure, one.code))
    if not denied:
        inner = found[-1]
        yield not_checked(POLICY, f"Azure's validation ended with {inner.code}: {inner.message}")


def _to_allow(azure: Clients, code: str) -> str:
    if code == REGION_DENIED:
        return "choose another region (azure-native:location), or ask Azure's support for this one"
    return (
        "choose what the policy allows, or ask who set it for an exemption: "
        f"az policy assignment list --scope {azure.scope} -o table"
    )


def _problem(azure: Clients, body: Any) -> Any:
    """The error of the validation; None if the template is valid."""
    from azure.core.exceptions import HttpResponseError

    deployments = azure.deployments.deployments
    try:
        poller = deployments.begin_validate_at_subscription_scope(
            _DEPLOYMENT, body, polling_interval=1
        )
        poller.wait(PATIENCE_S)
        if not poller.done():
            raise SunspotError(f"Azure's validation takes more than {PATIENCE_S:g} s")
        return poller.result().error
    except HttpResponseError as answer:
        # A template that is refused: 400, or 403 for a policy, with the same body.
        if answer.status_code in (400, 403) and answer.error is not None:
            error = answer.error
            if answer.status_code == 400 or any(one.code == DENIED for one in _errors(error)):
                return error
        raise


def _errors(error: Any) -> Iterator[Any]:
    """An error and all within it, the innermost last."""
    yield error
    for inner in error.details or ():
        yield from _errors(inner)


def template(plan: AzurePlan) -> dict[str, Any]:
    """A template of the resource group and, within it, what policies usually look at."""
    group = {
        "type": "Microsoft.Resources/resourceGroups",
        "apiVersion": "2021-04-01",
        "name": plan.cluster_name,
        "location": plan.location,
        "tags": plan.tags,
    }
    inside = {
        "type": "Microsoft.Resources/deployments",
        "apiVersion": "2021-04-01",
        "name": f"{_DEPLOYMENT}-inside",
        "resourceGroup": plan.cluster_name,
        "dependsOn": [f"[resourceId('Microsoft.Resources/resourceGroups', '{plan.cluster_name}')]"],
        "properties": {
            "mode": "Incremental",
            "template": _template("2019-04-01/deploymentTemplate.json#", list(_outlines(plan))),
        },
    }
    return _template("2018-05-01/subscriptionDeploymentTemplate.json#", [group, inside])


def _template(schema: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "$schema": f"{_SCHEMAS}/{schema}",
        "contentVersion": "1.0.0.0",
        "resources": resources,
    }


def _outlines(plan: AzurePlan) -> Iterator[dict[str, Any]]:
    name = plan.cluster_name
    unique = "[concat('sunspot', uniqueString(subscription().id))]"
    yield _resource(
        plan,
        "storage:StorageAccount",
        "2024-01-01",
        unique,
        {"allowSharedKeyAccess": False, "allowBlobPublicAccess": False},
        kind="StorageV2",
        sku={"name": "Standard_LRS"},
    )
    if plan.addresses is not None:
        yield _address(plan, f"{name}-nat-ip")
    if plan.access.public_ip:
        yield _address(plan, f"{name}-head-ip")
    for pool in plan.pools:
        yield _resource(
            plan,
            "compute:VirtualMachineScaleSet",
            "2024-11-01",
            pool.scale_set,
            {"orchestrationMode": "Flexible", "platformFaultDomainCount": 1},
            sku={"name": pool.machine.size.name, "tier": "Standard", "capacity": 0},
        )


def _address(plan: AzurePlan, name: str) -> dict[str, Any]:
    return _resource(
        plan,
        "network:PublicIPAddress",
        "2024-05-01",
        name,
        {"publicIPAllocationMethod": "Static"},
        sku={"name": "Standard"},
    )


def _resource(
    plan: AzurePlan,
    of: str,
    version: str,
    name: str,
    properties: Mapping[str, Any],
    **others: Any,
) -> dict[str, Any]:
    return {
        "type": ARM_TYPES[of],
        "apiVersion": version,
        "name": name,
        "location": plan.location,
        "tags": plan.tags,
        "properties": dict(properties),
        **others,
    }
