"""A cluster for one job: it exists only while that runs, on every target that brings clusters up.

A target that has something better of its own says so by the ability `Batches`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.job_clusters import JobClusters
from sunspot.targets.protocol import Lasting, Progress, Removal, Target
from sunspot.targets.starting import Start, take_down

Show = Callable[[str], AbstractContextManager[Progress]]
"""Shows the steps of what it is given the title of."""


@contextlib.contextmanager
def cluster(target: Target, stack: Stack, show: Show) -> Iterator[ClusterHandle]:
    """The stack's cluster, which is taken down when the block ends, however it ends.

    A second Ctrl-C does not cut that short.

    Args:
        target: where the cluster is brought up.
        stack: the stack, fitted to the target.
        show: shows the steps of bringing it up, and of taking it down.

    Raises:
        UsageError: the target refuses the stack, or its cluster is up already.
        SunspotError: it did not come up, or something is left of it.
    """
    target.check(stack)
    if _is_there(target, stack.name):
        raise _is_up(target, stack.name)
    start = Start(target, stack)
    try:
        with show(f"bringing up {stack.name}") as progress:
            up = start.up(progress)
        if up.was_up:  # another command brought it up meanwhile
            raise _is_up(target, stack.name)
        yield up.handle
    except BaseException as error:
        if start.is_ours:
            _take_down_after(error, target, stack.name, show)
        raise
    _take_down(target, stack.name, show)


def _is_there(target: Target, name: str) -> bool:
    """Whether the stack has a cluster; of one that ended by itself, `up` removes the rest.

    By the records here: what another machine made, `up` finds where the stack is to be.
    """
    if name not in target.names():
        return False
    ends = abilities.find(target, JobClusters)
    return ends is None or not ends.is_gone(name)


def _is_up(target: Target, name: str) -> UsageError:
    return UsageError(
        f"{name!r} is up on {target.name} already, and would be taken down with the job. Submit to "
        f"it: sunspot submit --stack {name} -- COMMAND; or first: sunspot down {name}"
    )


def _take_down_after(error: BaseException, target: Target, name: str, show: Show) -> None:
    """Takes the cluster down; a failure of that never hides the error before it."""
    try:
        removal = _take_down(target, name, show)
    except (SunspotError, OSError) as problem:
        error.add_note(f"in addition, {name} could not be taken down: {problem}")
        error.add_note(f"try again, or it may go on to cost: sunspot down {name}")
    else:
        if removal is not None:
            error.add_note(f"{name} is taken down; no {removal.looked_for} of it is left")


def _take_down(target: Target, name: str, show: Show) -> Removal | None:
    with uninterrupted(), show(f"taking down {name}") as progress:
        removal = take_down(target, name, progress)
        if removal is not None:
            for sentence in removal.kept:
                progress(Lasting(sentence))
            removal.check(name)
        return removal
