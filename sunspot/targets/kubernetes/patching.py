"""A user's patch of a pod template: Kubernetes' strategic merge, for what Sunspot does not set.

kubernetes.io, "Update API Objects in Place Using kubectl patch": maps are merged key by key, null
removes a key, lists of objects are merged by the key that their type names, others are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sunspot.errors import UsageError
from sunspot.problems import hint, one_of

# What a pod template has.
_TOP = ("metadata", "spec")

# The merge keys of a pod template's lists (`x-kubernetes-patch-merge-key` in Kubernetes' OpenAPI).
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
# Their keys are names of the user's, such as `env`.
_FREE = ("labels", "annotations", "nodeSelector", "matchLabels")
# An addition to one of their items changes what the item means.
_WHOLE = ("env", "volumes")
_DIRECTIVE = "$"

# What would break the cluster -> why.
_REFUSED = {
    "restartPolicy": "KubeRay needs it as it is",
    "generateName": "KubeRay names the pods",
    "namespace": "the settings have a key for it",
}
_REFUSED_VARIABLES = {
    "RAY_enable_autoscaler_v2": "KubeRay sets it",
    "RAY_NODE_TYPE_NAME": "KubeRay sets it",
    "RAY_AUTH_TOKEN_PATH": "the token comes from the Secret that token_secret names",
}


def check(patch: dict[str, Any]) -> dict[str, Any]:
    """The patch, if it is one of a pod template.

    Raises:
        UsageError: it is not, or it sets what would break the cluster.
    """
    for key, value in patch.items():
        if key not in _TOP:
            raise UsageError(
                f"{key!r} is not a field of a pod template: begin with {one_of(_TOP)}"
                f"{hint(key, _TOP)}"
            )
        if value is not None and not isinstance(value, Mapping):
            raise UsageError(f"{key} is not a mapping: put its keys below it, indented")
    for path, key, value in _keys(patch):
        if key.startswith(_DIRECTIVE):
            raise UsageError(
                f"{path}: directives such as {key} are not read: write null to remove a key"
            )
        if key in _REFUSED and path.count(" > ") == 1:
            raise UsageError(f"{path} may not be set: {_REFUSED[key]}; leave it out")
        if key in _MERGE_KEYS and value is not None:
            _check_list(path, key, value)
    return patch


def _check_list(path: str, key: str, items: Any) -> None:
    by = _MERGE_KEYS[key]
    if not isinstance(items, list) or not all(isinstance(one, Mapping) for one in items):
        raise UsageError(f"{path} is not a list of mappings: start each item with `- {by}: `")
    for one in items:
        if not isinstance(one.get(by), str | int):
            raise UsageError(f"{path}: an item has no {by}: give the {by} of each")
        if key == "env" and one[by] in _REFUSED_VARIABLES:
            why = _REFUSED_VARIABLES[one[by]]
            raise UsageError(f"{path} > {one[by]} may not be set: {why}; leave it out")


def _keys(value: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Each key of the value that Kubernetes names, and of what is in it: path, itself, value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = f"{path} > {key}" if path else str(key)
            yield here, str(key), inner
            if key not in _FREE:
                yield from _keys(inner, here)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _keys(inner, f"{path}[{at}]")


def merged(template: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The template with the patch. Neither is changed."""
    return _merged_maps(template, patch)


def touched(template: Any, patched: Any, path: str = "") -> Iterator[str]:
    """The paths of what a patch has changed or removed of a template; additions are not among them.

    Args:
        template: the template, or a part of it.
        patched: the same part after the patch; None if it was removed.
        path: the part's path.
    """
    if isinstance(template, Mapping) and isinstance(patched, Mapping):
        for key, value in template.items():
            here = f"{path} > {key}" if path else key
            if key in _MERGE_KEYS and isinstance(patched.get(key), list):
                by = _MERGE_KEYS[key]
                items = {one[by]: one for one in patched[key]}
                for one in value:
                    other, place = items.get(one[by]), f"{here} > {one[by]}"
                    if key not in _WHOLE:
                        yield from touched(one, other, place)
                    elif one != other:
                        yield place
            else:
                yield from touched(value, patched.get(key), here)
    elif template != patched:
        yield path


def _merged_maps(ours: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(ours)
    for key, value in given.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(key, made.get(key), value)
    return made


def _merged(key: str, ours: Any, given: Any) -> Any:
    if isinstance(given, Mapping):
        # Also without a counterpart, since null stands for nothing there as well.
        return _merged_maps(ours if isinstance(ours, Mapping) else {}, given)
    if key in _MERGE_KEYS and isinstance(given, list):
        return _merged_lists(_MERGE_KEYS[key], ours or [], given)
    return given


def _merged_lists(by: str, ours: list[Any], given: list[Any]) -> list[Any]:
    """Ours first, each with what is given for it, then what only the other has."""
    made = {one[by]: one for one in ours}
    for one in given:
        made[one[by]] = _merged_maps(made.get(one[by], {}), one)
    return list(made.values())
