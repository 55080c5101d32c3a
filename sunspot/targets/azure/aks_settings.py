"""What a stack file says of AKS: who may reach its API server, and its own nodes."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sunspot.errors import UsageError
from sunspot.spec_values import Config, Text
from sunspot.targets.azure.cidrs import cidr

KEY = "sunspot:aks"

# Microsoft's "Use system node pools in AKS": a system pool needs two nodes, of 4 vCPUs or more.
SYSTEM_SIZE = "Standard_D4s_v5"
# Microsoft's "Secure access to the API server using authorized IP address ranges in AKS".
MAX_RANGES = 200

Tier = Literal["Free", "Standard", "Premium"]

_VERSION = re.compile(r"1\.\d+(\.\d+)?")


def _version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a version of Kubernetes: write one such as 1.35, in quotes "
            "(`az aks get-versions --location REGION -o table` lists them)"
        )
    return text


class Aks(Config, frozen=True):
    """The AKS cluster, where the stack's target is kubernetes."""

    authorized_ip_ranges: tuple[Annotated[Text, AfterValidator(cidr)], ...] = Field(
        default=(),
        max_length=MAX_RANGES,
        description="address blocks that may reach the API server; the whole internet is refused",
        examples=[["203.0.113.7/32"]],
    )
    private: bool = Field(
        default=False,
        strict=True,
        description="whether only hosts of the network of sunspot:network > subnet_ids reach it, "
        "and of peered ones: Pulumi must then run there",
    )
    tier: Tier = Field(
        default="Free",
        description="of the control plane: Free has no guarantee of its availability",
    )
    kubernetes_version: Annotated[Text, AfterValidator(_version)] | None = Field(
        default=None, description="version of Kubernetes, by default AKS's own default"
    )
    system_vm_size: Text = Field(
        default=SYSTEM_SIZE, description="size of the two nodes for Kubernetes' own pods"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.private and self.authorized_ip_ranges:
            raise UsageError(
                "private and authorized_ip_ranges exclude each other: a private API server has no "
                "public address; leave one of them out"
            )
        return self
