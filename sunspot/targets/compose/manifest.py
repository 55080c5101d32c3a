"""A plan as the text of a compose.yaml that a person can read, and Compose can run by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from sunspot import yaml_text
from sunspot.targets.compose import ray_nodes, secret_files, services
from sunspot.targets.compose.engine import OWNER_LABEL
from sunspot.targets.compose.mounts import Mode
from sunspot.targets.compose.plan import ComposePlan, Node

LOOPBACK = "127.0.0.1"

NODE, ENVIRONMENT, LABELS = "node", "environment", "labels"
"""The anchors of the blocks that services have in common."""

_HEADER = """\
# The cluster of the stack {stack!r} in Docker Compose, made by Sunspot.
#
# `sunspot up` starts it and `sunspot down` takes it down. Without Sunspot:
# `docker compose up --detach --wait`, with the variables that `secrets` names below set.
# Every port is open on the loopback address only.
"""


def text(plan: ComposePlan, ports: Mapping[str, int], owner: str) -> str:
    """The file; the same text for the same arguments.

    Args:
        plan: the plan.
        ports: the host's port for each port that is published, by its name.
        owner: the value of OWNER_LABEL of all that is made.
    """
    blocks = {
        f"x-{LABELS}": {OWNER_LABEL: owner, "sunspot.stack": plan.stack},
        f"x-{ENVIRONMENT}": ray_nodes.common_environment(plan),
        f"x-{NODE}": {LABELS: _merged(LABELS), **ray_nodes.common(plan)},
    }
    parts = [
        _HEADER.format(stack=plan.stack),
        *(f"# {note}.\n" for note in plan.notes),
        _dump({"name": plan.project}),
        *(_anchored(_dump({name: block}), name) for name, block in blocks.items()),
        "services:\n",
        *_services(plan, ports),
        _dump({"volumes": {name: {LABELS: _merged(LABELS)} for name in services.volumes(plan)}}),
        _dump({"networks": {"default": {LABELS: _merged(LABELS)}}}),
        _about_secrets(plan) + _dump({"secrets": _secrets(plan)}),
        "# What the containers get of Sunspot's own files. A dollar sign is doubled for Compose.\n",
        _dump({"configs": _configs(plan)}),
    ]
    return "\n".join(parts)


def _services(plan: ComposePlan, ports: Mapping[str, int]) -> Iterator[str]:
    """Each service with a comment above it."""
    published = services.published(plan)
    made: list[tuple[str, str, dict[str, Any]]] = [
        ("Gives the volumes to the containers' user, and ends.", "prepare", services.prepare(plan))
    ]
    if plan.settings.storage:
        made.append(("The object store, with one bucket.", "s3", services.s3(plan)))
    browser = f"http://{LOOPBACK}:{ports['grafana']}" if plan.settings.monitoring else None
    made += [(_about(plan, node), node.name, _node(plan, node, browser)) for node in plan.nodes]
    made += [(about, name, made) for name, (about, made) in services.beside_ray(plan).items()]
    for about, name, service in made:
        if name in published:
            service["ports"] = [
                f"{LOOPBACK}:{ports[port]}:{number}" for port, number in published[name].items()
            ]
        if "<<" not in service:
            service[LABELS] = _merged(LABELS)
        body = _dump({name: service})
        indented = "".join(f"  {line}" if line.strip() else line for line in body.splitlines(True))
        yield f"  # {about}\n{indented}"


def _node(plan: ComposePlan, node: Node, grafana: str | None) -> dict[str, Any]:
    """A Ray node's service, on top of what all nodes have."""
    own = ray_nodes.service(plan, node, grafana)
    own["environment"] = _merged(ENVIRONMENT) | own["environment"]
    needs = services.head_needs(plan) if node.is_head else {"depends_on": services.after_head()}
    build = {}
    if node.is_head and plan.build is not None:
        context = plan.build.context
        file = os.path.relpath(plan.build.dockerfile, context)
        build = {"build": {"context": str(context), "dockerfile": file}}
    volumes = [*needs.get("volumes", []), *ray_nodes.data_volumes(plan)]
    return {**_merged(NODE), **build, **own, **needs, **({"volumes": volumes} if volumes else {})}


def _about(plan: ComposePlan, node: Node) -> str:
    if node.is_head:
        return "The head: the GCS, the dashboard, the job API."
    gpus = f", with GPU {', '.join(node.gpus)}" if node.gpus else ""
    later = (
        "" if node.starts else f"; `sunspot scale --stack {plan.stack} {node.group}=N` starts it"
    )
    return f"A worker of the group {node.group}{gpus}{later}."


def _about_secrets(plan: ComposePlan) -> str:
    """A comment: what the variables of the secrets must have."""
    lines = ["From variables of the command's environment, each with a text of your own."]
    if plan.settings.storage:
        key, file = (
            secret_files.VARIABLES[name]
            for name in (secret_files.S3_SECRET_KEY, secret_files.S3_CREDENTIALS)
        )
        lines += [
            f"{file} has what AWS calls a credentials file: [default], then",
            f"aws_access_key_id = {secret_files.S3_ACCESS_KEY}, and as aws_secret_access_key",
            f"the text of {key}.",
        ]
    return "".join(f"# {line}\n" for line in lines)


def _secrets(plan: ComposePlan) -> dict[str, dict[str, str]]:
    unused = (
        set()
        if plan.settings.storage
        else {
            secret_files.S3_SECRET_KEY,
            secret_files.S3_CREDENTIALS,
        }
    )
    unused |= set() if plan.jupyter else {secret_files.JUPYTER_TOKEN}
    return {
        name: {"environment": variable}
        for name, variable in secret_files.VARIABLES.items()
        if name not in unused
    }


def _configs(plan: ComposePlan) -> dict[str, dict[str, str]]:
    texts = services.config_texts(plan)
    return {name: {"content": content} for name, content in texts.items()}


# YAML


def _merged(anchor: str) -> dict[str, Any]:
    """A merge of a common block, which `_dump` writes as YAML's `<<: *anchor`."""
    return {"<<": _Alias(anchor)}


class _Alias(str):
    """The name of an anchor, written as an alias of it."""

    __slots__ = ()


def _anchored(block: str, name: str) -> str:
    """A block's text with its anchor: `x-node: &node`."""
    return block.replace(f"{name}:", f"{name}: &{name.removeprefix('x-')}", 1)


def _dump(value: Mapping[str, Any]) -> str:
    dumped = yaml_text.dump(_escaped(value), _Dumper)
    for anchor in (NODE, ENVIRONMENT, LABELS):
        dumped = dumped.replace(f"'<<': '*{anchor}'", f"<<: *{anchor}")
    return dumped


def _escaped(value: Any) -> Any:
    """The value with each dollar sign doubled, since Compose would put variables there."""
    if isinstance(value, Mapping):
        return {name: _escaped(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    if isinstance(value, _Alias):
        return f"*{value}"
    return value.replace("$", "$$") if isinstance(value, str) else value


class _Dumper(yaml_text.Dumper):
    """Also writes a file's mode in octal digits."""


def _represent_mode(dumper: yaml.SafeDumper, mode: Mode) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:int", f"0{mode:o}")


_Dumper.add_representer(Mode, _represent_mode)
