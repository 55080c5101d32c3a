"""What a run of a registry's task does, step by step, as ACR Tasks would ("reference: YAML")."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

# Azure's rule for the name of a run (REST API, registries/taskRuns, 2019-06-01-preview).
RUN_NAME = re.compile(r"[a-zA-Z0-9-]{5,50}")
STEP_KEYS = {"cmd", "push", "retries", "retryDelay"}
MOST_SECONDS = 28_800  # of a run


class BadTaskError(Exception):
    """The run would fail."""


@dataclass
class Ran:
    """What the run asked other registries for, and what its own registry has then.

    `pulls` are the references in their order; `images` are the registry's names, without its host,
    and the reference that each is a copy of.
    """

    pulls: list[str] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)


def steps_of(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of a run, from the inputs of its resource."""
    request = inputs["runRequest"]
    if not RUN_NAME.fullmatch(inputs["taskRunName"]):
        raise BadTaskError(f"not a name of a run: {inputs['taskRunName']!r}")
    if request["type"] != "EncodedTaskRunRequest" or request["platform"]["os"] != "Linux":
        raise BadTaskError(f"not a run of a task on Linux: {request}")
    content = base64.b64decode(request["encodedTaskContent"], validate=True)
    document = yaml.safe_load(content)
    if not document["stepTimeout"] <= request["timeout"] <= MOST_SECONDS:
        raise BadTaskError(f"a step of {document['stepTimeout']} s in {request['timeout']} s")
    for step in document["steps"]:
        if not step.keys() <= STEP_KEYS or ("cmd" in step) == ("push" in step):
            raise BadTaskError(f"not a step: {step}")
    return document["steps"]


def run(inputs: Mapping[str, Any]) -> Ran:
    """Runs the steps, with nothing but names."""
    done = Ran()
    tagged: dict[str, str] = {}
    for step in steps_of(inputs):
        match step.get("cmd", "").split():
            case ["docker", "pull", "--quiet", source]:
                done.pulls.append(source)
            case ["docker", "tag", source, name] if source in done.pulls:
                tagged[name] = source
            case []:
                for name in step["push"]:
                    host, _, ours = name.partition("/")
                    if host != "$Registry" or name not in tagged:
                        raise BadTaskError(f"cannot push {name}")
                    done.images[ours] = tagged[name]
            case command:
                raise BadTaskError(f"cannot run {command}")
    return done
