"""The smallest stack that can be made of a user's: its stack file, and the sizes to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sunspot import catalog
from sunspot import stack as stacks
from sunspot.catalog import VmSize, regions
from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.azure import stack_file
from sunspot.targets.azure.settings import TARGET, AzureSettings

NAME = "first-contact"
GROUP = "spot"

# In the stack file, so that it is known again whoever rewrote it, and on every resource.
MARK = "made-by"
MADE_BY = "sunspot doctor --first-contact"

# Two vCPUs and 8 GiB hold Ray's own processes, Prometheus and Grafana beside a task.
CPUS, MEMORY_GIB = 2, 8
# How many sizes are tried where the subscription may not have the cheapest.
CHOICES = 4

# Of the user's stack file, what the small one does not share.
_OWN_KEYS = (
    "sunspot:cluster",
    "sunspot:storage",
    "sunspot:tags",
    "sunspot:target",
    "pulumi:autonaming",  # fixed names are the user's own resources
)


@dataclass(frozen=True, kw_only=True)
class StackFile:
    """The small stack's file in the project's folder, made of a user's stack.

    Attributes:
        folder: the project's folder.
        user: the user's stack, which a file of the same folder declares.
    """

    folder: Path
    user: Stack

    @property
    def path(self) -> Path:
        """Where the file is."""
        return stack_file.of(NAME, self.folder)

    def check(self) -> None:
        """Checks that the file's place is free, or has what an earlier first contact left.

        Raises:
            UsageError: it has a stack of the user's, or the user's has secrets that only the user's
                stack can read.
        """
        self._check_secrets()
        if self.path.exists() and not self._is_ours():
            raise UsageError(
                f"there is a stack file {self.path} that no first contact made, and a first "
                "contact makes a stack of that name: rename yours"
            )

    def _check_secrets(self) -> None:
        # Pulumi Cloud has a key for each stack, and the file then names none (its page "Secrets").
        before = stack_file.top(stack_file.of(self.user.name, self.folder))
        if before.get("encryptionsalt") or before.get("encryptedkey"):
            return
        given = before.get("config") or {}
        secrets = [key for key in given if key not in _OWN_KEYS and _is_secret(given[key])]
        if secrets:
            raise UsageError(
                f"stack {self.user.name!r}: {', '.join(secrets)} can be read only by that stack, "
                "whose key Pulumi Cloud has, and a first contact makes another one: choose a stack "
                "without secrets, and give a login by the environment or `az login`"
            )

    def write(self, size: VmSize) -> Stack:
        """Writes the file for head and worker of this size; the stack that it declares.

        Raises:
            UsageError: the user's settings do not allow such a stack; the message has each problem.
        """
        before = stack_file.top(stack_file.of(self.user.name, self.folder))
        # What Pulumi keeps beside the settings, such as the salt of the secrets.
        kept = stack_file.top(self.path) if self.path.exists() else {}
        settings = _config(self.user, before.get("config") or {}, size)
        document = {**before, **kept, "config": settings}
        self.path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return stacks.load(NAME, self.folder).for_target(TARGET)

    def remove(self) -> None:
        """Removes the file, if it is there."""
        self.path.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        try:
            tags = AzureSettings.of(stacks.load(NAME, self.folder)).tags
        except UsageError:
            return False
        return tags.get(MARK) == MADE_BY


def sizes(region: str | None) -> list[VmSize]:
    """The cheapest sizes without GPUs that a head and a spot worker fit on, the cheapest first.

    Only those that Sunspot chooses by needs: of the others, B cannot be spot (Microsoft's page
    "Use Azure Spot Virtual Machines", limitations).
    """
    fitting = [
        size
        for size in catalog.load()
        if size.by_needs
        and not size.gpu_count
        and size.vcpus >= CPUS
        and size.memory_gib >= MEMORY_GIB
        and (region is None or regions.is_sold(size.name, region) is not False)
    ]
    return sorted(fitting, key=lambda size: _usd(size, region))[:CHOICES]


def _is_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "secure" in value or any(map(_is_secret, value.values()))
    return isinstance(value, list) and any(map(_is_secret, value))


def _usd(size: VmSize, region: str | None) -> tuple[float, int]:
    """The price there, or in the catalogue's region; what has none comes last."""
    here = None if region is None else regions.on_demand(size.name, region)
    price = size.price.on_demand if here is None else here
    return float("inf") if price is None else price, size.vcpus


def _config(user: Stack, given: Mapping[str, Any], size: VmSize) -> dict[str, Any]:
    node = {"vm_size": size.name}
    return {
        **{key: value for key, value in given.items() if key not in _OWN_KEYS},
        "sunspot:target": TARGET,
        "sunspot:tags": {**AzureSettings.of(user).tags, MARK: MADE_BY},
        "sunspot:storage": {"protect": False},
        "sunspot:cluster": {
            "ray_version": user.cluster.ray_version,
            "head_node": node,
            "scaling_groups": [
                {
                    "name": GROUP,
                    "market": "spot",
                    "min_workers": 0,
                    "max_workers": 1,
                    "worker_nodes": node,
                }
            ],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
    }
