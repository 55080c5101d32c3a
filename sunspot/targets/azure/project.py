"""The project that a stack on Azure belongs to, and its stack file."""

from __future__ import annotations

from pathlib import Path

from sunspot import stack as stacks
from sunspot.errors import SunspotError, UntrustedError, UsageError
from sunspot.registry import THIS_MACHINE
from sunspot.stack import Stack
from sunspot.targets.azure.records import Record, Records
from sunspot.targets.azure.settings import TARGET
from sunspot.targets.protocol import Progress
from sunspot.targets.records import BrokenRecordsError


def declared_in(stack: Stack) -> Path:
    """The folder of the project whose stack file declares this stack.

    Raises:
        UsageError: the project has no such stack file, or it declares another cluster, or AKS.
    """
    try:
        project = stacks.project_directory()
    except UsageError as error:
        here = f"or bring it up on this machine: --target {THIS_MACHINE}"
        raise UsageError(f"{error}, {here}") from None
    if not (project / f"Pulumi.{stack.name}.yaml").is_file():
        known = ", ".join(stacks.names(project)) or "none"
        raise UsageError(
            "on azure a cluster must be declared in a stack file of the project, and there is no "
            f"Pulumi.{stack.name}.yaml in {project} (its stacks: {known}): declare the cluster in "
            "one and give its name, as in RayCluster.from_stack('hybrid')"
        )
    declared = stacks.load(stack.name, project)
    _refuse_aks(declared)
    if declared.for_target(TARGET) != stack.for_target(TARGET):
        raise UsageError(
            f"on azure a cluster must be declared in a stack file, and Pulumi.{stack.name}.yaml in "
            f"{project} declares another one: change it there"
        )
    return project


def _refuse_aks(stack: Stack) -> None:
    from sunspot.targets.azure.aks.plan import is_aks

    if is_aks(stack):
        raise UsageError(
            f"Pulumi.{stack.name}.yaml says sunspot:target: {stack.target}, of which Pulumi makes "
            "AKS and not virtual machines: change it to azure, or give the virtual machines a "
            "stack of their own"
        )


def declared_here(name: str) -> tuple[Stack, Path] | None:
    """The stack as the working directory's project declares it, and that project's folder.

    Returns None if it declares none of that name, or is not one.

    Raises:
        UntrustedError: the files are another user's.
    """
    try:
        stack, folder = stacks.find(name), stacks.project_directory()
    except UntrustedError:
        raise
    except UsageError:
        return None
    return None if stack is None else (stack, folder)


def runs_elsewhere(name: str, project: Path, target: str) -> bool:
    """Whether the stack file names another target than this one."""
    try:
        return stacks.load(name, project).target != target
    except UsageError:
        return False  # a wrong file names no target


def check(stack: Stack, project: Path) -> None:
    """Checks a stack as the program would, before the engine starts.

    Raises:
        UsageError: the program would refuse the stack; the message has every problem.
    """
    from sunspot.targets.azure.plan import plan

    plan(stack, project)


def find(name: str, record: Record | None) -> Path | None:
    """The folder of the project that a stack belongs to: the record's, or the working directory's.

    Returns None if there is no record, and the working directory's project has no such stack.

    Raises:
        SunspotError: there is a record, but the project is in neither folder.
    """
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
    """The project's folder as in `find`; with a broken record, only the working directory's.

    Raises:
        BrokenRecordsError: the record is broken, and the working directory's project has no such
            stack.
    """
    try:
        return find(name, records.read(name))
    except BrokenRecordsError as error:
        if (folder := find(name, None)) is None:
            raise
        progress(str(error))
        return folder


def declared(name: str, project: Path, target: str) -> Stack | None:
    """The stack as its file has it, fitted to this target; None if the file is gone or wrong."""
    try:
        return stacks.load(name, project).for_target(target)
    except UsageError:
        return None
