"""What is known of a cluster: its record on this machine, as of Pulumi's state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from sunspot.errors import SunspotError
from sunspot.stack import Stack
from sunspot.targets.azure import left_behind, project
from sunspot.targets.azure.records import Record, Records
from sunspot.targets.protocol import Progress
from sunspot.targets.records import not_up

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import AzureStack, StackState


class Engine(Protocol):
    """Returns the Pulumi stack `name` of the project in `folder`."""

    def __call__(
        self, name: str, folder: Path, progress: Progress, *, install: bool = False
    ) -> AzureStack:
        """With `install` it installs a missing `pulumi`; otherwise EngineMissingError is raised."""
        ...


@dataclass(frozen=True)
class Known:
    """The records of clusters, and the Pulumi stacks that they are of.

    Attributes:
        records: the records.
        engine: returns a Pulumi stack.
        target: the target's name in the registry.
    """

    records: Records
    engine: Engine
    target: str

    def stack(self, name: str) -> Stack:
        """The stack as its record has it. Raises SunspotError where that is not a stack."""
        try:
            return Stack.model_validate(self.records.known(name).stack)
        except ValidationError as error:
            file = self.records.folder(name) / "stack.json"
            raise self.records.folders.broken(name, file, error) from error

    def ask(
        self, name: str, folder: Path, progress: Progress
    ) -> tuple[AzureStack | None, StackState | None]:
        """The Pulumi stack and its state; None for what does not exist.

        If Pulumi fails, that is not an error for a stack of another target without a record here.
        """
        try:
            engine = self._engine(name, folder, progress)
            return engine, None if engine is None else engine.state()
        except SunspotError:
            if name not in self.records.names() and project.runs_elsewhere(
                name, folder, self.target
            ):
                return None, None
            raise

    def refresh(self, name: str, progress: Progress) -> Record:
        """Updates the record from Pulumi's state, also after a plain `pulumi up`.

        Raises:
            SunspotError: the cluster was destroyed; its record is removed.
        """
        folder = project.find(name, self.records.read(name))
        engine = None if folder is None else self._engine(name, folder, progress)
        state = None if engine is None else engine.state()
        if folder is None or state is None or state.head is None:
            if left_behind.may_be(self.records.read(name), state):
                raise left_behind.not_up(name)
            if state is None or not state.resources:
                self.records.forget(name)
            raise not_up(name)
        # From its file, which a plain `pulumi up` reads too, or else from the record.
        stack = project.declared(name, folder, self.target) or self.stack(name)
        return self.records.remember(name, folder, stack, state)

    def _engine(self, name: str, folder: Path, progress: Progress) -> AzureStack | None:
        """The Pulumi stack; None if there is no `pulumi` command and no record of the stack."""
        from sunspot.targets.azure.engine import EngineMissingError

        try:
            return self.engine(name, folder, progress)
        except EngineMissingError:
            if name not in self.records.names():
                return None
            raise
