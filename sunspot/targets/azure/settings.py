"""A stack file's settings for Azure: region, access, network, storage, owner and tags."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from sunspot.errors import UsageError
from sunspot.settings import Settings
from sunspot.spec_values import Config, Count, Text
from sunspot.targets.azure import aks_settings
from sunspot.targets.azure.aks_settings import Aks
from sunspot.targets.azure.cidrs import PRIVATE_NETWORKS, cidr, is_private

# This target's name in sunspot/registry.py.
TARGET = "azure"

DEFAULT_ADDRESS_SPACE = "10.60.0.0/16"
DEFAULT_KEY_FILE = "~/.ssh/id_ed25519.pub"
DEFAULT_RETENTION_DAYS = 30
UNASSIGNED = "unassigned"

# Longer than a head takes to restart, and than its workers keep their work without it.
MIN_ORPHAN_MINUTES = 15
MAX_ORPHAN_MINUTES = 7 * 24 * 60
DEFAULT_ORPHAN_MINUTES = 30

BASTION_USD = 0.29
"""About what an Azure Bastion costs, in USD an hour."""

# The kinds of keys that Azure accepts for Linux machines.
SSH_KEY_KINDS = ("ssh-ed25519", "ssh-rsa")

_LOCATION = re.compile(r"[a-z]{2,}[a-z0-9]*")
_SUBNET_ID = re.compile(
    r"/subscriptions/[^/\s]+/resourceGroups/[^/\s]+/providers/Microsoft\.Network"
    r"/virtualNetworks/[^/\s]+/subnets/[^/\s]+",
    re.IGNORECASE,
)

# Azure's limits for tags, minus the tags that Sunspot sets itself.
MAX_TAGS = 40
MAX_TAG_NAME = 128  # storage accounts allow no more; elsewhere it is 512
MAX_TAG_VALUE = 256
OWN_TAGS = frozenset({"project", "stack", "group", "owner"})
_TAG_NAME_FORBIDDEN = frozenset("<>%&\\?/")


def _location(name: str) -> str:
    if not _LOCATION.fullmatch(name):
        short = re.sub(r"[^a-z0-9]", "", name.lower())
        hint = f", such as {short}" if _LOCATION.fullmatch(short) and short != name else ""
        raise UsageError(
            f"{name!r} is not an Azure region: write its short name, lower case, no spaces{hint} "
            "(`az account list-locations -o table` lists them)"
        )
    return name


def _address_space(text: str) -> str:
    try:
        block = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not an IPv4 block such as 10.60.0.0/16: {error}") from None
    if not is_private(block):
        shown = ", ".join(str(network) for network in PRIVATE_NETWORKS)
        raise UsageError(f"{text!r} is not private: choose a block within {shown}")
    return str(block)


def _subnet_id(text: str) -> str:
    if not _SUBNET_ID.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a subnet id: write /subscriptions/ID/resourceGroups/GROUP/"
            "providers/Microsoft.Network/virtualNetworks/NETWORK/subnets/SUBNET"
        )
    return text


def checked_ssh_public_key(text: str) -> str:
    """Returns a public key, stripped: one line `kind base64 comment` of a kind that Azure accepts.

    Raises:
        UsageError: it is not such a key; the message does not repeat it, as it may be private.
    """
    key = text.strip()
    if "PRIVATE KEY" in key:
        raise UsageError("this is a private key: give the public one, the file that ends in .pub")
    kind, _, rest = key.partition(" ")
    if kind not in SSH_KEY_KINDS or "\n" in key:
        raise UsageError(
            f"is not a public SSH key: write one line that starts with {_or(SSH_KEY_KINDS)}"
        )
    try:
        body = base64.b64decode(rest.split(" ")[0], validate=True)
    except binascii.Error:
        body = b""
    # The body repeats its kind, after four bytes of length.
    if body[4 : 4 + len(kind)] != kind.encode():
        raise UsageError("is not a public SSH key: its second word is damaged, copy the file again")
    return key


def _tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > MAX_TAGS:
        raise UsageError(f"{len(tags)} tags are too many: at most {MAX_TAGS}")
    for name, value in tags.items():
        if name.lower() in OWN_TAGS:
            raise UsageError(f"{name!r} is set by Sunspot: choose another name")
        if not 0 < len(name) <= MAX_TAG_NAME or _TAG_NAME_FORBIDDEN & set(name):
            raise UsageError(
                f"{name!r} is not a tag name: use 1 to {MAX_TAG_NAME} characters, none of "
                "< > % & \\ ? /"
            )
        if len(value) > MAX_TAG_VALUE:
            raise UsageError(
                f"the value of {name!r} has {len(value)} characters, at most {MAX_TAG_VALUE} are "
                "allowed: shorten it"
            )
    return tags


def _owner(name: str) -> str:
    if not 0 < len(name) <= MAX_TAG_VALUE:
        raise UsageError(f"has {len(name)} characters: give 1 to {MAX_TAG_VALUE}")
    return name


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(words)


def _orphan_after(minutes: int) -> int:
    if minutes != 0 and not MIN_ORPHAN_MINUTES <= minutes <= MAX_ORPHAN_MINUTES:
        raise UsageError(
            f"{minutes} minutes: give {MIN_ORPHAN_MINUTES} to {MAX_ORPHAN_MINUTES}, since a head "
            "takes minutes to restart, or 0 for workers that stay without it (and are billed)"
        )
    return minutes


Location = Annotated[Text, AfterValidator(_location)]
Tags = Annotated[dict[Text, Text], AfterValidator(_tags)]
Owner = Annotated[Text, AfterValidator(_owner)]
OrphanAfter = Annotated[Count, AfterValidator(_orphan_after)]


class Access(Config, frozen=True):
    """Who may reach the head, and how; by default only hosts inside its network. And its rights."""

    public_ip: bool = Field(
        default=False, strict=True, description="whether the head gets a public address"
    )
    ssh_cidrs: tuple[Annotated[Text, AfterValidator(cidr)], ...] = Field(
        default=(),
        description="address blocks that may connect by SSH; the whole internet is refused",
        examples=[["203.0.113.7/32"]],
    )
    serve_cidrs: tuple[Annotated[Text, AfterValidator(cidr)], ...] = Field(
        default=(),
        description="address blocks that may connect to Ray Serve, which asks for no token; the "
        "whole internet is refused",
        examples=[["10.1.2.0/24"]],
    )
    bastion: bool = Field(
        default=False,
        strict=True,
        description=f"whether to create an Azure Bastion (about {BASTION_USD} USD an hour) for SSH",
    )
    ssh_public_key: Annotated[Text, AfterValidator(checked_ssh_public_key)] | None = Field(
        default=None, description="public SSH key that may log in, as text"
    )
    ssh_public_key_file: Text = Field(
        default=DEFAULT_KEY_FILE,
        description="file of that key, if ssh_public_key is not given; ~ and paths relative to "
        "the project's folder work",
    )
    custom_roles: bool = Field(
        default=True,
        strict=True,
        description="whether to define roles with only the actions that the nodes need; set false, "
        "for Azure's built-in roles, if you may not define roles",
    )

    @model_validator(mode="after")
    def _check_reachable(self) -> Self:
        if self.public_ip and not self.ssh_cidrs:
            raise UsageError(
                "public_ip without ssh_cidrs admits no address: list those you connect from"
            )
        return self


class SubnetIds(Config, frozen=True):
    """Existing subnets, for the head and for the workers. Both may be the same one."""

    head: Annotated[Text, AfterValidator(_subnet_id)] = Field(
        description="ARM id of the head's subnet"
    )
    workers: Annotated[Text, AfterValidator(_subnet_id)] = Field(
        description="ARM id of the workers' subnet"
    )

    @model_validator(mode="after")
    def _check_one_network(self) -> Self:
        networks = {i.lower().partition("/subnets/")[0] for i in (self.head, self.workers)}
        if len(networks) > 1:
            raise UsageError("head and workers are in different networks: use subnets of one")
        return self


class Network(Config, frozen=True):
    """The cluster's own network, or existing subnets (which have their own outbound access)."""

    address_space: Annotated[Text, AfterValidator(_address_space)] = Field(
        default=DEFAULT_ADDRESS_SPACE, description="address block of the network that is created"
    )
    subnet_ids: SubnetIds | None = Field(
        default=None, description="existing subnets, instead of a network of the cluster's own"
    )


