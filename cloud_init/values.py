"""The values that one node on Azure needs."""

from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

from sunspot import monitoring
from sunspot.errors import UsageError
from sunspot.ray import ports
from sunspot.ray.resources import NodeResources
from sunspot.ray.start import NodeMarket
from sunspot.targets.azure.machine import Driver

TOKEN_SECRET = "ray-token"  # noqa: S105 - its name in the vault, not the token

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AzureFacts(Generic[T]):
    """What only Azure knows before the node boots. None of it is secret.

    The values are text, or Pulumi's outputs while the resources do not exist yet.

    Attributes:
        built_image: the image that the stack builds; None where its machines name their own.
        registry: the stack's registry, to which a node logs in as its identity before it pulls
            from there; None if the stack has none.
        head_address: the head's private IP address.
        vault_url: the URL of the token's vault.
        token_secret: the name of the token's secret in the vault.
        storage_url: the storage path for Ray.
        subscription_id: the subscription of the cluster.
        resource_group: the name of the cluster's resource group.
        identity_client_id: the client id of the node's own identity.
    """

    built_image: T | None
    registry: T | None
    head_address: T
    vault_url: T
    token_secret: T
    storage_url: T
    subscription_id: T
    resource_group: T
    identity_client_id: T


@dataclass(frozen=True, kw_only=True)
class NodeValues:
    """Everything that one node needs. None of it is secret.

    `image` is a container reference. `resources` with GPUs need a `driver`. `autoscaled` says
    whether the head has Ray's autoscaler, or whether a worker is one of those that it scales.
    `orphan_after_s` is how long a worker may be without its cluster before it deletes itself; None
    for one that may not, and for the head.
    `ray_version` is the image's.
    `boot` tells what a worker boots from; "" for the head, and before it is known (see boots.py).
    `prometheus_image` and `grafana_image` are the head's.

    Raises:
        UsageError: the values contradict each other.
    """

    role: ports.Role
    group: str
    market: NodeMarket
    cluster: str
    image: str
    resources: NodeResources
    driver: Driver
    facts: AzureFacts[str]
    scale_set: str | None
    autoscaled: bool = False
    orphan_after_s: int | None = None
    ray_version: str = ""
    admin_user: str = "sunspot"
    prometheus_image: str = monitoring.PROMETHEUS
    grafana_image: str = monitoring.GRAFANA
    boot: str = ""

    def __post_init__(self) -> None:
        _check_choice("role", self.role, get_args(ports.Role))
        _check_choice("market", self.market, get_args(NodeMarket))
        _check_choice("driver", self.driver, get_args(Driver))
        gpus = self.resources.gpus
        if (gpus > 0) != (self.driver != "none"):
            raise UsageError(
                f"{self.group}: {gpus} GPUs with driver {self.driver!r}: "
                "GPUs need a driver, and a driver needs GPUs"
            )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} {value!r} is unknown: choose {' or '.join(choices)}")
