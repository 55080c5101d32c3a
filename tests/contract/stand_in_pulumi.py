"""Pulumi's command, as far as Sunspot uses it, over the stand-in for Azure in its own module.

As the real one does (tests/real/engine shows it):

- its state outlives it, and holds what was made until the moment that it ended;
- it locks a stack while it changes it; a killed one leaves the lock, and the next one refuses;
- it does not delete what is protected, nor what that needs; a preview changes nothing;
- an interrupt lets it end the step that it is at; then it fails, and the lock is gone;
- where nobody reads what it prints, it is killed by that.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from azure_model.pulumi_state import exported, group, machine, resource
from azure_model.resource_ids import resource_id
from stand_in_azure import PRIVATE_ADDRESS, Group

STATE = "CONTRACT_PULUMI"
"""The environment variable with the folder of its state."""

KEY = "CONTRACT_KEY"
"""The environment variable with the private key that heads take the public half of."""

# Of before its events went by gRPC.
VERSION = "v3.200.0"
SCALE_SET_TYPE = "azure-native:compute:VirtualMachineScaleSet"
DATE = "2026-01-01T00:00:00.000Z"
# Long enough to be seen, and to be interrupted.
STEP_S = 0.3

Planned = Callable[[], dict[str, Any]]
"""Tells of a resource, with what is known of it before and after it was made."""


@dataclass(frozen=True)
class State:
    """What is remembered of a stack."""

    stack: str

    @property
    def file(self) -> Path:
        return Path(os.environ[STATE]) / f"{self.stack}.json"

    @property
    def lock(self) -> Path:
        return self.file.with_suffix(".lock")

    def read(self) -> dict[str, Any]:
        """Its resources and outputs. Exits where there is no such stack."""
        try:
            return json.loads(self.file.read_text())
        except FileNotFoundError:
            sys.exit(f"error: no stack named '{self.stack}' found")

    def write(self, resources: list[dict[str, Any]], outputs: dict[str, Any]) -> None:
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps({"resources": resources, "outputs": outputs}))
        written.replace(self.file)

    def unprotect(self, urn: str) -> None:
        known = self.read()
        for one in known["resources"]:
            one["protect"] = one["protect"] and urn not in {one["urn"], "--all"}
        self.write(**known)

    @contextmanager
    def locked(self) -> Iterator[None]:
        if self.lock.exists():
            sys.exit(
                "error: the stack is currently locked by 1 lock(s). Either wait for the other "
                "process(es) to end or delete the lock file with `pulumi cancel`.\n"
                f"  {self.lock.as_uri()}: {self.lock.read_text()}"
            )
        who = f"created by someone@{socket.gethostname()} (pid {os.getpid()})"
        self.lock.write_text(f"{who} at {DATE}")
        try:
            yield
        finally:
            self.lock.unlink()


class Update:
    """An `up` or a `destroy`: its steps, what it tells of them, and whether it was interrupted."""

    def __init__(self, stack: str, events: str) -> None:
        self.state, self.group = State(stack), Group(stack)
        self._events = Path(events)
        self._interrupted = False
        signal.signal(signal.SIGINT, self._interrupt)
        # As a Go program's, where a write to stdout fails.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def up(self) -> None:
        there = {one["type"]: one for one in self.state.read()["resources"]}
        steps: tuple[tuple[Planned, Callable[[], None]], ...] = (
            (self._group, lambda: self.group.folder.mkdir()),
            (self._machine, lambda: self.group.make_head(Path.cwd(), Path(os.environ[KEY]))),
            (self._workers, lambda: None),  # they boot with their head
        )
        for planned, make in steps:
            kind = planned()["type"]
            if kind not in there:
                with self._step("create", planned()):
                    make()
            there[kind] = planned()
            self.state.write(list(there.values()), self._outputs())

    def preview(self) -> None:
        """Tells that nothing would be replaced, as this program never does."""
        self.state.read()
        self._write({"summaryEvent": {"durationSeconds": 0, "resourceChanges": {}}})

    def destroy(self, *, exclude_protected: bool) -> None:
        there = self.state.read()["resources"]
        protected = [number for number, one in enumerate(there) if one["protect"]]
        if protected and not exclude_protected:
            sys.exit(f'error: resource "{there[protected[-1]]["urn"]}" cannot be deleted')
        kept = there[: protected[-1] + 1] if protected else []
        while len(there) > len(kept):
            with self._step("delete", there.pop()):
                if not there:
                    self.group.delete()
            self.state.write(there, {})

    @contextmanager
    def _step(self, operation: str, planned: dict[str, Any]) -> Iterator[None]:
        if self._interrupted:
            sys.exit("error: update canceled")
        metadata = {"op": operation, "urn": planned["urn"], "type": planned["type"]}
        self._tell("resourcePreEvent", metadata)
        time.sleep(STEP_S)
        yield
        self._tell("resOutputsEvent", metadata)

    def _tell(self, kind: str, metadata: dict[str, Any]) -> None:
        self._write({kind: {"metadata": metadata}})
        print(f"{metadata['urn']}: {kind} {metadata['op']}", flush=True)

    def _write(self, event: dict[str, Any]) -> None:
        with self._events.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True

    def _group(self) -> dict[str, Any]:
        return group(self.group.name)

    def _machine(self) -> dict[str, Any]:
        head = self.group.head()
        return machine("" if head is None else head.machine, cluster=self.group.name)

    def _workers(self) -> dict[str, Any]:
        inputs = {"resourceGroupName": self.group.name, "vmScaleSetName": "workers"}
        return resource(SCALE_SET_TYPE, resource_id("VirtualMachineScaleSet", inputs))

    def _outputs(self) -> dict[str, Any]:
        head = self.group.head()
        if head is None:
            return {}
        return {
            "head_private_ip": PRIVATE_ADDRESS,
            "job_address": f"http://127.0.0.1:{head.dashboard}",
            "resource_group": self.group.name,
            "ssh_command": head.ssh_command,
        }


def main(*arguments: str) -> None:
    """What `pulumi ARGUMENTS` does and prints."""
    given = dict(pairwise(arguments))
    match arguments:
        case ["version"]:
            print(VERSION)
        case ["stack", *words]:
            _stack(words, given)
        case ["state", "unprotect", urn, *_]:
            State(given["--stack"]).unprotect(urn)
        case ["cancel", *_]:
            State(given["--stack"]).lock.unlink(missing_ok=True)
        case ["preview", *_]:
            Update(given["--stack"], given["--event-log"]).preview()
        case [("up" | "destroy") as operation, *_]:
            update = Update(given["--stack"], given["--event-log"])
            with update.state.locked():
                if operation == "up":
                    update.up()
                else:
                    update.destroy(exclude_protected="--exclude-protected" in arguments)
        case _:
            sys.exit(f"error: unknown command {arguments}")


def _stack(words: list[str], given: dict[str, str]) -> None:
    """What `pulumi stack WORDS` does and prints."""
    match words:
        case ["init", name]:
            State(name).file.parent.mkdir(parents=True, exist_ok=True)
            State(name).write([], {})
        case ["select", *_]:
            State(given["--stack"]).read()
        case ["export", *_]:
            state = State(given["--stack"]).read()
            print(json.dumps(exported(*state["resources"], **state["outputs"])))
        case ["rm", *_]:
            State(given["--stack"]).read()
            State(given["--stack"]).file.unlink()
            Path(f"Pulumi.{given['--stack']}.yaml").unlink(missing_ok=True)
        case ["output", *_]:
            print(json.dumps(State(given["--stack"]).read()["outputs"]))
        case ["history", *_]:
            print(json.dumps([_HISTORY]))
        case _:
            sys.exit(f"error: unknown command stack {words}")


_HISTORY = {
    "kind": "update",
    "startTime": DATE,
    "endTime": DATE,
    "message": "",
    "environment": {},
    "config": {},
    "result": "succeeded",
}


if __name__ == "__main__":
    main(*(word for word in sys.argv[1:] if word != "--non-interactive"))
