"""Stacks to run, and what running them registers."""

import base64
from functools import cache
from pathlib import Path
from typing import Any

from azure_model.pulumi_mocks import Run, run_program

from sunspot import stack as stacks
from sunspot.stack import Stack
from sunspot.targets.azure.aks.plan import is_aks
from sunspot.targets.azure.settings import AzureSettings

ROOT = Path(__file__).resolve().parents[2]
_BODY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(range(32))).decode()
PUBLIC_KEY = f"ssh-ed25519 {_BODY} someone@example"

# Those of virtual machines.
SHIPPED = tuple(n for n in stacks.names(ROOT) if not is_aks(stacks.load(n, ROOT)))
AUTOSCALER = {"cpu": 0.5, "memory_gb": 1}


def group(name: str = "workers", size: str = "Standard_D4s_v5", **values: Any) -> dict[str, Any]:
    """A group of a stack file; fixed at one spot worker unless said otherwise."""
    return {"name": name, "market": "spot", "worker_nodes": {"vm_size": size}, **values}


def make_stack(
    *groups: dict[str, Any], head: str = "Standard_D4s_v5", name: str = "test", **keys: Any
) -> Stack:
    """A stack with these groups; further keys by their name without `sunspot:`."""
    scaled = any(
        g.get("max_workers", 1) > g.get("min_workers", 1) or g["market"] == "spot-with-fallback"
        for g in groups
    )
    block = {
        "azure-native:location": "uksouth",
        "sunspot:cluster": {
            "head_node": {"vm_size": head},
            "scaling_groups": list(groups),
            **({"autoscaler_config": AUTOSCALER} if scaled else {}),
        },
        "sunspot:access": {"ssh_public_key": PUBLIC_KEY, **keys.pop("access", {})},
        **{f"sunspot:{key}": value for key, value in keys.items()},
    }
    return Stack.parse(block, name=name)


def shipped_stack(name: str) -> Stack:
    """A shipped stack file, which says nothing of a key of ours, with such a key."""
    stack = stacks.load(name, ROOT)
    access = AzureSettings.of(stack).access
    return told(stack, access=access.model_copy(update={"ssh_public_key": PUBLIC_KEY}))


def told(stack: Stack, **changes: Any) -> Stack:
    """The stack with other settings for Azure, by their fields."""
    return stack.with_settings(AzureSettings.of(stack).model_copy(update=changes))


def build(
    stack: Stack, folder: Path = ROOT, read: Any = None, capacity: Any = None, **options: Any
) -> Run:
    """Runs the program for a stack.

    `read` reads the settings of the cluster that runs, `capacity` the number of a set's machines.
    """
    from infra import program

    return run_program(
        lambda: program.build(stack, folder, read, capacity), stack=stack.name, **options
    )


@cache
def run_shipped(name: str) -> Run:
    """Runs the program for a shipped stack file."""
    return build(shipped_stack(name))
