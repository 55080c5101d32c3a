"""The Pulumi program, as a function: a stack in, its outputs out."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import config as engine_config

from cloud_init.live import live_settings
from infra.by_hand import ReadSettings
from infra.cluster import AzureRayCluster
from infra.growing import ReadCapacity
from infra.machines import ADMIN_USER
from infra.roles import subscription_of
from sunspot.catalog import prices
from sunspot.catalog.cost import Costs
from sunspot.ray import ports
from sunspot.stack import Stack, project_directory
from sunspot.targets.azure.access import no_way_in
from sunspot.targets.azure.aks.costs import costs as aks_costs
from sunspot.targets.azure.aks.plan import AksPlan, is_aks
from sunspot.targets.azure.aks.plan import plan as aks_plan
from sunspot.targets.azure.costs import costs
from sunspot.targets.azure.plan import AzurePlan, plan
from sunspot.targets.azure.preview.user_data import stand_ins
from sunspot.targets.azure.sizes import unlisted

LOOPBACK = "127.0.0.1"
DASHBOARD = ports.get("dashboard").number

Outputs = Mapping[str, pulumi.Input[Any]]


def configured_stack() -> Stack:
    """The stack that Pulumi's engine was started with.

    Raises:
        UsageError: its settings are wrong; the message names every problem.
    """
    # A program that `pulumi` starts gets its settings from the environment; one that runs inside
    # the Automation API gets them from Pulumi's runtime.
    settings = {**engine_config.get_config_env(), **engine_config.CONFIG.get()}
    return Stack.parse(settings, name=pulumi.get_stack())


def build(
    stack: Stack,
    folder: Path | None = None,
    read: ReadSettings | None = None,
    capacity: ReadCapacity | None = None,
) -> Outputs:
    """Creates everything that the stack describes, and returns the stack's outputs.

    Args:
        stack: the stack to create.
        folder: where the stack's relative paths start; by default the project's folder.
        read: reads the settings of the cluster that runs; without it, nothing is known of them.
        capacity: reads how many machines a scale set has; without it, nothing is known of that.

    Raises:
        UsageError: before the first resource; the message names every problem.
    """
    if is_aks(stack):
        return _build_aks(aks_plan(stack))
    checked = plan(stack, project_directory() if folder is None else folder)
    baked = None if checked.head.vm_image is None else checked.head.vm_image.baked
    if baked is not None and (stale := baked.stale(datetime.now(UTC))) is not None:
        pulumi.log.warn(stale)
    if (unreachable := no_way_in(checked.access, checked.subnet_ids)) is not None:
        pulumi.log.warn(unreachable)
    live_settings(checked, stand_ins(checked))  # refuses too many groups
    for warning in unlisted(checked.sizes, checked.location):
        pulumi.log.warn(warning)
    cluster = AzureRayCluster(checked, read, capacity)
    return _outputs(cluster, checked)


def _build_aks(checked: AksPlan) -> Outputs:
    # Kubernetes' provider is imported only for stacks that need it.
    from infra.aks import AksRayCluster

    for warning in unlisted(checked.sizes, checked.location):
        pulumi.log.warn(warning)
    cluster = AksRayCluster(checked)
    names, url = checked.names, f"http://{LOOPBACK}:{DASHBOARD}"
    group, name = cluster.resource_group.name, cluster.cluster.name
    subscription = subscription_of(cluster.resource_group.id)
    return {
        "head_address": f"{names.head_service}.{names.namespace}",
        "job_address": url,
        "dashboard_url": url,
        "kubeconfig_command": pulumi.Output.concat(
            "az aks get-credentials --resource-group ",
            group,
            " --name ",
            name,
            " --subscription ",
            subscription,
        ),
        "tunnel_command": f"kubectl port-forward --namespace {names.namespace} "
        f"service/{names.head_service} {DASHBOARD}",
        "token_secret": f"{names.namespace}/{names.token_secret}",
        "storage_url": cluster.results.url,
        "resource_group": group,
        "cluster": name,
        "estimated_cost_per_hour": _told(aks_costs(checked, prices.from_catalog())),
    }


def _outputs(cluster: AzureRayCluster, checked: AzurePlan) -> Outputs:
    nic = cluster.nic
    address = nic.private_address if nic.public_address is None else nic.public_address
    forward = f"-N -L {DASHBOARD}:{LOOPBACK}:{DASHBOARD}"
    url = f"http://{LOOPBACK}:{DASHBOARD}"
    return {
        "head_address": address,
        "head_private_ip": nic.private_address,
        # Through the tunnel, since only SSH gets in.
        "job_address": url,
        "dashboard_url": url,
        "ssh_command": _ssh(cluster, checked, address, ""),
        "tunnel_command": _ssh(cluster, checked, address, forward),
        "token_secret": cluster.token.secret_uri,
        "storage_url": cluster.results.url,
        "resource_group": cluster.resource_group.name,
        "estimated_cost_per_hour": _told(costs(checked, prices.from_catalog())),
    }


def _told(found: Costs) -> dict[str, Any]:
    return {
        **found.as_dict(),
        "prices": f"{found.prices.region}, {found.prices.date}",
    }


def _ssh(
    cluster: AzureRayCluster, checked: AzurePlan, address: pulumi.Output[str], options: str
) -> pulumi.Output[str]:
    if cluster.bastion is None:
        head = " ".join(part for part in ("ssh", options, f"{ADMIN_USER}@") if part)
        return pulumi.Output.concat(head, address)
    command = pulumi.Output.concat(
        "az network bastion ssh --name ",
        cluster.bastion.host_name,
        " --resource-group ",
        cluster.resource_group.name,
        " --target-resource-id ",
        cluster.head.vm.id,
        f" --auth-type ssh-key --username {ADMIN_USER} --ssh-key {_private_key(checked)}",
    )
    return pulumi.Output.concat(command, f" -- {options}") if options else command


def _private_key(checked: AzurePlan) -> str:
    """The file as a shell reads it, which replaces a ~ only where that is not quoted."""
    key = checked.access.ssh_public_key_file.removesuffix(".pub")
    return f"~/{shlex.quote(key[2:])}" if key.startswith("~/") else shlex.quote(key)
