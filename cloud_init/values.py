"""What one node on Azure must be told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, get_args

from sunspot.errors import UsageError
from sunspot.ray import ports
from sunspot.ray.resources import NodeResources
from sunspot.ray.start import NodeMarket
from sunspot.targets.azure.plan import Driver

TOKEN_SECRET = "ray-token"  # noqa: S105 - its name in the vault, not the token

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AzureFacts(Generic[T]):
    """What only Azure can tell, so that a node must be told it too. None of it is secret.

    The values are texts; outputs of Pulumi while the resources are still to be made. `built_image`
    is the image that the stack builds, None where its machines name their own, and `registry` the
    server to log in to as the node's identity before each pull, None for a public image.
    `head_address` is the head's private IP address. `token_secret` is the name of the token's
    secret in the vault. `identity_client_id` is that of the node's own identity.
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
    """Everything that one node must be told. None of it is secret.

    `image` is a container reference. `resources` with GPUs need a `driver`. `autoscaler_config` is
    the text of the head's autoscaler file, None where Ray does not scale. `prices` is USD an hour
    by group, for the head's metrics.
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
    autoscaler_config: str | None
    prices: Mapping[str, float] = field(default_factory=dict)
    admin_user: str = "sunspot"

    def __post_init__(self) -> None:
        _check_choice("role", self.role, get_args(ports.Role))
        _check_choice("market", self.market, get_args(NodeMarket))
        _check_choice("driver", self.driver, get_args(Driver))
        gpus = self.resources.gpus
        if (gpus > 0) != (self.driver != "none"):
            raise UsageError(
                f"{self.group}: {gpus} GPUs with driver {self.driver!r}: "
                "GPUs need a driver, and a driver GPUs"
            )
        if self.autoscaler_config is not None and self.role != "head":
            raise UsageError(f"{self.group}: only the head has an autoscaler_config")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} {value!r} is unknown: choose {' or '.join(choices)}")
