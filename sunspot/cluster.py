"""`RayCluster`: a cluster for the length of a `with` block.

    node = RayNodeConfig(cpu=2, memory_gb=4)
    with RayCluster(config=SimpleRayCluster(n_nodes=3, node_config=node)):
        ray.get(task.remote())

The body starts when every minimum worker is up and `ray.init` is done: on the head's own address
where that can be reached from here, through Ray Client where only SSH leads there. The cluster is
taken away after the body, after an exception, and after Ctrl-C, also one that comes while it is
starting. A stack of the project, with all that its file says: `RayCluster.from_stack("hybrid")`.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError
from sunspot.signals import uninterrupted
from sunspot.spec import RayClusterConfig
from sunspot.stack import Stack, check_name
from sunspot.targets import registry
from sunspot.targets.protocol import ClusterHandle, NodeStatus, silent

logger = logging.getLogger(__name__)

# Ray's log monitor reads the workers' files every 0.1 to 0.5 s; what they printed last must arrive.
LOG_DRAIN_S = 1.0
WATCH_INTERVAL_S = 1.0


class ResourceState(enum.Enum):
    """The states of a cluster's life, named as in Sematic."""

    CREATED = "CREATED"
    ACTIVATING = "ACTIVATING"
    ACTIVE = "ACTIVE"
    DEACTIVATING = "DEACTIVATING"
    DEACTIVATED = "DEACTIVATED"
    FORCE_KILLED = "FORCE_KILLED"

    def is_terminal(self) -> bool:
        return self in {ResourceState.DEACTIVATED, ResourceState.FORCE_KILLED}


_S = ResourceState
ALLOWED_TRANSITIONS: Mapping[ResourceState, frozenset[ResourceState]] = {
    _S.CREATED: frozenset({_S.ACTIVATING, _S.DEACTIVATING, _S.DEACTIVATED, _S.FORCE_KILLED}),
    # ACTIVE -> ACTIVE is a new message: a worker was lost, or came back.
    _S.ACTIVATING: frozenset({_S.ACTIVATING, _S.ACTIVE, _S.DEACTIVATING, _S.FORCE_KILLED}),
    _S.ACTIVE: frozenset({_S.ACTIVE, _S.DEACTIVATING, _S.FORCE_KILLED}),
    _S.DEACTIVATING: frozenset({_S.DEACTIVATING, _S.DEACTIVATED, _S.FORCE_KILLED}),
    _S.DEACTIVATED: frozenset(),
    _S.FORCE_KILLED: frozenset(),
}

StateCallback = Callable[[ResourceState, str], None]


class IllegalStateTransitionError(SunspotError):
    """A cluster was asked to go from one state to another that cannot follow it."""


class ExternalResourceError(SunspotError):
    """The cluster could not be activated or deactivated; the message ends with its last word."""


