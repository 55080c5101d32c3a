"""The user data of a node: what cloud_init renders, once the addresses and names are known."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.machines import ADMIN_USER
from sunspot import ports
from sunspot.azure_plan import Machine, Market, Pool
from sunspot.node import autoscaler_config
from sunspot.spec import HEAD

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What every node of a cluster is told about the rest of it."""

    cluster_name: str
    image: pulumi.Input[str]
    registry: pulumi.Input[str] | None
    head_address: pulumi.Input[str]
    vault_url: pulumi.Input[str]
    token_secret: str
    storage_url: pulumi.Input[str]
    subscription_id: pulumi.Input[str]
    resource_group: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class UserDataArgs:
    """One kind of node. `elastic_pools` are those that the head's autoscaler owns."""

    role: ports.Role
    node_type: str
    market: Market
    machine: Machine
    identity_client_id: pulumi.Input[str]
    surroundings: Surroundings
    scale_set: str | None = None
    elastic_pools: Sequence[Pool] = ()


def user_data(args: UserDataArgs) -> pulumi.Output[str]:
    """The user data as Azure takes it: base64 text."""
    around = args.surroundings
    return pulumi.Output.all(
        image=around.image,
        registry=around.registry,
        head_address=around.head_address,
        vault_url=around.vault_url,
        storage_url=around.storage_url,
        subscription_id=around.subscription_id,
        resource_group=around.resource_group,
        identity_client_id=args.identity_client_id,
    ).apply(lambda known: base64.b64encode(_render(args, known)).decode("ascii"))


def _render(args: UserDataArgs, known: Mapping[str, Any]) -> bytes:
    from cloud_init.render import NodeValues, render

    size = args.machine.size
    return render(
        NodeValues(
            role=args.role,
            group=args.node_type,
            market=args.market,
            cluster=args.surroundings.cluster_name,
            token_secret=args.surroundings.token_secret,
            cpus=size.vcpus,
            gpus=size.gpu_count,
            memory_gb=size.memory_gib,
            accelerator=args.machine.accelerator,
            driver=args.machine.driver,
            scale_set=args.scale_set,
            autoscaler_config=_autoscaler_config(args, known),
            admin_user=ADMIN_USER,
            **known,
        ),
        compress=True,
    )


def _autoscaler_config(args: UserDataArgs, known: Mapping[str, Any]) -> str | None:
    """The file of Ray's autoscaler, as JSON (which is YAML too); None without elastic groups.

    Groups of a fixed size are not in it, so that another size of theirs leaves the head alone.
    """
    if not args.elastic_pools:
        return None
    head = _node_type(args.machine, HEAD, args.market, minimum=0, maximum=0)
    workers = {
        pool.node_type: _node_type(
            pool.machine, pool.node_type, pool.market, minimum=pool.minimum, maximum=pool.maximum
        )
        for pool in args.elastic_pools
    }
    config = autoscaler_config.config(
        name=args.surroundings.cluster_name,
        provider={
            "subscription_id": known["subscription_id"],
            "resource_group": known["resource_group"],
            "scale_sets": {pool.node_type: pool.scale_set for pool in args.elastic_pools},
        },
        node_types={HEAD: head, **workers},
        head_type=HEAD,
    )
    return json.dumps(config, separators=(",", ":"))


def _node_type(
    machine: Machine, group: str, market: Market, *, minimum: int, maximum: int
) -> dict[str, Any]:
    return {
        "resources": _resources(machine),
        "labels": {"ray.io/node-group": group, "ray.io/market-type": market},
        "node_config": {},
        "min_workers": minimum,
        "max_workers": maximum,
        # Where both would do, spot first.
        "priority": int(market == "spot"),
    }


def _resources(machine: Machine) -> dict[str, int]:
    size = machine.size
    amounts = {
        "CPU": size.vcpus,
        "GPU": size.gpu_count,
        "memory": int(size.memory_gib * GIB),
    }
    if machine.accelerator is not None:
        amounts[f"accelerator_type:{machine.accelerator}"] = 1
    return {name: amount for name, amount in amounts.items() if amount}
