"""What the batch script calls on each node: `python node.zip ACTION FOLDER GROUP ...`

    check FOLDER GROUP          checks this node; the head's prints HOST:PORT for the GCS
    start FOLDER GROUP ADDRESS  becomes a node of the cluster at ADDRESS
    join  FOLDER GROUP ADDRESS  becomes a node of the cluster of another job

Exit code 2 says that something is wrong that would be wrong again.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

from sunspot.node.slurm import head, worker
from sunspot.node.slurm.addresses import AddressError, head_block, own_address
from sunspot.node.slurm.allocation import Allocation
from sunspot.node.slurm.plan import HEAD, WRONG, Group, Plan
from sunspot.node.slurm.task import Task, check_own, run, say, scratch_parent

# The path of a socket has at most 107 bytes (unix(7)). Behind the node's own folder, Ray's take
# "/session_2026-11-22_11-53-46_123456_1234567/sockets/plasma_store" (2.60).
MAX_FOLDER = 107 - 64


def check(plan: Plan, group: Group, has: Allocation) -> int:
    """Prints what is wrong with this node; the head's prints the GCS's address if nothing is."""
    problems = [_ray_problem(plan), *has.lacks(group), _scratch_problem(plan, has)]
    address = ""
    try:
        ip = own_address(plan.interface)
        if group.name == HEAD:
            address = f"{ip}:{head_block(has.job, len(group.ports))}"
    except AddressError as error:
        problems.append(str(error))
    found = list(filter(None, problems))
    for problem in found:
        say(f"node {has.node}: {problem}")
    if found:
        return WRONG
    if address:
        print(address, flush=True)
    return 0


def _ray_problem(plan: Plan) -> str:
    python = f"{sys.executable} (Python {'.'.join(map(str, sys.version_info[:3]))})"
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return (
            f"there is no Ray in {python}: name its environment in setup or python of sunspot:slurm"
        )
    if version == plan.ray_version:
        return ""
    return (
        f"{python} has Ray {version}, but the stack needs {plan.ray_version}: change setup or "
        "python in sunspot:slurm, or install that version"
    )


def _scratch_problem(plan: Plan, has: Allocation) -> str:
    room = MAX_FOLDER - len(f"/sunspot-{os.getuid()}/{has.job}-XXXXXXXX")
    if len(plan.scratch) > room:
        return (
            f"scratch {plan.scratch!r} has {len(plan.scratch)} characters, at most {room} leave "
            "room for the paths of Ray's sockets: shorten it in sunspot:slurm"
        )
    if not os.access(plan.scratch, os.W_OK | os.X_OK):
        return (
            f"scratch {plan.scratch!r} is not a folder that this user can write: change it in "
            "sunspot:slurm"
        )
    try:
        check_own(scratch_parent(plan))
    except FileNotFoundError:
        return ""
    except PermissionError as error:
        return str(error)
    return ""


def main(arguments: list[str]) -> int:
    """Does one action; returns the exit code."""
    action, folder, name, *rest = arguments
    plan = Plan.read(Path(folder) / "plan.json")
    group, has = plan.group(name), Allocation.of()
    if action == "check":
        return check(plan, group, has)
    (address,) = rest
    task = Task(
        folder=Path(folder),
        plan=plan,
        group=group,
        has=has,
        address=address,
        joined=action == "join",
    )
    return run(task, head.live if name == HEAD else worker.live)