class RayCluster:
    """A Ray cluster that lives as long as the `with` block.

    Args:
        config: what the cluster is made of; see SimpleRayCluster for the common case.
        forward_logs: print what tasks and actors print (`log_to_driver` of `ray.init`).
        activation_timeout_seconds: how long every minimum worker may take to come up.
        deactivation_timeout_seconds: how long the cluster may take to go.
        target: where it runs; by default on this machine, as processes.
        name: how `sunspot status` calls it; made up by default.
        on_state: called with each new state and its message, from whichever thread it happens in.

    Raises:
        UsageError: no config, a number that is not positive, a target that does not exist, or one
            that needs more than a config says (see `from_stack`).
    """

    def __init__(
        self,
        *,
        config: RayClusterConfig,
        forward_logs: bool = True,
        activation_timeout_seconds: float = 900.0,
        deactivation_timeout_seconds: float = 300.0,
        target: str = registry.THIS_MACHINE,
        name: str | None = None,
        on_state: StateCallback | None = None,
    ) -> None:
        if not isinstance(config, RayClusterConfig):
            raise UsageError(f"config must be a RayClusterConfig, not {config!r}")
        self._begin(
            _described(config, name).for_target(target),
            forward_logs=forward_logs,
            activation_timeout_seconds=activation_timeout_seconds,
            deactivation_timeout_seconds=deactivation_timeout_seconds,
            on_state=on_state,
        )

    @classmethod
    def from_stack(
        cls,
        stack: str | Stack,
        *,
        forward_logs: bool = True,
        activation_timeout_seconds: float = 900.0,
        deactivation_timeout_seconds: float = 300.0,
        target: str | None = None,
        on_state: StateCallback | None = None,
    ) -> Self:
        """The cluster of a stack: "hybrid" for Pulumi.hybrid.yaml, with all that the file says.

        `target` runs it elsewhere than the file says. The rest is as for a config. Raises
        UsageError as `sunspot.stack.load` does, and with all that the target would refuse.
        """
        loaded = stacks.load(stack) if isinstance(stack, str) else stack
        made = cls.__new__(cls)
        made._begin(
            loaded.for_target(target or loaded.target),
            forward_logs=forward_logs,
            activation_timeout_seconds=activation_timeout_seconds,
            deactivation_timeout_seconds=deactivation_timeout_seconds,
            on_state=on_state,
        )
        return made

    def _begin(
        self,
        stack: Stack,
        *,
        forward_logs: bool,
        activation_timeout_seconds: float,
        deactivation_timeout_seconds: float,
        on_state: StateCallback | None,
    ) -> None:
        for argument, seconds in (
            ("activation_timeout_seconds", activation_timeout_seconds),
            ("deactivation_timeout_seconds", deactivation_timeout_seconds),
        ):
            if not seconds > 0:  # refuses NaN as well
                raise UsageError(f"{argument} must be more than 0 s, not {seconds!r}")
        self._target = registry.get(stack.target)
        self._target.check(stack)
        self._stack = stack
        self._forward_logs = forward_logs
        self._activation_timeout_s = activation_timeout_seconds
        self._deactivation_timeout_s = deactivation_timeout_seconds
        self._on_state = on_state
        self._state, self._message = ResourceState.CREATED, f"Cluster {stack.name} is described."
        self._handle: ClusterHandle | None = None
        self._leave = contextlib.ExitStack()
        self._moving = threading.Lock()

    @property
    def name(self) -> str:
        return self._stack.name

    @property
    def config(self) -> RayClusterConfig:
        return self._stack.cluster

    @property
    def state(self) -> ResourceState:
        return self._state

    @property
    def message(self) -> str:
        """What happened last, for people."""
        return self._message

    @property
    def handle(self) -> ClusterHandle:
        """How to reach the cluster. Raises SunspotError outside the `with` block."""
        if self._handle is None:
            raise SunspotError(f"cluster {self.name} is {self._state.value}; it has no address now")
        return self._handle

    def nodes(self) -> list[NodeStatus]:
        """The cluster's nodes, lost ones among them."""
        return self._target.nodes(self.name)

    def __enter__(self) -> Self:
        import ray

        if ray.is_initialized():
            raise SunspotError(
                "Ray is initialised in this process already, perhaps with another cluster; call "
                "ray.shutdown() before the with block"
            )
        if self.name in self._target.names():
            raise SunspotError(
                f"a cluster named {self.name!r} is up already, and would end with this block; give "
                f"another name, or take it down: sunspot down {self.name}"
            )
        self._move(ResourceState.ACTIVATING, f"Starting Ray cluster {self.name}.")
        try:
            self._handle = self._activate()
            self._connect(self._handle)
            self._move(ResourceState.ACTIVE, f"Ray cluster {self.name} is ready.")
            self._leave.enter_context(_watch(self))
        except BaseException as error:
            self._deactivate(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._deactivate(error)

    def _activate(self) -> ClusterHandle:
        def progress(step: str) -> None:
            self._move(ResourceState.ACTIVATING, step)

        try:
            return self._target.up(
                self._stack, progress, timeout_s=self._activation_timeout_s
            ).handle
        except SunspotError as error:
            raise ExternalResourceError(f"Could not activate {self.name}: {error}") from error

    def _connect(self, handle: ClusterHandle) -> None:
        import ray

        if handle.driver_address is None:
            raise ExternalResourceError(
                f"No driver reaches {self.name} from this machine. Run the program as a job: "
                f"sunspot submit --stack {self.name} -- python PROGRAM.py"
            )
        self._leave.enter_context(_environment(handle.environment()))
        self._leave.enter_context(_without_scheduler_events())
        _reload_authentication()
        try:
            ray.init(
                address=handle.driver_address,
                log_to_driver=self._forward_logs,
                logging_level=logging.WARNING,
            )
        except (ConnectionError, RuntimeError) as error:
            # Ray Client's own words hold both versions, where they differ.
            raise ExternalResourceError(f"Could not connect to {self.name}: {error}") from error

    def _deactivate(self, error: BaseException | None) -> None:
        """Takes the cluster away. What goes wrong here never hides the body's own error."""
        with uninterrupted():
            try:
                self._move(ResourceState.DEACTIVATING, f"Taking down Ray cluster {self.name}.")
            finally:
                self._end(error)

    def _end(self, error: BaseException | None) -> None:
        try:
            self._disconnect()
            self._take_down()
        except Exception as problem:
            self._move(ResourceState.FORCE_KILLED, str(problem))
            if error is None:
                raise
            error.add_note(f"besides, sunspot could not take down cluster {self.name}: {problem}")
            logger.exception("Could not take down cluster %s", self.name)
        else:
            self._move(ResourceState.DEACTIVATED, f"Ray cluster {self.name} is gone.")
        finally:
            self._handle = None

    def _disconnect(self) -> None:
        import ray

        if self._forward_logs and ray.is_initialized():
            time.sleep(LOG_DRAIN_S)
        try:
            ray.shutdown()
        except Exception:  # a driver that cannot say goodbye must not keep the cluster alive
            logger.exception("ray.shutdown failed")
        self._leave.close()
        _reload_authentication()

    def _take_down(self) -> None:
        finished = threading.Event()
        problems: list[BaseException] = []

        def down() -> None:
            try:
                removal = self._target.down(self.name, silent)
                if removal is not None:
                    removal.check(self.name)
            except BaseException as error:
                problems.append(error)
            finally:
                finished.set()

        threading.Thread(target=down, name=f"down-{self.name}", daemon=True).start()
        if not finished.wait(self._deactivation_timeout_s):
            raise ExternalResourceError(
                f"Timed out deactivating {self.name} after {self._deactivation_timeout_s:g} s; "
                f"look with: sunspot status {self.name}"
            )
        if problems:
            raise ExternalResourceError(
                f"Could not deactivate {self.name}: {problems[0]}"
            ) from problems[0]

    def _move(self, state: ResourceState, message: str) -> None:
        with self._moving:
            self._check_move(state)
            self._state, self._message = state, message
        if self._on_state:
            self._on_state(state, message)

    def _check_move(self, state: ResourceState) -> None:
        if state not in ALLOWED_TRANSITIONS[self._state]:
            raise IllegalStateTransitionError(
                f"cluster {self.name} is {self._state.value} and cannot become {state.value}; "
                f"make a new RayCluster for another block"
            )

    def _tell_losses(self, lost: set[str], running: int) -> None:
        message = f"Lost {', '.join(sorted(lost))}; {running} nodes go on."
        with contextlib.suppress(IllegalStateTransitionError):  # the block has just ended
            self._move(ResourceState.ACTIVE, message)
            logger.warning(message)


def _described(config: RayClusterConfig, name: str | None) -> Stack:
    """The stack of a config; under the name of a stack file, with that file's settings."""
    if name is None:
        return Stack(name=f"ray-{uuid.uuid4().hex[:8]}", cluster=config)
    declared = stacks.find(check_name(name))
    if declared is None:
        return Stack(name=name, cluster=config)
    return declared.model_copy(update={"cluster": config})


@contextlib.contextmanager
def _watch(cluster: RayCluster) -> Iterator[None]:
    """Tells of nodes that die while the body runs; the cluster goes on without them."""
    stop = threading.Event()

    def watch() -> None:
        known: set[str] = set()
        while not stop.wait(WATCH_INTERVAL_S):
            with contextlib.suppress(OSError, ValueError, SunspotError):
                nodes = cluster.nodes()
                lost = {node.name for node in nodes if node.state == "lost"}
                if lost - known:
                    cluster._tell_losses(lost - known, len(nodes) - len(lost))
                known |= lost

    thread = threading.Thread(target=watch, name=f"watch-{cluster.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for the length of the block, without a RAY_AUTH_TOKEN that would win."""
    names = {*variables, "RAY_AUTH_TOKEN"}
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextlib.contextmanager
def _without_scheduler_events() -> Iterator[None]:
    """Keeps Ray from printing, each second, that what waits on a full cluster cannot be placed.

    The variable for that, RAY_SCHEDULER_EVENTS, is read when Ray is imported (2.60): too early.
    """
    from ray._private import ray_constants

    before = ray_constants.AUTOSCALER_EVENTS
    ray_constants.AUTOSCALER_EVENTS = 0
    try:
        yield
    finally:
        ray_constants.AUTOSCALER_EVENTS = before


def _reload_authentication() -> None:
    """Makes Ray read RAY_AUTH_MODE and the token anew.

    It keeps those that it saw first: the mode since its library was loaded, the token since it
    was first used (ray/_private/authentication/authentication_token_setup.py, 2.60).
    """
    from ray import _raylet

    raylet: Any = _raylet  # shipped without types
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
