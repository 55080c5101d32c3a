"""A Pulumi stack file as a `Stack`: read, checked as a whole, every problem named by its key.

Two readers lead here and must agree: Pulumi's own, inside the program, and `load`, which needs no
engine. Both end in `Stack.parse`.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from sunspot.errors import UsageError
from sunspot.spec import Config, RayClusterConfig, RayNodeConfig, ScalingGroup, Text, size_for
from sunspot.targets.azure.settings import (
    UNASSIGNED,
    Access,
    Image,
    Location,
    Network,
    Owner,
    Storage,
    Tags,
)

Target = Literal["local", "compose", "azure", "kubernetes", "slurm"]
TARGETS: tuple[Target, ...] = get_args(Target)

# Where a node is a machine of Azure's, so that it must have a size.
SIZED_TARGETS: frozenset[Target] = frozenset({"azure", "kubernetes"})

PROJECT_FILE = "Pulumi.yaml"
NAMESPACE = "sunspot:"

# Config key -> field of Stack. Keys of other namespaces belong to Pulumi's providers.
KEYS = {
    "sunspot:target": "target",
    "sunspot:cluster": "cluster",
    "sunspot:access": "access",
    "sunspot:network": "network",
    "sunspot:image": "image",
    "sunspot:storage": "storage",
    "sunspot:owner": "owner",
    "sunspot:tags": "tags",
    "sunspot:check_region": "check_region",
    "azure-native:location": "location",
}

# The fields whose values are no text; Pulumi hands such a value to programs as JSON text.
_NO_TEXT = frozenset({"cluster", "access", "network", "image", "storage", "tags", "check_region"})

# Pulumi's own rule for stack names; it also keeps a name from leaving the project's folder.
_STACK_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_LONGEST_VALUE = 60


def check_name(name: str) -> str:
    """The name, if it can be a stack's. Raises UsageError for one that Pulumi would refuse."""
    if not _STACK_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no stack name: use letters, digits, hyphens, underscores and periods "
            "(at most 100), as in Pulumi.<name>.yaml"
        )
    return name


class Stack(Config, frozen=True):
    """One stack: the cluster, and the place it is meant for.

    `target` is where `sunspot up` runs it, "azure" where the file does not say; `location` is the
    Azure region, None where the file names none.
    """

    name: Annotated[Text, AfterValidator(check_name)] = Field(
        description="name of the stack, as in Pulumi.<name>.yaml"
    )
    target: Target = Field(default="azure", description="where `sunspot up` runs the cluster")
    cluster: RayClusterConfig = Field(
        description="the cluster: a head_node, scaling_groups of workers"
    )
    location: Location | None = Field(default=None, description="Azure region, such as uksouth")
    check_region: bool = Field(
        default=True,
        strict=True,
        description="whether a size is refused that the region is not known to have; say false "
        "where Azure has it by now",
    )
    access: Access = Field(default=Access(), description="who may reach the head on Azure")
    network: Network = Field(default=Network(), description="the cluster's network on Azure")
    image: Image = Field(default=Image(), description="the container image of the nodes")
    storage: Storage = Field(default=Storage(), description="checkpoints and results on Azure")
    owner: Owner = Field(default=UNASSIGNED, description="whom the tag `owner` names")
    tags: Tags = Field(default={}, description="further tags of everything on Azure")

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], *, name: str, source: str | None = None) -> Self:
        """The stack that a `config:` mapping describes, its keys as Pulumi writes them.

        What is no text may also come as JSON text, as Pulumi hands it to programs. Keys of other
        namespaces are left alone. Raises UsageError with every problem, one a line, after
        `source` (by default `Pulumi.<name>.yaml`).
        """
        problems = [_unknown_key(key) for key in mapping if _is_unknown(key)]
        values = {
            field: _decoded(mapping[key], field) for key, field in KEYS.items() if key in mapping
        }
        try:
            stack = cls.model_validate({**values, "name": name})
        except ValidationError as error:
            problems += _problems(error)
        else:
            if not problems:
                return stack
        raise _wrong(source or f"Pulumi.{name}.yaml", problems)

    def for_target(self, target: str) -> Self:
        """This stack for another (or its own) target, checked for what that target needs.

        On azure and kubernetes every node gets a VM size: one that only names its needs becomes
        the cheapest size that fits, with all the CPUs, memory and GPUs of that size. Elsewhere
        nodes stay as they are. Raises UsageError for a target that does not exist, and with every
        node that no size fits.
        """
        if target not in TARGETS:
            raise UsageError(
                f"{target!r} is no target: choose {_one_of(TARGETS)}{_hint(target, TARGETS)}"
            )
        if target not in SIZED_TARGETS:
            return self.model_copy(update={"target": target})
        problems: list[str] = []
        cluster = self.cluster
        head = _sized(cluster.head_node, "head_node", problems)
        groups = tuple(
            _sized_group(group, index, target, problems)
            for index, group in enumerate(cluster.scaling_groups)
        )
        if problems:
            raise _wrong(f"stack {self.name} on {target}", problems)
        sized = cluster.model_copy(update={"head_node": head, "scaling_groups": groups})
        return self.model_copy(update={"target": target, "cluster": sized})


