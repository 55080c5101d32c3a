"""What an `up` does to a cluster that may run: before Pulumi's engine, and after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets import members
from sunspot.targets.azure import boots, leaving, remaining, replacing, rolling, wait
from sunspot.targets.azure.boots import Before
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.replacing import Planning, Wanted
from sunspot.targets.azure.scaling import Cluster
from sunspot.targets.protocol import Progress


class BusyError(UsageError):
    """Another command works on the stack, or was killed while it did; this one changed nothing."""


def refuse_any(engine: Planning, name: str) -> None:
    """Raises UsageError if a cluster of that name is up by Pulumi's state, from wherever."""
    if (state := engine.state()) is not None and state.head is not None:
        raise UsageError(
            f"a cluster named {name!r} is up already by Pulumi's state, from another machine if "
            f"`sunspot status` does not list it here. It stays as it is; take it down first if it "
            f"is yours: sunspot down {name}"
        )


@contextlib.contextmanager
def saying_what_remains(name: str) -> Iterator[None]:
    """Adds to an error what the `up` of a stack may have created."""
    try:
        yield
    except UsageError:  # before which the program was not run
        raise
    except OSError as error:  # of the records: not a refusal, after which nothing would be there
        failed = SunspotError(f"cannot go on on this machine: {error}")
        failed.add_note(remaining.after_up(name))
        raise failed from error
    except (KeyboardInterrupt, SunspotError) as error:
        error.add_note(remaining.after_up(name))
        raise


@dataclass(frozen=True, kw_only=True)
class Update:
    """An `up` of a stack whose lock is held.

    Attributes:
        stack: the stack that is to come.
        before: the stack as it was brought up from here; None if that is not known.
        reach: reaches the cluster.
        endpoints: the addresses of Azure.
        progress: called with each step.
        now: whether workers are deleted with what runs on them.
    """

    stack: Stack
    before: Stack | None
    reach: Callable[[], Cluster]
    endpoints: Endpoints
    progress: Progress
    now: bool

    def prepare(self, engine: Planning, wanted: Wanted, *, replace_head: bool) -> Before | None:
        """Tells what the engine will replace, and drains what it will delete.

        Args:
            engine: the stack, of Pulumi's.
            wanted: what it is to become.
            replace_head: whether the head may be replaced.

        Returns:
            What the cluster has now, by Pulumi's state: also one that was brought up elsewhere.
            None without a cluster.

        Raises:
            UsageError: the head would be replaced, or workers still work.
            SunspotError: Pulumi, Azure or Ray refused, or did not answer.
        """
        name = self.stack.name
        found = replacing.look(engine, wanted, self.progress, replace_head=replace_head)
        if not self.now and (go := leaving.kinds(found, engine, name)):
            leaving.drain(name, self.reach, go, self.progress, self.endpoints)
        state = engine.state()
        if state is None or not state.resources:
            return None
        if state.head is None:
            return Before()
        goes = any(one.is_irreplaceable for one in found) and not wanted.has_another_ray
        known = self.before or self.stack
        return boots.before(known, state.head.id, self.endpoints, head_goes=goes)

    def finish(
        self, old: Before | None, connect: Callable[[], ClusterHandle], timeout_s: float
    ) -> ClusterHandle:
        """Waits for the head and the workers; workers with an older boot are replaced meanwhile.

        Args:
            old: what the cluster had before; None without a cluster.
            connect: returns its handle, or raises as `Ssh.read` does.
            timeout_s: how many seconds the head, and then the workers, may take.

        Raises:
            UsageError: workers with an older boot still work.
            SunspotError: something did not come in time, or was refused.
        """
        if old is not None:
            wait.until_there(self.stack, connect, self.progress, timeout_s, members.headless)
            rolling.roll(self.reach(), old, self.progress, self.endpoints, now=self.now)
        return wait.until_joined(self.stack, connect, self.progress, timeout_s)
