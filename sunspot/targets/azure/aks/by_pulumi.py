"""A stack file that describes AKS itself: what the commands and `RayCluster` say of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.targets.azure.aks_settings import Aks
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.kubernetes.adopting import DESTROY
from sunspot.targets.kubernetes.settings import TARGET


def refuse_up(stack: Stack, elsewhere: str = "") -> None:
    """Refuses a stack whose Kubernetes Pulumi makes, which would otherwise go to another one.

    Args:
        stack: the stack.
        elsewhere: what brings only its Ray cluster up, by default the command.

    Raises:
        UsageError: it is such a stack; the message has the commands.
    """
    if describes_aks(stack):
        name = stack.name
        raise UsageError(
            f"stack {name!r} describes an AKS cluster, which only Pulumi makes: pulumi up -s "
            f"{name} && $(pulumi stack output kubeconfig_command -s {name}); then sunspot status "
            f"{name}. For its Ray cluster only, in a Kubernetes that you have already: "
            + (elsewhere or f"sunspot up {name} --context CONTEXT")
        )


def refuse_down(stack: Stack) -> None:
    """Refuses to call such a stack "not up", which may be up and cost. Raises as `refuse_up`."""
    if describes_aks(stack):
        raise UsageError(
            f"stack {stack.name!r} describes an AKS cluster, which only Pulumi knows and deletes: "
            f"{DESTROY} {stack.name}. No Ray cluster of it was found "
            "on this machine or by its kubeconfig"
        )


@contextlib.contextmanager
def naming_destroy(name: str | None) -> Iterator[None]:
    """Adds Pulumi's command to the error of a `down` of such a stack."""
    try:
        yield
    except SunspotError as error:
        if name is not None and DESTROY not in str(error) and _declares_aks(name):
            error.add_note(f"only Pulumi deletes the AKS cluster of {name!r}: {DESTROY} {name}")
        raise


def _declares_aks(name: str) -> bool:
    with contextlib.suppress(SunspotError):
        found = stacks.find(name)
        return found is not None and describes_aks(found)
    return False


def refuse_doctor(stack: Stack) -> None:
    """Refuses to look at any Kubernetes but the one that Pulumi makes. Raises as `refuse_up`."""
    if describes_aks(stack):
        name = stack.name
        raise UsageError(
            f"stack {name!r} describes an AKS cluster, which Pulumi makes: before it exists, "
            f"sunspot preview {name} says what it needs and costs, and docs/aks.md what to have "
            f"ready. When it is there: sunspot doctor {name} --context CONTEXT"
        )


def describes_aks(stack: Stack) -> bool:
    """Whether the file says where on Azure it is to be, or how AKS is set up."""
    azure = AzureSettings.of(stack)
    return stack.target == TARGET and (azure.location is not None or azure.aks != Aks())
