"""Errors of the engine and of Azure, with an explanation and a remedy for those that we know."""

from __future__ import annotations

import re
from collections.abc import Callable

from pulumi import automation as auto

from sunspot.errors import SunspotError
from sunspot.targets.azure import missing_role

SHOWN_PROBLEMS = 3
LONGEST_PROBLEM = 600

# The engine's colour tags, and a terminal's colour codes.
_COLOUR = re.compile(r"<\{%[^%]*%\}>|\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    """The text without colours."""
    return _COLOUR.sub("", text).strip()


_QUOTA = re.compile(
    r"exceeding approved (?P<family>.+?) quota.*?Location: (?P<location>[^,]+),"
    r".*?Current Limit: (?P<limit>\d+),.*?Current Usage: (?P<usage>\d+),"
    r".*?Additional Required: (?P<more>\d+),.*?New Limit Required: (?P<needed>\d+)",
    re.DOTALL,
)
_SPOT_FAMILY = re.compile(r"low\s*priority|spot", re.IGNORECASE)


def _quota(found: re.Match[str]) -> str:
    family = " ".join(found["family"].split())
    what = "the quota of all spot machines" if _SPOT_FAMILY.search(family) else "a quota of vCPUs"
    return (
        f"Azure's quota {family!r} ({what}) in {found['location'].strip()} is too small: its limit "
        f"is {found['limit']}, {found['usage']} are in use, {found['more']} more are needed. Ask "
        f"for {found['needed']} in the Azure portal (Quotas > Compute), or take smaller or fewer "
        "machines, or another region"
    )


# Azure's "Subnet S is in use by ID and cannot be deleted." for a NIC: gardener's
# machine-controller-manager#544 has it for NICs whose machines are gone.
_HELD_BY_NIC = re.compile(
    r"InUseSubnetCannotBeDeleted.*?in use by (?P<id>/\S+/networkInterfaces/(?P<nic>[^/\s]+))",
    re.DOTALL | re.IGNORECASE,
)
# A NIC stays reserved for its machine for 180 s (karpenter-provider-azure#92).
_FREED_LATER = re.compile(r"InUseSubnetCannotBeDeleted|NicReservedForAnotherVm", re.IGNORECASE)


def is_freed_later(text: str) -> bool:
    """Whether a deletion failed on what Azure usually frees within minutes: a NIC in a subnet."""
    return _FREED_LATER.search(text) is not None


# What Pulumi says where its backend of files is read in the moment that an `up` elsewhere writes,
# and for good where that was killed then (gocloud.dev's fileblob writes a file beside each state).
_BEING_WRITTEN = re.compile(r"failed to load checkpoint: EOF")


def is_being_written(text: str) -> bool:
    """Whether a state could not be read because another command is just writing it."""
    return _BEING_WRITTEN.search(text) is not None


def _held(found: re.Match[str]) -> str:
    return (
        f"the NIC {found['nic']}, which a machine left behind, still holds its subnet; delete it, "
        f"then take the stack down again: az network nic delete --ids {found['id']}"
    )


# Azure's words: hashicorp/terraform-provider-azurerm#8105.
_HELD_BY_MACHINE = re.compile(
    r"NicInUse.*?is used by existing resource (?P<id>/\S+/virtualMachines/(?P<vm>[\w-]+))",
    re.DOTALL | re.IGNORECASE,
)


def _unknown(found: re.Match[str]) -> str:
    return (
        f"the machine {found['vm']} holds a NIC and is not in the stack's state, perhaps because "
        "Pulumi was killed while Azure made it; delete it, then run the same command again: "
        f"az vm delete --yes --ids {found['id']}"
    )


_UNREGISTERED = re.compile(r"not registered to use namespace '(?P<namespace>[\w.]+)'")


def _unregistered(found: re.Match[str]) -> str:
    return (
        "this subscription has not used this service of Azure's yet; register it once, which takes "
        f"minutes: az provider register --wait --namespace {found['namespace']}"
    )


def _says(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _found: text


def _denied(otherwise: str, *, besides: str = "") -> Callable[[re.Match[str]], str]:
    """Names the missing role and its command; `otherwise` where Azure has not said enough."""

    def told(found: re.Match[str]) -> str:
        missing = missing_role.find(found.string)
        if missing is None:
            return otherwise
        return f"{missing}. {besides}".removesuffix(". ")

    return told


_EXPLAINED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_QUOTA, _quota),
    (
        re.compile(r"SkuNotAvailable"),
        _says(
            "Azure does not offer this size in this region now, or not to this subscription; take "
            "another size or region (`az vm list-skus --location REGION --size SIZE -o table`)"
        ),
    ),
    (
        re.compile(r"AllocationFailed|OverconstrainedAllocationRequest"),
        _says("Azure has no machine of this size free in this region; try later, or another size"),
    ),
    (
        re.compile(r"RequestDisallowedByAzure"),
        _says(
            "Azure has closed this region to this subscription, as it does to students' and to new "
            "ones: take another region (azure-native:location), or ask Azure's support for this one"
        ),
    ),
    (
        re.compile(r"AzureSpotFeatureNotEnabledForSubscription"),
        _says(
            "this subscription's offer has no spot machines: upgrade it to pay-as-you-go, or set "
            "market: on-demand for every group"
        ),
    ),
    (_UNREGISTERED, _unregistered),
    (
        re.compile(r"TasksOperationsNotAllowed"),
        _says(
            "Azure runs no registry task for this subscription (it runs none for free credits), "
            "so the images of Docker Hub cannot be copied: take a subscription that pays, ask "
            "Azure's support if it does, or let the nodes pull from Docker Hub, with mirror: false "
            "in sunspot:image"
        ),
    ),
    # Before the next two, which its text contains as well.
    (
        re.compile(r"roleDefinitions/(?:write|delete)"),
        _denied(
            "you may not define roles in this subscription; ask for the role 'User Access "
            "Administrator' or Owner besides Contributor ('Role Based Access Control "
            "Administrator' may only assign them), or have the stack use Azure's built-in roles, "
            "which have more rights than the head needs: sunspot:access > custom_roles: false",
            besides="Or have the stack define no roles and use Azure's built-in ones, which have "
            "more rights than the head needs: sunspot:access > custom_roles: false",
        ),
    ),
    (
        re.compile(r"roleAssignments/(?:write|delete)"),
        _denied(
            "you may not assign roles in this subscription, but the cluster's identities need "
            "some; ask for the role 'User Access Administrator' (or Owner) besides Contributor; "
            "with sunspot:access > custom_roles: false, 'Role Based Access Control Administrator' "
            "is enough",
            besides="With sunspot:access > custom_roles: false, the role 'Role Based Access "
            "Control Administrator' is enough",
        ),
    ),
    (
        re.compile(r"RoleDefinitionDoesNotExist|RoleAssignmentScopeNotAssignableToRoleDefinition"),
        _says(
            "Azure does not know the new role everywhere yet, which takes up to ten minutes; run "
            "the same command again, it continues"
        ),
    ),
    (_HELD_BY_NIC, _held),
    (_HELD_BY_MACHINE, _unknown),
    (
        re.compile(r"InUseSubnetCannotBeDeleted|NicReservedForAnotherVm"),
        _says("Azure has not freed the subnet yet; take the stack down again in some minutes"),
    ),
    (
        re.compile(r"AuthorizationFailed|does not have (?:authorization|permission)"),
        _denied("you may not do this in the subscription; ask for the role Contributor"),
    ),
    (
        # Docker Hub's words in the run's log, and the resource's name in Azure's error.
        re.compile(r"toomanyrequests|/taskRuns/copies-"),
        _says(
            "the run that copies images from Docker Hub into the stack's registry failed; its log: "
            "`az acr task list-runs --registry REGISTRY -o table`, then `az acr task logs "
            "--registry REGISTRY --run-id ID`. Docker Hub may refuse the address of Azure's "
            "machine for some hours: try later, or set mirror: false in sunspot:image"
        ),
    ),
    (
        re.compile(
            r"az login|AADSTS|failed to (?:get|obtain|acquire).*?(?:token|credential)", re.I
        ),
        _says(
            "you are not logged in to Azure: run `az login` and "
            "`az account set --subscription NAME`"
        ),
    ),
    (
        re.compile(r"passphrase must be set|incorrect passphrase", re.IGNORECASE),
        _says(
            "Pulumi needs the passphrase of this stack's secrets: set PULUMI_CONFIG_PASSPHRASE or "
            "PULUMI_CONFIG_PASSPHRASE_FILE"
        ),
    ),
    (
        re.compile(r"PULUMI_ACCESS_TOKEN|not logged in|pulumi login", re.IGNORECASE),
        _says("Pulumi has no backend for its state yet: run `pulumi login --local`, or another"),
    ),
    (
        _BEING_WRITTEN,
        _says(
            "another pulumi is writing this stack's state: try again. If that does not help, one "
            "was killed while it wrote .pulumi/stacks/PROJECT/STACK.json.attrs in the folder of "
            "its backend: delete that file, the state itself is beside it, in STACK.json"
        ),
    ),
    (
        re.compile(r"currently locked by|Another update is currently in progress"),
        _says(
            "another command is working on this stack, or was killed while it did; wait, or, if "
            "none is running, unlock it with: pulumi cancel -s NAME"
        ),
    ),
)


def explain(text: str) -> str | None:
    """What an error message means and what to do about it; None if we do not know."""
    for pattern, explanation in _EXPLAINED:
        if found := pattern.search(text):
            return explanation(found)
    return None


def problem(name: str, *messages: str) -> SunspotError:
    """The error for the engine's messages, after their explanations.

    Args:
        name: the stack's name.
        *messages: what the engine printed as errors.
    """
    explained = list(dict.fromkeys(filter(None, map(explain, messages))))
    lines = [*explained, *(f"pulumi said: {_short(one)}" for one in messages[:SHOWN_PROBLEMS])]
    if len(messages) > SHOWN_PROBLEMS:
        more = len(messages) - SHOWN_PROBLEMS
        lines.append(f"and {more} more; to see them all: pulumi up -s {name}")
    return SunspotError("\n  ".join([f"stack {name!r} on azure:", *lines]))


def _short(text: str) -> str:
    # The lines of a program's own error message must stay separate.
    kept = "\n    ".join(line.strip() for line in text.splitlines() if line.strip())
    return kept if len(kept) <= LONGEST_PROBLEM else f"{kept[: LONGEST_PROBLEM - 3]}..."


def said(error: auto.CommandError) -> str:
    """What the command printed to stderr, or everything that it printed."""
    text = plain(str(error))
    return text.partition("\n stderr: ")[2].strip() or text.strip()
