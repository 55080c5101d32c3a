"""The nodes of the stack `dev`: what each is told, and by whom."""

import gzip
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, IPv4Network

import yaml
from image import REGISTRY
from machine import Seed

from cloud_init import NodeValues, render
from cloud_init.live import live_settings
from cloud_init.nodes import node_values
from cloud_init.render import NODE_ENV, readable
from sunspot.node.azure.live import decoded
from sunspot.targets.azure.addresses import RESERVED_FIRST
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.preview.user_data import stand_ins

VAULT = "sunspot-dev.vault.azure.net"

# Limits, most of them Ray's, in seconds or ms, for machines that are ten times slower than Azure's.
PATIENCE = {
    "SUNSPOT_JOIN_SECONDS": "1500",
    # Not much: a raylet that has ended is waited for, too.
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    # What Ray does all the time takes an emulated head a whole CPU.
    "RAY_metrics_report_interval_ms": "60000",
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_health_check_initial_delay_ms": "120000",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_health_check_failure_threshold": "10",
}


@dataclass(frozen=True)
class Subnets:
    """Where the nodes are; each subnet's first address is its gateway, as on Azure."""

    head: IPv4Network
    workers: IPv4Network

    @classmethod
    def of(cls, plan: AzurePlan) -> "Subnets":
        assert plan.addresses is not None
        return cls(
            IPv4Network(plan.addresses.head_subnet), IPv4Network(plan.addresses.workers_subnet)
        )

    @property
    def gateways(self) -> list[IPv4Interface]:
        return [_interface(subnet, 1) for subnet in (self.head, self.workers)]


def seed(
    plan: AzurePlan, role: str, *, image: str, client_id: str, public_key: str, authority: str
) -> Seed:
    """What the head, or the one worker, of the plan is booted with.

    The head installs and pulls everything; the worker's VM image has Docker and Ray's image.
    """
    subnets = Subnets.of(plan)
    is_head = role == "head"
    subnet = subnets.head if is_head else subnets.workers
    # A group of one size and market has one pool.
    pool = None if is_head else plan.pools[0]
    gateway = str(_interface(subnet, 1).ip)
    address = _interface(subnet, RESERVED_FIRST)
    facts = replace(
        stand_ins(plan),
        vault_url=f"https://{VAULT}/",
        identity_client_id=client_id,
        head_address=str(_interface(subnets.head, RESERVED_FIRST).ip),
        registry=REGISTRY,
    )
    values = replace(node_values(plan, pool, facts), image=image)
    return Seed(
        name=f"{plan.cluster_name}-head" if is_head else f"{plan.pools[0].scale_set}_1a2b3c4d",
        hostname=f"{plan.cluster_name}-head" if is_head else "workers-1a2b3",
        address=address,
        gateway=gateway,
        mac=f"52:54:00:00:00:0{0 if is_head else 1}",
        user_data=patient(values),
        settings=decoded(live_settings(plan, facts)) if is_head else "",
        public_key=public_key,
        authority=authority,
        hosts={VAULT: gateway, REGISTRY: gateway},
        data_disk=is_head,
        disk="layers" if is_head else "prepared",
    )


def patient(values: NodeValues) -> bytes:
    """The user data as Azure gets it, with PATIENCE in its node.env; nothing else differs."""
    document = yaml.safe_load(readable(render(values)))
    entry = next(one for one in document["write_files"] if one["path"] == NODE_ENV)
    entry["content"] += "".join(f"{name}='{value}'\n" for name, value in PATIENCE.items())
    return gzip.compress(b"#cloud-config\n" + yaml.safe_dump(document, sort_keys=False).encode())


def _interface(subnet: IPv4Network, number: int) -> IPv4Interface:
    return IPv4Interface(f"{subnet[number]}/{subnet.prefixlen}")
