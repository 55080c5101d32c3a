"""What a stack file says of AKS: who may reach its API server, and its own nodes."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sunspot.errors import UsageError
from sunspot.spec_values import Config, Text
from sunspot.targets.azure.cidrs import cidr, is_private

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


# AKS's defaults. Each node has a /24 of the pods', and the service of DNS has the tenth address.
POD_RANGE, SERVICE_RANGE = "10.244.0.0/16", "10.0.0.0/16"
POD_PREFIXES, SERVICE_PREFIXES = range(8, 21), range(13, 25)
DNS_ADDRESS = 10
# Microsoft's "Azure CNI Overlay networking in AKS": Azure and AKS have these for themselves.
_TAKEN = tuple(
    IPv4Network(block)
    for block in ("169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24")
)


def _not_private(text: str) -> str:
    """The block, unless it is private: the API server sees only public addresses."""
    block = cidr(text)
    if is_private(IPv4Network(block)):
        raise UsageError(
            f"{text!r} is private, and the API server has a public address: give the public one "
            "of your network or VPN (`curl -4 https://ifconfig.me` shows it), or private: true"
        )
    return block


def _pod_range(text: str) -> str:
    return _range_inside(text, POD_PREFIXES)


def _service_range(text: str) -> str:
    return _range_inside(text, SERVICE_PREFIXES)


def _range_inside(text: str, prefixes: range) -> str:
    """The block of addresses, if a cluster may use it inside."""
    sizes = f"from a /{prefixes[0]} to a /{prefixes[-1]}"
    try:
        block = IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not an IPv4 block {sizes}: {error}") from None
    if block.prefixlen not in prefixes:
        raise UsageError(f"{text!r} is a /{block.prefixlen}: give a block {sizes}")
    if any(block.overlaps(taken) for taken in _TAKEN):
        names = ", ".join(str(taken) for taken in _TAKEN)
        raise UsageError(
            f"{text!r} overlaps addresses that every AKS cluster uses: choose a block outside "
            f"{names}"
        )
    return str(block)


class Aks(Config, frozen=True):
    """The AKS cluster, where the stack's target is kubernetes."""

    authorized_ip_ranges: tuple[Annotated[Text, AfterValidator(_not_private)], ...] = Field(
        default=(),
        max_length=MAX_RANGES,
        description="blocks of public addresses that may reach the API server; the whole internet "
        "is refused",
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
        description="of the control plane: Free has no guarantee of its availability, Premium is "
        "for long-term support",
    )
    kubernetes_version: Annotated[Text, AfterValidator(_version)] | None = Field(
        default=None, description="version of Kubernetes, by default AKS's own default"
    )
    system_vm_size: Text = Field(
        default=SYSTEM_SIZE, description="size of the two nodes for Kubernetes' own pods"
    )

    pod_cidr: Annotated[Text, AfterValidator(_pod_range)] = Field(
        default=POD_RANGE, description="addresses of the pods; not those of the subnet or its peers"
    )
    service_cidr: Annotated[Text, AfterValidator(_service_range)] = Field(
        default=SERVICE_RANGE, description="addresses of the services, likewise"
    )

    @property
    def most_nodes(self) -> int:
        """For how many nodes there are addresses of pods: each node takes a /24."""
        return 2 ** (24 - IPv4Network(self.pod_cidr).prefixlen)

    @property
    def dns_service_ip(self) -> str:
        """The address of the cluster's own DNS."""
        return str(IPv4Network(self.service_cidr)[DNS_ADDRESS])

    @model_validator(mode="after")
    def _check(self) -> Self:
        if IPv4Network(self.pod_cidr).overlaps(IPv4Network(self.service_cidr)):
            raise UsageError(
                f"pod_cidr {self.pod_cidr} and service_cidr {self.service_cidr} overlap: give "
                "them blocks without a common address"
            )
        if self.private and self.authorized_ip_ranges:
            raise UsageError(
                "private and authorized_ip_ranges exclude each other: a private API server has no "
                "public address; leave one of them out"
            )
        return self
