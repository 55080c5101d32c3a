"""Stand-ins for what `RayCluster` uses: a target that does as it is told, and Ray."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets.protocol import NodeStatus, Removal, Up

VARIABLES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")


def node(name, state):
    """A node for `FakeTarget.found`."""
    return NodeStatus(name=name, group="g", market="spot", state=state, cpus=1, gpus=0, memory_gb=2)


@dataclass
class FakeTarget:
    """A target whose clusters are a list of calls."""

    token: Path
    name: str = "fake"
    up_error: BaseException | None = None
    down_error: BaseException | None = None
    down_waits_for: threading.Event | None = None
    calls: list[str] = field(default_factory=list)
    found: list[NodeStatus] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    driver_address: str | None = "127.0.0.1:1"
    was_up: bool = False
    step: str = "one node is up"

    def check(self, _stack):
        pass

    def names(self):
        return self.taken

    def discover(self, name):
        return name in self.taken

    def up(self, stack, progress, *, timeout_s=900.0, **_ports):
        self.calls.append(f"up {timeout_s:g}")
        self.stacks.append(stack)
        self.record(stack.name)
        progress(self.step)
        if self.up_error:
            raise self.up_error
        handle = ClusterHandle(
            name=stack.name,
            target=self.name,
            head_address="127.0.0.1:1",
            driver_address=self.driver_address,
            job_address="http://127.0.0.1:2",
            token_path=self.token,
        )
        return Up(handle, was_up=self.was_up)

    def record(self, name):
        """As targets do before they create anything."""
        self.taken = [*{*self.taken, name}]

    def down(self, name, _progress):
        self.calls.append("down")
        if self.down_waits_for:
            self.down_waits_for.wait(30)
        if self.down_error:
            raise self.down_error
        self.taken = [one for one in self.taken if one != name or self.left]
        return Removal(looked_for="thing", left=self.left)

    def nodes(self, name, progress=None):  # noqa: ARG002 - as the protocol names them
        return self.found


@dataclass
class FakeRay:
    """What was asked of Ray, and the environment when it was."""

    initialized: bool = False
    init_error: BaseException | None = None
    init_errors: list[BaseException] = field(default_factory=list)
    calls: list[dict] = field(default_factory=list)
    environments: list[dict[str, str | None]] = field(default_factory=list)

    def init(self, **arguments):
        self.calls.append(arguments)
        self.environments.append({n: os.environ.get(n) for n in (*VARIABLES, "RAY_AUTH_TOKEN")})
        if self.init_error:
            raise self.init_error
        if self.init_errors:
            raise self.init_errors.pop()

    def shutdown(self):
        pass
