"""A Pulumi stack file as a `Stack`: read, checked as a whole, every problem named by its key.

Two readers must agree: Pulumi's own, inside the program, and `load`, which does not need the
engine. Both call `Stack.parse`. Keys that only one target reads are that target's `Settings`.
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from sunspot import registry, stack_problems, yaml_files
from sunspot.errors import UntrustedError, UsageError
from sunspot.idle import Idle, refuse_idle
from sunspot.problems import hint, one_of
from sunspot.settings import Settings
from sunspot.spec import RayClusterConfig
from sunspot.spec_values import Config, Text
from sunspot.stack_problems import wrong

PROJECT_FILE = "Pulumi.yaml"
NAMESPACE = "sunspot:"

# Config key -> field of Stack. Targets and Pulumi's providers have further keys.
KEYS = {
    "sunspot:target": "target",
    "sunspot:cluster": "cluster",
    "sunspot:image": "image",
    "sunspot:idle": "idle",
}

DEFAULT_DOCKERFILE = "Dockerfile"

# Pulumi's own rule for stack names; it also keeps a name from leaving the project's folder.
_MAX_STACK_NAME = 100
_STACK_NAME = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{_MAX_STACK_NAME - 1}}}")


def check_name(name: str) -> str:
    """Returns the name, if it is a stack name.

    Raises:
        UsageError: Pulumi would refuse the name.
    """
    if len(name) > _MAX_STACK_NAME:
        raise UsageError(
            f"{name[:20] + '...'!r} has {len(name)} characters, a stack name has at most "
            f"{_MAX_STACK_NAME}: shorten it"
        )
    if not _STACK_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a stack name: use letters, digits, hyphens, underscores and periods, "
            "no period first, as in Pulumi.<name>.yaml"
        )
    return name


def _target(name: str) -> str:
    known = registry.names()
    if name not in known:
        raise UsageError(f"{name!r} is not a target: choose {one_of(known)}{hint(name, known)}")
    return name


class Image(Config, frozen=True):
    """The container image of every node: a reference, or a folder to build one from.

    With neither, it is Ray's own image of the cluster's version. `vm_image` is the disk that the
    container runs on.
    """

    reference: Text | None = Field(
        default=None, description="image to pull", examples=["rayproject/ray:2.60.0"]
    )
    context: Text | None = Field(
        default=None, description="folder to build an image from (needs Docker where Pulumi runs)"
    )
    dockerfile: Text = Field(
        default=DEFAULT_DOCKERFILE,
        description="Dockerfile of that build, relative to the context",
    )
    vm_image: Text | None = Field(
        default=None,
        description="VM image of every node on Azure, by default plain Ubuntu: the id of an image "
        "in an Azure Compute Gallery, as `sunspot bake` prints it, or PUBLISHER:OFFER:SKU:VERSION",
    )
    mirror: bool = Field(
        default=True,
        strict=True,
        description="whether images of Docker Hub are copied into the stack's own registry, from "
        "which its nodes pull; where a target has one",
    )

    @model_validator(mode="after")
    def _check_one_way(self) -> Self:
        if self.reference is not None and self.context is not None:
            raise UsageError("reference and context are both given: keep one")
        if self.reference is not None and not re.fullmatch(r"[^\s@:][^\s]*", self.reference):
            raise UsageError(
                f"{self.reference!r} is not an image reference: write it without spaces"
            )
        if self.context is None and self.dockerfile != DEFAULT_DOCKERFILE:
            raise UsageError("dockerfile needs a context: give the folder to build from")
        return self


class Stack(Config, frozen=True):
    """One stack: the cluster, its target, and the settings of each target.

    `target` is where `sunspot up` runs it; registry.DEFAULT if the file does not name one.
    """

    name: Annotated[Text, AfterValidator(check_name)] = Field(
        description="name of the stack, as in Pulumi.<name>.yaml"
    )
    target: Annotated[Text, AfterValidator(_target)] = Field(
        default=registry.DEFAULT, description="where `sunspot up` runs the cluster"
    )
    cluster: Annotated[RayClusterConfig, AfterValidator(RayClusterConfig.with_names)] = Field(
        description="the cluster: a head_node, scaling_groups of workers"
    )
    image: Image = Field(default=Image(), description="the container image of the nodes")
    idle: Idle | None = Field(default=None, description="when it is idle, and what happens then")
    settings: Mapping[str, SerializeAsAny[Settings]] = Field(
        default={}, description="the settings of each target that has some, by the target's name"
    )

    @field_validator("idle", mode="before")
    @classmethod
    def _no_policy(cls, given: Any) -> Any:
        # Pulumi requires each declared key that has no default, and a default has its key's type.
        return None if given == {} else given

    @field_validator("settings", mode="before")
    @classmethod
    def _read_settings(cls, given: Mapping[str, Any]) -> Mapping[str, Settings]:
        """The settings from plain values, without those that equal the defaults."""
        kinds = registry.settings()
        if not isinstance(given, Mapping) or not given.keys() <= kinds.keys():
            raise ValueError(f"settings are of the targets {', '.join(kinds)}, not {given!r}")
        read = {name: kinds[name].model_validate(one) for name, one in given.items()}
        return {name: one for name, one in read.items() if one != kinds[name]()}

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], *, name: str, source: str | None = None) -> Self:
        """The stack that a `config:` mapping describes.

        Args:
            mapping: values by Pulumi's keys; keys of other namespaces are ignored. A value that
                is not text may also be JSON text, as Pulumi passes it to programs.
            name: the stack's name.
            source: what errors call the mapping, by default `Pulumi.<name>.yaml`.

        Raises:
            UsageError: the mapping is wrong; the message has every problem, one per line.
        """
        kinds = registry.settings()
        known = [*KEYS, *(key for kind in kinds.values() for key in kind.KEYS)]
        problems = [
            stack_problems.unknown_key(key, known, NAMESPACE)
            for key in mapping
            if key not in known and stack_problems.is_ours(key, known, NAMESPACE)
        ]
        of_targets: list[str] = []
        settings = {
            target: read
            for target, kind in kinds.items()
            if (read := _read(kind, kind.KEYS, mapping, of_targets)) is not None
        }
        stack = _read(cls, KEYS, mapping, problems, name=name, settings=settings)
        problems += of_targets
        if stack is None or problems:
            raise wrong(source or f"Pulumi.{name}.yaml", problems)
        return stack

    def with_settings(self, given: Settings) -> Self:
        """This stack with these settings instead of those of the same target."""
        target = next(name for name, kind in registry.settings().items() if kind is type(given))
        return self.model_copy(update={"settings": {**self.settings, target: given}})

    def with_cluster(self, cluster: RayClusterConfig) -> Self:
        """This stack with another cluster."""
        return self.model_copy(update={"cluster": cluster.with_names()})

    def for_target(self, target: str) -> Self:
        """This stack for another (or its own) target, with its nodes as that target needs them.

        Raises:
            UsageError: there is no such target, or it cannot provide some nodes; the message
                names them all.
        """
        problems: list[str] = []
        refuse_idle(self.idle, target)
        cluster = registry.fit(_target(target), self.cluster, problems)
        if problems:
            where = "config > sunspot:cluster"
            raise wrong(
                f"stack {self.name} on {target}", [f"{where} > {problem}" for problem in problems]
            )
        return self.model_copy(update={"target": target, "cluster": cluster})


M = TypeVar("M", bound=BaseModel)


def _read(
    model: type[M],
    keys: Mapping[str, str],
    mapping: Mapping[str, Any],
    problems: list[str],
    **others: Any,
) -> M | None:
    """The model from its keys of a stack file; None if it is wrong, with lines in `problems`."""
    given = {
        field: _decoded(mapping[key], model, field) for key, field in keys.items() if key in mapping
    }
    try:
        return model.model_validate(given | others)
    except ValidationError as error:
        problems += stack_problems.of_validation(error, model, keys)
        return None


def _decoded(value: Any, model: type[BaseModel], field: str) -> Any:
    """The value itself, or the content of its JSON text: Pulumi passes objects as text."""
    if not isinstance(value, str) or _is_text(model.model_fields[field].annotation):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value  # the field's validator reports it


def _is_text(annotation: Any) -> bool:
    """Whether a field of this type holds text, or text or None."""
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    if isinstance(annotation, type):
        return annotation is str
    return any(_is_text(part) for part in get_args(annotation)) and get_origin(annotation) not in (
        dict,
        tuple,
    )


def load(name: str, directory: Path | None = None) -> Stack:
    """The stack of `Pulumi.<name>.yaml`.

    Args:
        name: the stack's name.
        directory: the folder of the file; by default the working directory or the nearest folder
            above it that has the file, or else is a project's.

    Raises:
        UsageError: the file is wrong, and the message names it, each key and the fix; or there is
            no such stack, and the message lists the stacks.
    """
    if name.endswith((".yaml", ".yml")) and Path(name).is_file():
        raise UsageError(f"{name} is a file, not a stack: sunspot up --file {shlex.quote(name)}")
    check_name(name)
    folder = _directory_of(name) if directory is None else directory
    path = folder / f"Pulumi.{name}.yaml"
    if not path.is_file():
        raise UsageError(stack_problems.no_such_stack(name, folder, names(folder)))
    return Stack.parse(_config_block(path, _read_yaml(path)), name=name, source=str(path))


def load_file(path: Path, name: str | None = None) -> Stack:
    """The stack of any file: a stack file, or only the content of its `sunspot:cluster` block.

    Args:
        path: the file.
        name: the stack's name; by default the file's, without `Pulumi.` and the ending.

    Raises:
        UsageError: the file is missing or wrong, or its name is not a stack name.
    """
    document = _read_yaml(path)
    chosen = _name_of(path) if name is None else check_name(name)
    if problem := stack_problems.of_rays_file(document):
        raise wrong(str(path), [problem])
    if isinstance(document, dict) and "head_node" in document and "config" not in document:
        block = {"sunspot:target": registry.THIS_MACHINE, "sunspot:cluster": document}
    elif not (block := _config_block(path, document)):
        raise wrong(str(path), [stack_problems.NO_CLUSTER])
    return Stack.parse(block, name=chosen, source=str(path))


def _name_of(path: Path) -> str:
    """The name of a stack that has only a file."""
    try:
        return check_name(path.stem.removeprefix("Pulumi."))
    except UsageError as error:
        give = f"or give the cluster a name: sunspot up NAME --file {shlex.quote(str(path))}"
        raise UsageError(f"{error}; {give}") from None


def find(name: str) -> Stack | None:
    """The stack of that name, if its file is in the project or here. Raises as `load` does."""
    try:
        folder = _directory_of(name)
    except UsageError as error:
        if isinstance(error, UntrustedError) and (error.folder / f"Pulumi.{name}.yaml").is_file():
            raise
        return None
    return load(name, folder) if name in names(folder) else None


def names(directory: Path | None = None) -> list[str]:
    """The names of a project's stacks, sorted; by default of the working directory's project."""
    folder = project_directory() if directory is None else directory
    files = (path for path in folder.glob("Pulumi.*.yaml") if path.is_file())
    found = (path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in files)
    return sorted(name for name in found if _STACK_NAME.fullmatch(name))


def project_directory() -> Path:
    """The folder of the Pulumi project that the working directory is in.

    Raises:
        UsageError: neither it nor any folder above it has a Pulumi.yaml.
    """
    here = Path.cwd().resolve()
    if (folder := _nearest(here, PROJECT_FILE)) is None:
        raise UsageError(f"No {PROJECT_FILE} in {here} or above it: change to the project's folder")
    return folder


def _directory_of(name: str) -> Path:
    """Where a stack's file is, or should be: a cluster of this machine needs no project."""
    here = Path.cwd().resolve()
    found = _nearest(here, PROJECT_FILE, f"Pulumi.{name}.yaml")
    if found is None:
        raise UsageError(
            f"No {PROJECT_FILE} and no Pulumi.{name}.yaml in {here} or above it: change to the "
            f"project's folder, or give a file: sunspot up --file FILE{hint(name, names(here))}"
        )
    return found


