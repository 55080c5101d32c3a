"""The project's folder that a stack on Azure belongs to, and what its stack file says."""

from __future__ import annotations

from pathlib import Path

from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.targets.azure.records import Record, Records
from sunspot.targets.protocol import Progress
from sunspot.targets.records import BrokenRecordsError


def declared_in(stack: Stack) -> Path:
    """The project's folder. Raises UsageError unless its stack file says what `stack` says."""
    project = stacks.project_directory()
    if not (project / f"Pulumi.{stack.name}.yaml").is_file():
        known = ", ".join(stacks.names(project)) or "none"
        raise UsageError(
            "on azure a cluster is what a stack file of the project says, and there is no "
            f"Pulumi.{stack.name}.yaml in {project} (its stacks: {known}): write the cluster into "
            "one and give its name, as in RayCluster.from_stack('hybrid')"
        )
    if stacks.load(stack.name, project).for_target("azure") != stack.for_target("azure"):
        raise UsageError(
            f"on azure a cluster is what Pulumi.{stack.name}.yaml in {project} says, and that is "
            "another one; write it there"
        )
    return project


def runs_elsewhere(name: str, project: Path, target: str) -> bool:
    """Whether the stack file names another target than this one."""
    try:
        return stacks.load(name, project).target != target
    except UsageError:
        return False  # a file that is wrong says nothing


def check(stack: Stack, project: Path) -> None:
    """Raises UsageError with all that the program would refuse, before the engine starts."""
    from sunspot.targets.azure.plan import plan

    plan(stack, project)


def find(name: str, record: Record | None) -> Path | None:
    """The folder of the project that the stack belongs to, if it has one."""
    if record is not None and record.folder and (Path(record.folder) / "Pulumi.yaml").exists():
        return Path(record.folder)
    try:
        project = stacks.project_directory()
    except UsageError:
        project = None
    if project is not None and (project / f"Pulumi.{name}.yaml").exists():
        return project
    if record is not None:
        raise SunspotError(
            f"the project of stack {name!r} is no longer in {record.folder}; run this in the "
            f"folder where its Pulumi.{name}.yaml is"
        )
    return None


def to_take_down(name: str, records: Records, progress: Progress) -> Path | None:
    """The project's folder as `find` has it; where the record is broken, the project we are in.

    Raises BrokenRecordsError for a broken record of a stack that this project does not have.
    """
    try:
        return find(name, records.read(name))
    except BrokenRecordsError as error:
        if (folder := find(name, None)) is None:
            raise
        progress(str(error))
        return folder
