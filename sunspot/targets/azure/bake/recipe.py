"""What an image is made of, and the requests to Azure that describe it.

Sources: Microsoft's pages "Create an Azure Image Builder template", "Store and share images in an
Azure Compute Gallery" and the REST reference of the versions below.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cloud_init import baking
from sunspot.errors import UsageError
from sunspot.targets.azure.plan import PROJECT, AzurePlan
from sunspot.targets.azure.vm_images import DISK_GIB, UBUNTU, Baked, version_at

# Of all stacks of a subscription in one region: Azure changes the location of nothing that exists.
GROUP = "sunspot-images"
GALLERY = "sunspot"  # unique in a subscription; letters, digits and periods
IDENTITY = "sunspot-image-builder"

GROUPS_VERSION = "2021-04-01"
IDENTITIES_VERSION = "2023-01-31"
GALLERIES_VERSION = "2023-07-03"
ROLES_VERSION = "2022-04-01"
TEMPLATES_VERSION = "2024-02-01"

# What Image Builder and its template use ("Create a Linux VM by using Image Builder").
PROVIDERS = (
    "Microsoft.VirtualMachineImages",
    "Microsoft.Compute",
    "Microsoft.ContainerInstance",
    "Microsoft.KeyVault",
    "Microsoft.ManagedIdentity",
    "Microsoft.Network",
    "Microsoft.Storage",
)

# Azure's built-in role Contributor, which the builder's identity gets on the group of the gallery:
# Image Builder wants Microsoft.Compute/images/{read,write,delete} there, for a gallery too
# ("Configure Azure VM Image Builder permissions").
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
_NAMES = uuid.UUID("0d0a1b46-2b0f-5e0e-8f4c-6b8c4b3f0a55")

# It unpacks container images, which four CPUs do at the disk's speed. It has no GPU.
BUILD_SIZE = "Standard_D4s_v5"
BUILD_MINUTES = 90


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is baked, for which region. `images` are the container images on the disk."""

    baked: Baked
    location: str
    images: tuple[str, ...]
    tags: dict[str, str]
    made: datetime

    @property
    def group(self) -> str:
        """The name of the resource group that it is kept in."""
        return f"{GROUP}-{self.location}"

    @property
    def gallery(self) -> str:
        """The name of its gallery."""
        return f"{GALLERY}.{self.location}"

    @property
    def version(self) -> str:
        """The version of the image."""
        return version_at(self.made)


def recipe(plan: AzurePlan, now: datetime | None = None) -> Recipe:
    """The recipe for a planned stack; an image that the stack builds itself is pulled at boot.

    Raises:
        UsageError: the stack has AMD GPUs.
    """
    machines = [plan.head, *(pool.machine for pool in plan.pools)]
    if any(machine.driver == "rocm" for machine in machines):
        raise UsageError(
            f"stack {plan.stack} has AMD GPUs, whose driver cannot be baked: name an image with "
            "it in sunspot:image > vm_image, such as microsoft-dsvm:ubuntu-hpc:2404-rocm:latest"
        )
    has_gpus = any(machine.driver == "nvidia" for machine in machines)
    made = datetime.now(UTC) if now is None else now
    return Recipe(
        baked=Baked(
            stack=plan.stack,
            ray_version=plan.cluster.ray_version.removeprefix("v"),
            driver="nvidia" if has_gpus else "none",
            made=made,
        ),
        location=plan.location,
        images=tuple(dict.fromkeys(m.image for m in machines if m.image is not None)),
        tags=plan.tags,
        made=made,
    )


def definition_body(wanted: Recipe) -> dict[str, Any]:
    """The image's definition in the gallery: what machines it is for."""
    features = {
        "SecurityType": "TrustedLaunchSupported",
        "IsAcceleratedNetworkSupported": "True",
        "DiskControllerTypes": "SCSI, NVMe",
    }
    return {
        "location": wanted.location,
        "tags": wanted.tags,
        "properties": {
            "osType": "Linux",
            "osState": "Generalized",
            "hyperVGeneration": "V2",
            "architecture": "x64",
            "identifier": {
                "publisher": PROJECT,
                "offer": wanted.baked.stack,
                "sku": f"ray-{wanted.baked.ray_version}-{wanted.baked.driver}",
            },
            "features": [{"name": name, "value": value} for name, value in features.items()],
        },
    }


def role_body(principal_id: str, subscription: str) -> dict[str, Any]:
    """The role of the builder's identity."""
    roles = f"/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions"
    return {
        "properties": {
            "roleDefinitionId": f"{roles}/{CONTRIBUTOR}",
            "principalId": principal_id,
            "principalType": "ServicePrincipal",
        }
    }


def role_name(principal_id: str, scope: str) -> str:
    """The assignment's name: the same for the same identity and scope, as a repetition needs it."""
    return str(uuid.uuid5(_NAMES, f"{principal_id}|{scope}".lower()))


def template_body(wanted: Recipe, *, identity_id: str, definition_id: str) -> dict[str, Any]:
    """Image Builder's template."""
    publisher, offer, sku = UBUNTU
    commands = baking.commands(
        ray_version=wanted.baked.ray_version, driver=wanted.baked.driver, images=wanted.images
    )
    return {
        "location": wanted.location,
        "tags": wanted.tags,
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {identity_id: {}}},
        "properties": {
            "buildTimeoutInMinutes": BUILD_MINUTES,
            "vmProfile": {"vmSize": BUILD_SIZE, "osDiskSizeGB": DISK_GIB},
            "source": {
                "type": "PlatformImage",
                "publisher": publisher,
                "offer": offer,
                "sku": sku,
                "version": "latest",
            },
            "customize": [{"type": "Shell", "name": "bake", "inline": commands}],
            "distribute": [
                {
                    "type": "SharedImage",
                    "runOutputName": "image",
                    "galleryImageId": f"{definition_id}/versions/{wanted.version}",
                    "targetRegions": [{"name": wanted.location, "replicaCount": 1}],
                    "artifactTags": wanted.tags,
                }
            ],
        },
    }
