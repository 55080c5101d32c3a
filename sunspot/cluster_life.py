"""The one life of a `RayCluster`: from its start to its end, whatever happens."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from sunspot.cluster_states import (
    ALLOWED_TRANSITIONS,
    ExternalResourceError,
    IllegalStateTransitionError,
    ResourceState,
    ResourceStatus,
    StateCallback,
)
from sunspot.errors import SunspotError
from sunspot.ray import driver
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import terminating, uninterrupted
from sunspot.stack import Stack
from sunspot.targets import clusters
from sunspot.targets.protocol import NodeStatus, silent
from sunspot.targets.starting import Start, take_down

logger = logging.getLogger(__name__)

# Ray's log monitor reads the workers' files every 0.1 to 0.5 s; their last lines must arrive.
LOG_DRAIN_S = 1.0
WATCH_INTERVAL_S = 1.0


class ClusterLife:
    """A cluster from its description to its end. The arguments are those of `RayCluster`.

    Attributes:
        stack: the stack that the target runs.
        status: the state now, and its message.
    """

    def __init__(
        self,
        stack: Stack,
        *,
        forward_logs: bool,
        activation_timeout_seconds: float,
        deactivation_timeout_seconds: float,
        on_state: StateCallback | None,
    ) -> None:
        self._target = clusters.get(stack.target)
        self._target.check(stack)
        self.stack = stack
        self.status = ResourceStatus(
            state=ResourceState.CREATED, message=f"Cluster {stack.name} is described."
        )
        self._forward_logs = forward_logs
        self._activation_timeout_s = activation_timeout_seconds
        self._deactivation_timeout_s = deactivation_timeout_seconds
        self._on_state = on_state
        self._handle: ClusterHandle | None = None
        self._leave = contextlib.ExitStack()
        self._signals = contextlib.ExitStack()
        self._moving = threading.Lock()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.stack.name

    @property
    def handle(self) -> ClusterHandle:
        """As `RayCluster.handle`."""
        if self._handle is None:
            state = self.status.state.value
            raise SunspotError(f"cluster {self.name} is {state}; it has no address now")
        return self._handle

    def nodes(self) -> list[NodeStatus]:
        """The cluster's nodes, including lost ones."""
        return self._target.nodes(self.name)

    def begin(self) -> None:
        """Brings the cluster up and connects this process to it; what fails is taken away."""
        import ray

        if ray.is_initialized():
            raise SunspotError(
                "Ray is initialised in this process already, so the block's work would go there, "
                f"not to cluster {self.name}; call ray.shutdown() before the with block"
            )
        if self.name in self._target.names():
            raise self._is_up_already()
        self._move(ResourceState.ACTIVATING, f"Starting Ray cluster {self.name}.")
        start = Start(self._target, self.stack)
        self._signals.enter_context(terminating())
        try:
            self._handle = self._activate(start)
            self._connect(self._handle)
            self._move(ResourceState.ACTIVE, f"Ray cluster {self.name} is ready.")
            self._leave.enter_context(self._watch())
        except BaseException as error:
            if start.is_ours:
                self.end(error)
            else:
                self._leave_to_owner()
            raise

    def _leave_to_owner(self) -> None:
        with self._signals:
            owner = f"Leaving {self.name} to its owner, if it has one."
            self._move(ResourceState.DEACTIVATING, owner)
            self._move(ResourceState.DEACTIVATED, f"Nothing of {self.name} was started here.")

    def _is_up_already(self) -> SunspotError:
        return SunspotError(
            f"a cluster named {self.name!r} is up already, and would end with this block; give "
            f"another name, or take it down: sunspot down {self.name}"
        )

    def _activate(self, start: Start) -> ClusterHandle:
        def progress(step: str) -> None:
            self._move(ResourceState.ACTIVATING, step)

        try:
            started = start.up(progress, timeout_s=self._activation_timeout_s)
        except SunspotError as error:
            raise ExternalResourceError(f"Could not activate {self.name}: {error}") from error
        if started.was_up:  # another process brought it up meanwhile, and still uses it
            raise self._is_up_already()
        return started.handle

    def _connect(self, handle: ClusterHandle) -> None:
        if handle.driver_address is None:
            raise ExternalResourceError(
                f"No driver reaches {self.name} from this machine. Run the program as a job: "
                f"sunspot submit --stack {self.name} -- python PROGRAM.py"
            )
        self._leave.enter_context(driver.environment(handle.environment()))
        self._leave.enter_context(driver.without_scheduler_events())
        driver.reload_authentication()
        try:
            driver.connect(handle.driver_address, forward_logs=self._forward_logs)
        except (ConnectionError, RuntimeError) as error:
            # If the versions of Ray or Python differ, Ray Client's own message names both.
            raise ExternalResourceError(f"Could not connect to {self.name}: {error}") from error

    def end(self, error: BaseException | None) -> None:
        """Takes the cluster down. A failure of that never hides the body's own error."""
        with self._signals, uninterrupted():
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
            error.add_note(f"in addition, cluster {self.name} could not be taken down: {problem}")
            logger.exception("Could not take down cluster %s", self.name)
        else:
            self._move(ResourceState.DEACTIVATED, f"Ray cluster {self.name} is down.")
        finally:
            self._handle = None

    def _disconnect(self) -> None:
        import ray

        if self._forward_logs and ray.is_initialized():
            time.sleep(LOG_DRAIN_S)
        try:
            ray.shutdown()
        except Exception:  # a failed shutdown of the driver must not keep the cluster alive
            logger.exception("ray.shutdown failed")
        self._leave.close()
        driver.reload_authentication()

    def _take_down(self) -> None:
        finished = threading.Event()
        problems: list[BaseException] = []

        def down() -> None:
            try:
                removal = take_down(self._target, self.name, silent)
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
                f"see what is left: sunspot status {self.name}, and go on: sunspot down {self.name}"
            )
        if problems:
            raise ExternalResourceError(
                f"Could not deactivate {self.name}: {problems[0]}"
            ) from problems[0]

    def _move(self, state: ResourceState, message: str) -> None:
        with self._moving:
            self._check_move(state)
            self.status = ResourceStatus(state=state, message=message)
        if self._on_state:
            self._on_state(state, message)

    def _check_move(self, state: ResourceState) -> None:
        now = self.status.state
        if state not in ALLOWED_TRANSITIONS[now]:
            raise IllegalStateTransitionError(
                f"cluster {self.name} is {now.value} and cannot become {state.value}; "
                "make a new RayCluster for another block"
            )

    def _report_losses(self, lost: set[str], running: int) -> None:
        # A terminal would obey what is in a name; whoever has the token may choose one.
        names = ", ".join(one if one.isprintable() else ascii(one) for one in sorted(lost))
        message = f"Lost {names}; {running} nodes are left."
        with contextlib.suppress(IllegalStateTransitionError):  # the block has just ended
            self._move(ResourceState.ACTIVE, message)
            logger.warning(message)

    @contextlib.contextmanager
    def _watch(self) -> Iterator[None]:
        """Reports nodes that die while the body runs; the cluster goes on without them."""
        stop = threading.Event()

        def watch() -> None:
            known: set[str] = set()
            while not stop.wait(WATCH_INTERVAL_S):
                with contextlib.suppress(OSError, ValueError, SunspotError):
                    nodes = self.nodes()
                    lost = {node.name for node in nodes if node.state == "lost"}
                    if lost - known:
                        self._report_losses(lost - known, len(nodes) - len(lost))
                    known |= lost

        thread = threading.Thread(target=watch, name=f"watch-{self.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
