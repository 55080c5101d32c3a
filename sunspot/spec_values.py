"""The types of the values in a stack file, and what their texts must look like."""

import re
from importlib import metadata
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo

from sunspot import catalog
from sunspot.errors import UsageError

# 'sunspot-STACK-GROUP-on-demand' and Pulumi's 8 random characters must stay within 63, the limit of
# a DNS label and of a Kubernetes label value (a scale set may have 64). 24 leaves 12 for the stack.
MAX_GROUP_NAME = 24
GROUP_NAME_PATTERN = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
HEAD = "head"

# The versions of Ray that the tests boot. The node provider, the drain and the token's checks use
# parts of Ray that change from one version to the next without notice.
TESTED_RAY = ("2.60.0",)
RAY_VERSION_PATTERN = rf"^v?({'|'.join(map(re.escape, TESTED_RAY))})$"


class Config(BaseModel, frozen=True, extra="forbid"):
    """The base of what else a stack file has: frozen, and an unknown key is an error.

    Each class repeats `frozen=True` because type checkers do not inherit it.
    """


# Strict: neither True nor "4" is a number. An int is accepted as a float.
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]


def _group_name(name: str) -> str:
    if not name:  # the cluster names the group
        return name
    if name == HEAD:
        raise UsageError(f"{name!r} is reserved for the head node: choose another name")
    if len(name) > MAX_GROUP_NAME:
        raise UsageError(
            f"{name!r} has {len(name)} characters, at most {MAX_GROUP_NAME} are allowed: shorten it"
        )
    # fullmatch: `$` matches before a trailing newline as well.
    if not re.fullmatch(GROUP_NAME_PATTERN, name):
        raise UsageError(
            f"{name!r} is not a group name: use lower-case letters, digits and hyphens, "
            "a letter first and no hyphen last (Azure and Kubernetes require that)"
        )
    return name


def _ray_version(version: str) -> str:
    if not re.fullmatch(RAY_VERSION_PATTERN, version):
        raise UsageError(
            f"Ray {version!r} is not supported: Sunspot uses parts of Ray that change from version "
            f"to version, and is tested with {', '.join(TESTED_RAY)}: write that, or leave it out"
        )
    return version


def installed_ray() -> str:
    """The version of the Ray that is installed here. Raises UsageError if there is none."""
    # Read from the package's metadata: importing Ray takes half a second.
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise UsageError("Ray is not installed here: set ray_version, or install ray") from None


def _vm_size_name(name: str, info: ValidationInfo) -> str:
    size = catalog.find(name)
    if size is not None:
        return size.name
    # Declared before vm_size: NaN by default, and absent where it was refused.
    cpu, memory_gb = (info.data.get(key, 1) for key in ("cpu", "memory_gb"))
    if not (cpu > 0 and memory_gb > 0):
        try:
            catalog.get(name)
        except UsageError as error:
            raise UsageError(
                f"{error} If Azure has it, give its cpu, memory_gb and gpu_count as well"
            ) from None
    gpu_count = info.data.get("gpu_count", 0)
    return catalog.unlisted(name, vcpus=cpu, memory_gib=memory_gb, gpu_count=gpu_count).name


VmSizeName = Annotated[Text, AfterValidator(_vm_size_name)]
GroupName = Annotated[
    Text,
    AfterValidator(_group_name),
    Field(json_schema_extra={"pattern": f"^$|{GROUP_NAME_PATTERN}", "maxLength": MAX_GROUP_NAME}),
]
RayVersion = Annotated[
    Text, AfterValidator(_ray_version), Field(json_schema_extra={"pattern": RAY_VERSION_PATTERN})
]
