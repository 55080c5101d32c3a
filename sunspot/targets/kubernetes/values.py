"""Names, labels and quantities as Kubernetes' API accepts them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from sunspot.errors import UsageError
from sunspot.spec_values import Text

# RFC 1123, RFC 1035 and Kubernetes' page "Labels and Selectors".
MAX_LABEL = 63
MAX_SUBDOMAIN = 253
# 63 less the longest suffix that KubeRay gives a service (MaxRayClusterNameLength).
MAX_CLUSTER_NAME = 53
# Less the six characters by which KubeRay names a RayService's clusters (MaxRayServiceNameLength).
MAX_SERVICE_NAME = 47

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CLUSTER = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
# As in the schemas of Kubernetes' own resources, but positive.
_QUANTITY = re.compile(
    r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?",
)

# Labels below these are set by KubeRay, which ignores others' values.
_KUBERAYS = "ray.io"


def _checked(text: str, pattern: re.Pattern[str], limit: int, what: str, fix: str) -> str:
    if len(text) > limit:
        raise UsageError(
            f"{text[:20] + '...'!r} has {len(text)} characters, {what} has at most {limit}: "
            "shorten it"
        )
    if not pattern.fullmatch(text):
        raise UsageError(f"{text!r} is not {what}: {fix}")
    return text


_CLUSTER_WORDS = (
    "use lower-case letters, digits and hyphens, a letter first, no hyphen last (RFC 1035)"
)
_WORDS = "use lower-case letters, digits and hyphens, no hyphen first or last (RFC 1123)"


def cluster_name(text: str) -> str:
    """The text, if a RayCluster may have that name.

    Raises:
        UsageError: it may not.
    """
    return _checked(text, _CLUSTER, MAX_CLUSTER_NAME, "a RayCluster's name", _CLUSTER_WORDS)


def service_name(text: str) -> str:
    """The text, if a RayService may have that name.

    Raises:
        UsageError: it may not.
    """
    return _checked(
        text, _CLUSTER, MAX_SERVICE_NAME, "the name of a RayService or RayJob", _CLUSTER_WORDS
    )


def namespace_name(text: str) -> str:
    """The text, if a namespace may have that name.

    Raises:
        UsageError: it may not.
    """
    return _checked(text, _LABEL, MAX_LABEL, "a namespace", _WORDS)


def _object_name(text: str) -> str:
    fix = f"{_WORDS}, and periods between such words"
    return _checked(text, _SUBDOMAIN, MAX_SUBDOMAIN, "a name in Kubernetes", fix)


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    fix = (
        "write NAME or DOMAIN/NAME with at most 63 letters, digits, hyphens, underscores and "
        "periods in NAME, a letter or digit first and last"
    )
    _checked(name, _KEY, MAX_LABEL, "the name of a label", fix)
    if slash:
        _checked(prefix, _SUBDOMAIN, MAX_SUBDOMAIN, "the domain of a label", fix)
    return text


def _own_label(text: str) -> str:
    if text.partition("/")[0] == _KUBERAYS:
        raise UsageError(f"{text!r} is KubeRay's own label: leave it out, or choose another domain")
    return text


def _label_value(text: str) -> str:
    fix = (
        "use letters, digits, hyphens, underscores and periods, a letter or digit first and last, "
        "or nothing"
    )
    return text and _checked(text, _KEY, MAX_LABEL, "the value of a label", fix)


def _gpu_key(text: str) -> str:
    if "/" not in text:
        raise UsageError(
            f"{text!r} is not a resource of a device plugin: write it with its domain, such as "
            "nvidia.com/gpu or amd.com/gpu"
        )
    return _label_key(text)


def _quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a quantity: write a number with a unit of Kubernetes, such as 512Mi, "
            "10Gi or 1G"
        )
    if not re.search("[1-9]", text):
        raise UsageError(f"{text!r} is zero: give more than 0")
    return text


ClusterName = Annotated[Text, AfterValidator(cluster_name)]
Namespace = Annotated[Text, AfterValidator(namespace_name)]
ObjectName = Annotated[Text, AfterValidator(_object_name)]
LabelKey = Annotated[Text, AfterValidator(_label_key)]
OwnLabelKey = Annotated[Text, AfterValidator(_label_key), AfterValidator(_own_label)]
LabelValue = Annotated[Text, AfterValidator(_label_value)]
GpuKey = Annotated[Text, AfterValidator(_gpu_key)]
Quantity = Annotated[Text, AfterValidator(_quantity)]