def _nearest(here: Path, *files: str) -> Path | None:
    """The nearest folder, upwards, that has one of these files."""
    for folder in (here, *here.parents):
        if found := [file for file in files if (folder / file).is_file()]:
            return folder if folder == here else stack_problems.trusted(folder, found)
    return None


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a stack file's `sunspot:cluster` block."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(RayClusterConfig).json_schema(),
        "title": "The sunspot:cluster block of a Sunspot stack file",
    }


def _config_block(path: Path, document: Any) -> Mapping[str, Any]:
    """The `config:` mapping of a stack file's content. Its other keys are Pulumi's own."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise wrong(str(path), ["the file is not a mapping: begin it with `config:`"])
    if misplaced := stack_problems.beside_config(document):
        raise wrong(str(path), misplaced)
    block = document.get("config")
    if block is None:
        block = {}
    if not isinstance(block, dict):
        raise wrong(str(path), ["config: is not a mapping: indent `sunspot:cluster:` below it"])
    return {str(key): value for key, value in block.items()}


def _read_yaml(path: Path) -> Any:
    try:
        return yaml_files.load(path)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from error
    except yaml_files.TooLargeError as error:
        raise wrong(str(path), [str(error)]) from error
    except yaml.MarkedYAMLError as error:
        raise wrong(str(path), [stack_problems.of_yaml(error)]) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise wrong(str(path), [f"is not YAML: {' '.join(str(error).split())}"]) from error