def load(name: str, directory: Path | None = None) -> Stack:
    """The stack of `Pulumi.<name>.yaml` in the project's folder, by default the one we are in.

    Raises UsageError naming the file, each key and what to do about it; for a stack that does not
    exist, the ones that do.
    """
    check_name(name)
    folder = project_directory() if directory is None else directory
    path = folder / f"Pulumi.{name}.yaml"
    if not path.is_file():
        raise UsageError(_no_such_stack(name, folder))
    return Stack.parse(_config_block(path), name=name, source=str(path))


def names(directory: Path | None = None) -> list[str]:
    """The stacks of a project, by name, sorted; by default of the project we are in."""
    folder = project_directory() if directory is None else directory
    files = (path for path in folder.glob("Pulumi.*.yaml") if path.is_file())
    found = (path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in files)
    return sorted(name for name in found if _STACK_NAME.fullmatch(name))


def project_directory(start: Path | None = None) -> Path:
    """The folder of the Pulumi project around `start`, by default around the working directory.

    Raises UsageError where no folder up to the root holds a Pulumi.yaml.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder
    raise UsageError(f"No {PROJECT_FILE} in {here} or above it: change to the project's folder")


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a stack file's `sunspot:cluster` block."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **RayClusterConfig.model_json_schema(),
        "title": "The sunspot:cluster block of a Sunspot stack file",
    }


# Reading the file


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but a key written twice is an error, as it is to Pulumi."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice, remove one",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return node


def _config_block(path: Path) -> Mapping[str, Any]:
    """The `config:` mapping of a stack file. Its other keys are Pulumi's own."""
    document = _read_yaml(path)
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise _wrong(str(path), ["the file is no mapping: start it with `config:`"])
    block = document.get("config")
    if block is None:
        block = {}
    if not isinstance(block, dict):
        raise _wrong(str(path), ["config: is no mapping: indent `sunspot:cluster:` below it"])
    return {str(key): value for key, value in block.items()}


def _read_yaml(path: Path) -> Any:
    try:
        # A subclass of SafeLoader: it builds plain values only.
        return yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        raise _wrong(str(path), [_yaml_problem(error)]) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _wrong(str(path), [f"is no YAML: {' '.join(str(error).split())}"]) from error


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    what = error.problem or error.context or "is no YAML"
    return f"{where}{what}"


def _decoded(value: Any, field: str) -> Any:
    """The value itself, or what its JSON text holds: Pulumi passes objects on as text."""
    if field not in _NO_TEXT or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value  # the field says that it is no text


def _no_such_stack(name: str, folder: Path) -> str:
    known = names(folder)
    if not known:
        return f"There is no stack {name!r}: {folder} holds no Pulumi.<name>.yaml"
    return f"There is no stack {name!r} in {folder}: it has {', '.join(known)}{_hint(name, known)}"


# Naming what is wrong


def _wrong(source: str, problems: Iterable[str]) -> UsageError:
    return UsageError("\n  ".join([f"{source}:", *problems]))


def _is_unknown(key: str) -> bool:
    return key not in KEYS and (key.startswith(NAMESPACE) or ":" not in key)


def _unknown_key(key: str) -> str:
    known = tuple(KEYS)
    near = key if ":" in key else NAMESPACE + key
    return f"config > {key}: unknown key{_hint(near, known)}; known: {', '.join(known)}"


