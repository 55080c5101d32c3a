"""A worker's life: it ends with the head of its cluster, or when its own job ends."""

from __future__ import annotations

import time

from sunspot.node.leaving import Worker, attempt
from sunspot.node.slurm.plan import TERM_MARGIN_S, drain_message
from sunspot.node.slurm.ray_node import accepts, answer
from sunspot.node.slurm.task import Node, say

POLL_S = 1.0
# A head whose command is short must not come and go between two looks.
FIRST_POLL_S = 0.1

# How long nothing may listen at the head's GCS until it is gone; and how long it may be silent,
# which may be a busy machine.
REFUSED_S, SILENT_S = 1.5, 60.0


def live(node: Node) -> int:
    """Returns 0 once the head is gone or the node has left by itself, 1 if the head never came."""
    task = node.task
    if not _await_head(node):
        say(f"node {task.name}: the head's GCS at {task.address} did not answer in time")
        return 1
    seen = time.monotonic()
    while True:
        node.check()
        # The head drains the nodes of its own job.
        if task.joined and task.noticed:
            return _leave(node)
        met, now = answer(task.address), time.monotonic()
        if met == "accepts":
            seen = now
        limit = REFUSED_S if met == "refuses" else SILENT_S
        # Until the head has come up, Ray itself waits for it, for as long as the plan says.
        if now - seen > limit and not task.head_is_starting:
            return 0
        time.sleep(POLL_S)


def _await_head(node: Node) -> bool:
    deadline = time.monotonic() + node.task.plan.join_s
    while not accepts(node.task.address):
        node.check()
        if time.monotonic() > deadline:
            return False
        time.sleep(FIRST_POLL_S)
    return True


def _leave(node: Node) -> int:
    """Drains this node, and stops its raylet shortly before its job ends."""
    task = node.task
    until = time.time() + task.plan.notice_s - TERM_MARGIN_S
    say(f"node {task.name}: its job ends soon: draining")
    member = Worker(task.address, task.name)
    drains, message = False, drain_message(task.has.job)
    while time.time() < until and not (drains and _has_left(member)):
        node.check()
        drains = drains or attempt("drain", lambda: member.drain(until, message))
        time.sleep(POLL_S)
    attempt("stop the raylet", member.stop)
    return 0


def _has_left(member: Worker) -> bool:
    left: list[bool] = []
    attempt("see whether the node left", lambda: left.append(member.has_left()))
    return left == [True]