class Storage(Config, frozen=True):
    """The container for checkpoints and results."""

    retention_days: Count = Field(
        default=DEFAULT_RETENTION_DAYS,
        ge=1,
        le=36500,
        description="days after which an unchanged blob is deleted",
    )
    protect: bool = Field(
        default=True,
        strict=True,
        description="whether Pulumi refuses to delete the storage; to delete it too, set false and "
        "update before `pulumi destroy`",
    )


class AzureSettings(Settings, frozen=True):
    """The settings that only Azure has. `location` is None if the file does not name a region."""

    KEYS: ClassVar[Mapping[str, str]] = {
        "azure-native:location": "location",
        "sunspot:check_region": "check_region",
        "sunspot:access": "access",
        "sunspot:network": "network",
        "sunspot:storage": "storage",
        "sunspot:orphan_after": "orphan_after",
        aks_settings.KEY: "aks",
        "sunspot:owner": "owner",
        "sunspot:tags": "tags",
    }

    location: Location | None = Field(default=None, description="Azure region, such as uksouth")
    check_region: bool = Field(
        default=True,
        strict=True,
        description="whether a size is refused that the region is not known to have; set false if "
        "Azure has it by now",
    )
    access: Access = Field(default=Access(), description="who may reach the head on Azure")
    network: Network = Field(default=Network(), description="the cluster's network on Azure")
    storage: Storage = Field(default=Storage(), description="checkpoints and results on Azure")
    orphan_after: OrphanAfter = Field(
        default=DEFAULT_ORPHAN_MINUTES,
        description="minutes after which a worker without its head deletes itself; 0 for never",
    )
    aks: Aks = Field(default=Aks(), description="the AKS cluster, if the target is kubernetes")
    owner: Owner = Field(default=UNASSIGNED, description="value of the tag `owner`")
    tags: Tags = Field(default={}, description="further tags of every Azure resource")
