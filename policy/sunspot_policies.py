"""Policies for a cluster on Azure, and the rules that they check on a resource's type and inputs.

A rule yields one sentence for each violation, which says what to do. It accepts any version of a
resource type (`azure-native:compute/v20240301:VirtualMachine`) and ignores types that it does not
cover.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pulumi_policy import (
    Policy,
    PolicyConfigSchema,
    ReportViolation,
    ResourceValidation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)

Props = Mapping[str, Any]
Rule = Callable[[str, Props], Iterator[str]]

SSH = 22
# The same as Sunspot's own limit: wider blocks count as the internet, unless they are private.
MIN_SSH_PREFIX = 16
EVERYWHERE = frozenset({"*", "any", "internet", "0.0.0.0/0", "::/0"})
REQUIRED_TAGS = ("project", "stack", "owner")
HEAD = "head"

# The resource types of clusters that Azure lets carry tags.
TAGGABLE = frozenset(
    {
        "compute:AvailabilitySet",
        "compute:Disk",
        "compute:Image",
        "compute:VirtualMachine",
        "compute:VirtualMachineScaleSet",
        "containerregistry:Registry",
        "containerservice:ManagedCluster",
        "keyvault:Secret",
        "keyvault:Vault",
        "managedidentity:UserAssignedIdentity",
        "network:BastionHost",
        "network:LoadBalancer",
        "network:NatGateway",
        "network:NetworkInterface",
        "network:NetworkSecurityGroup",
        "network:PrivateEndpoint",
        "network:PublicIPAddress",
        "network:RouteTable",
        "network:VirtualNetwork",
        "resources:ResourceGroup",
        "storage:StorageAccount",
    }
)

_TYPE = re.compile(r"azure-native(?:_\w+)?:(?P<module>\w+)(?:/\w+)?:(?P<kind>\w+)")


# The rules


def public_workers(resource_type: str, props: Props) -> Iterator[str]:
    """Find workers that have a public address, or inbound NAT through a load balancer."""
    what = _name(resource_type)
    if what == "compute:VirtualMachineScaleSet":
        profile = _mapping(_mapping(props, "virtualMachineProfile"), "networkProfile")
        for nic in _items(profile, "networkInterfaceConfigurations"):
            for address in _items(nic, "ipConfigurations"):
                if address.get("publicIPAddressConfiguration") is not None:
                    yield (
                        "Its VMs get public addresses: remove publicIPAddressConfiguration and "
                        "reach them through the head."
                    )
                if _items(address, "loadBalancerInboundNatPools"):
                    yield (
                        "Its VMs are reached through inbound NAT: remove "
                        "loadBalancerInboundNatPools and reach them through the head."
                    )
    if what == "network:NetworkInterface" and _mapping(props, "tags").get("group") != HEAD:
        for address in _items(props, "ipConfigurations"):
            if address.get("publicIPAddress") is not None:
                yield (
                    "Only the head's NIC may have a public address: remove publicIPAddress, or "
                    f"tag the NIC `group: {HEAD}` if it is the head's."
                )


def open_ssh(resource_type: str, props: Props) -> Iterator[str]:
    """Find rules that let the internet in by SSH."""
    what = _name(resource_type)
    if what == "network:NetworkSecurityGroup":
        rules = _items(props, "securityRules")
    elif what == "network:SecurityRule":
        rules = [props]
    else:
        return
    for rule in rules:
        if not _admits_ssh(rule):
            continue
        sources = [rule.get("sourceAddressPrefix"), *_texts(rule, "sourceAddressPrefixes")]
        for source in sources:
            if source is not None and _is_the_internet(source):
                yield (
                    f"Rule {rule.get('name', '')!r} lets {source!r} in by SSH: list the addresses "
                    "you connect from."
                )


def open_api_servers(resource_type: str, props: Props) -> Iterator[str]:
    """Find AKS clusters whose API server the internet may reach."""
    if _name(resource_type) != "containerservice:ManagedCluster":
        return
    access = _mapping(props, "apiServerAccessProfile")
    ranges = list(_texts(access, "authorizedIPRanges"))
    if access.get("enablePrivateCluster") is not True and not ranges:
        yield "Its API server is open to the internet: list authorizedIPRanges, or make it private."
    for source in ranges:
        if _is_the_internet(source):
            yield f"Its API server lets {source!r} in: list the addresses you connect from."


def shared_keys(resource_type: str, props: Props) -> Iterator[str]:
    """Find storage accounts that accept shared keys, or allow anonymous access to blobs."""
    if _name(resource_type) == "storage:StorageAccount":
        # Azure takes True if it is left out.
        if props.get("allowSharedKeyAccess") is not False:
            yield "It accepts shared keys: set allowSharedKeyAccess to false and use identities."
        if props.get("allowBlobPublicAccess") is True:
            yield "It allows anonymous access to blobs: set allowBlobPublicAccess to false."


def untagged(
    resource_type: str, props: Props, names: Sequence[str] = REQUIRED_TAGS
) -> Iterator[str]:
    """Find resources that lack a required tag."""
    if _name(resource_type) in TAGGABLE:
        tags = _mapping(props, "tags")
        if missing := [name for name in names if not tags.get(name)]:
            yield f"It lacks these tags: {', '.join(missing)}. Add them."


# Helpers


def _name(resource_type: str) -> str:
    """Return `compute:VirtualMachine`, whatever the version; empty for other providers."""
    found = _TYPE.fullmatch(resource_type)
    return f"{found['module']}:{found['kind']}" if found else ""


def _mapping(props: Props, key: str) -> Props:
    value = props.get(key)
    return value if isinstance(value, Mapping) else {}


def _items(props: Props, key: str) -> list[Props]:
    value = props.get(key)
    return [] if value is None else [item for item in value if isinstance(item, Mapping)]


def _texts(props: Props, key: str) -> list[str]:
    value = props.get(key)
    return [] if value is None else [str(item) for item in value]


def _admits_ssh(rule: Props) -> bool:
    ports = [rule.get("destinationPortRange"), *_texts(rule, "destinationPortRanges")]
    return (
        str(rule.get("direction", "")).lower() == "inbound"
        and str(rule.get("access", "")).lower() == "allow"
        and str(rule.get("protocol", "")).lower() in ("tcp", "*")
        and any(_holds_ssh(str(port)) for port in ports if port is not None)
    )


def _holds_ssh(ports: str) -> bool:
    if ports == "*":
        return True
    first, _, last = ports.partition("-")
    return first.isdecimal() and int(first) <= SSH <= int(last or first)


def _is_the_internet(source: str) -> bool:
    if source.strip().lower() in EVERYWHERE:
        return True
    try:
        block = ipaddress.ip_network(source, strict=False)
    except ValueError:
        return False  # a service tag such as VirtualNetwork
    return block.prefixlen < MIN_SSH_PREFIX and not block.is_private


# The policies


def _validation(rule: Rule) -> ResourceValidation:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for violation in rule(args.resource_type, args.props):
            report(violation, None)

    return validate


def _check_tags(args: ResourceValidationArgs, report: ReportViolation) -> None:
    names = args.get_config().get("names") or REQUIRED_TAGS
    for violation in untagged(args.resource_type, args.props, names):
        report(violation, None)


POLICIES: list[Policy] = [
    ResourceValidationPolicy(
        name="no-public-workers",
        description="Workers cannot be reached from the internet.",
        validate=_validation(public_workers),
    ),
    ResourceValidationPolicy(
        name="no-open-ssh",
        description="SSH is open to listed addresses, not to the internet.",
        validate=_validation(open_ssh),
    ),
    ResourceValidationPolicy(
        name="no-open-api-server",
        description="The API server of AKS is open to listed addresses, not to the internet.",
        validate=_validation(open_api_servers),
    ),
    ResourceValidationPolicy(
        name="no-shared-keys",
        description="Storage accounts accept identities, not shared keys.",
        validate=_validation(shared_keys),
    ),
    ResourceValidationPolicy(
        name="tagged",
        description="Every resource that can carry tags has the required ones.",
        validate=_check_tags,
        config_schema=PolicyConfigSchema(
            properties={
                "names": {
                    "type": "array",
                    "items": {"type": "string"},
                    "default": list(REQUIRED_TAGS),
                }
            }
        ),
    ),
]