def _problems(error: ValidationError) -> list[str]:
    # Pydantic's own links lead to its manual, not to what to do.
    return [
        f"{_key_path(problem['loc'])}: {_message(problem)}"
        for problem in error.errors(include_url=False)
    ]


def _key_path(location: tuple[int | str, ...]) -> str:
    """`config > sunspot:cluster > scaling_groups[0] > max_workers`."""
    keys = {field: key for key, field in KEYS.items()}
    path = "config"
    for depth, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f" > {keys.get(part, part) if depth == 0 else part}"
    return path


# Pydantic's kinds of error, each with its limit and the fix.
_MESSAGES = {
    "greater_than": "{value} is too small: give a number greater than {gt:g}",
    "greater_than_equal": "{value} is too small: give {ge:g} or more",
    "less_than_equal": "{value} is too large: give {le:g} or less",
    "bool_type": "{value} is neither true nor false: write one of them, without quotes",
    "dict_type": "{value} is no mapping: put its keys below it, indented",
    "float_type": "{value} is no number: write one, without quotes",
    "int_type": "{value} is no whole number: write one, without quotes",
    "int_from_float": "{value} is no whole number: write one, without quotes",
    "finite_number": "{value} is not finite: write a number",
    "string_type": "{value} is no text: write it in quotes",
    "model_type": "{value} is no mapping: put its keys below it, indented",
    "tuple_type": "{value} is no list: start each item with `- `",
}


def _message(problem: Any) -> str:
    kind, location, value = problem["type"], problem["loc"], problem["input"]
    context = problem.get("ctx", {})
    if isinstance(value, dict) and "secure" in value and len(location) == 1:
        return "is encrypted, but is no secret: set it again without --secret"
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        known = tuple(_model_at(location[:-1]).model_fields)
        return f"unknown key{_hint(str(location[-1]), known)}; known: {', '.join(known)}"
    if kind == "missing":
        field = _model_at(location[:-1]).model_fields[str(location[-1])]
        return f"missing: give {field.description}"
    if kind == "literal_error":
        choices = get_args(_model_at(location[:-1]).model_fields[str(location[-1])].annotation)
        return f"{_shown(value)} is unknown: choose {_one_of(choices)}{_hint(str(value), choices)}"
    if template := _MESSAGES.get(kind):
        return template.format(value=_shown(value), **context)
    return f"{_shown(value)}: {problem['msg']}"


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """The config class whose key the path leads to."""
    found: Any = Stack
    for part in location:
        inner = found.model_fields[part].annotation if isinstance(part, str) else found
        # Steps into `tuple[X, ...]` and `X | None`.
        found = inner if isinstance(inner, type) and not get_args(inner) else get_args(inner)[0]
    return found


def _shown(value: Any) -> str:
    """The value as the stack file would spell it, cut where it is long."""
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError):  # YAML can make mappings with odd keys, and circles
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _hint(word: str, known: Sequence[str]) -> str:
    # `gpu` is nearer to `cpu` by letters, but means `gpu_count`.
    longer = [name for name in known if word and name.startswith(word)]
    near = longer or difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _one_of(choices: Sequence[str]) -> str:
    *first, last = choices
    return f"{', '.join(first)} or {last}"


# Giving each node its machine


def _sized(node: RayNodeConfig, path: str, problems: list[str]) -> RayNodeConfig:
    try:
        return RayNodeConfig(vm_size=size_for(node).name)
    except UsageError as error:
        problems.append(f"{_key_path(('cluster',))} > {path}: {error}")
        return node


def _sized_group(group: ScalingGroup, index: int, target: str, problems: list[str]) -> ScalingGroup:
    path = f"scaling_groups[{index}] > worker_nodes"
    found = len(problems)
    node = _sized(group.worker_nodes, path, problems)
    if target == "azure" and len(problems) == found and size_for(node).infiniband:
        # Flexible scale sets, which the workers are, cannot hold these.
        problems.append(
            f"{_key_path(('cluster',))} > {path}: {node.vm_size} has InfiniBand, which needs a "
            "Uniform scale set that Sunspot does not make yet: choose a size without, "
            "such as Standard_NC80adis_H100_v5"
        )
    return group.model_copy(update={"worker_nodes": node})
