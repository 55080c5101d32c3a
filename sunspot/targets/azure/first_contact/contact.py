"""A first contact from its preparation to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import locked
from sunspot.signals import without_hangups
from sunspot.stack import Stack
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure import project
from sunspot.targets.azure.access import no_way_in
from sunspot.targets.azure.doctor import clients
from sunspot.targets.azure.doctor.findings import failure
from sunspot.targets.azure.first_contact import price, small_stack
from sunspot.targets.azure.first_contact.on_site import DOWN, steps
from sunspot.targets.azure.first_contact.report import Report
from sunspot.targets.azure.first_contact.site import Site
from sunspot.targets.azure.first_contact.small_stack import NAME, StackFile
from sunspot.targets.azure.first_contact.steps import Step, Trials
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.contacting import ContactReport
from sunspot.targets.protocol import Finding, Progress
from sunspot.targets.records import readable_disk_errors

if TYPE_CHECKING:
    from sunspot.targets.azure.target import AzureTarget

TO_REMOVE = f"sunspot down {NAME} --delete-storage"
REMAINS = f"What was made may still exist and be billed. Remove it: {TO_REMOVE}"
INTERRUPTED = (
    "Interrupted: taking down what was made. Another Ctrl-C stops that too; it then remains, and "
    f"is billed, until: {TO_REMOVE}"
)
# What the doctor calls a size that the subscription may not have, or lacks the quota for.
_OF_A_SIZE = ("size ", "quota ")


@contextlib.contextmanager
def prepared(place: AzureTarget, stack: Stack) -> Iterator[FirstContact]:
    """A first contact in the region and network of a stack; its stack file is gone afterwards.

    The file stays only if something may be left of the cluster, since `down` needs it.

    Raises:
        UsageError: the stack has no stack file, its head could not be reached from here, there is
            a stack of the small one's name, or another first contact is under way.
    """
    with _the_only_one(place.records.root):
        contact = _begun(place, stack)
        try:
            yield contact
        finally:
            if not contact.may_exist:
                contact.file.remove()


@contextlib.contextmanager
def _the_only_one(root: Path) -> Iterator[None]:
    """Locks out a second one, which would take down the first's cluster as a rest of an earlier."""
    file = root / f".{NAME}.running"
    with contextlib.ExitStack() as held:
        with readable_disk_errors(root):
            try:
                held.enter_context(locked(file, wait=False))
            except BlockingIOError:
                raise UsageError(
                    "another first contact is under way on this machine: wait for its end"
                ) from None
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def _begun(place: AzureTarget, stack: Stack) -> FirstContact:
    folder = project.declared_in(stack)
    azure = AzureSettings.of(stack)
    if (closed := no_way_in(azure.access, azure.network.subnet_ids)) is not None:
        raise UsageError(f"stack {stack.name!r}: {closed}")
    file = StackFile(folder=folder, user=stack)
    file.check()
    earlier = file.path.exists()
    if not earlier and NAME in place.names():
        raise UsageError(
            f"there is a cluster {NAME!r}, and a first contact makes one of that name: take it "
            f"down first: sunspot down {NAME}"
        )
    return FirstContact(place=place, file=file, may_exist=earlier)


@dataclass
class FirstContact:
    """A first contact that is prepared.

    Attributes:
        place: the azure target.
        file: the small stack's file.
        may_exist: whether something of the small cluster may exist.
    """

    place: AzureTarget
    file: StackFile
    may_exist: bool
    name: str = NAME
    _stack: Stack | None = field(default=None, repr=False)

    def findings(self, progress: Progress) -> list[Finding]:
        """The preconditions of the small cluster, of the cheapest size that may be had."""
        if not clients.are_installed():
            return [failure("Azure's clients", clients.MISSING, clients.TO_INSTALL)]
        try:
            self._check_pulumi(progress)
        except UsageError:
            raise
        except SunspotError:
            pass  # what Pulumi lacks is among the findings; make() looks again
        choices = small_stack.sizes(AzureSettings.of(self.file.user).location)
        if not choices:
            raise UsageError("the catalogue has no size for the region: name another one")
        found: dict[str, list[Finding]] = {}
        for size in choices:
            progress(f"size {size.name}")
            self._stack = self.file.write(size)
            found[size.name] = self.place.preconditions(self._stack, progress)
            if not any(_is_of_a_size(one) for one in found[size.name]):
                return found[size.name]
        self._stack = self.file.write(choices[0])
        return found[choices[0].name]

    def cost(self) -> str:
        """What is made and what it costs."""
        return price.offer(self._plan())

    def make(self, report: Path, progress: Progress, note: Progress) -> ContactReport:
        """Makes the cluster, tries each step, takes everything away."""
        try:
            return self._made(report, _heedless(progress), _heedless(note))
        except BaseException as error:
            if self.may_exist:
                error.add_note(REMAINS)
            raise

    def _made(self, report: Path, progress: Progress, note: Progress) -> ContactReport:
        self._check_pulumi(progress, install=True)
        plan = self._plan()
        written = Report(file=report, plan=plan, folder=self.file.folder)

        def save(ended: str = "no") -> dict[str, Any]:
            return written.write(trials.done, ended=ended, note=note)

        trials = Trials(tell=progress, changed=save)
        if self.may_exist:
            note("Taking down what an earlier first contact left.")
            self._take_down(progress)
        site = Site(
            place=self.place,
            stack=self._known(),
            plan=plan,
            folder=self.file.folder,
            progress=progress,
        )
        interrupted = False
        self.may_exist = True
        try:
            trials.run(steps(site))
        except KeyboardInterrupt:
            interrupted = True
            note(INTERRUPTED)
        except BaseException:  # whatever it was, nothing may be left
            self._end(trials, save, progress)
            raise
        remains = self._end(trials, save, progress)
        return ContactReport(
            trials=written.shown(trials.done),
            interrupted=interrupted,
            remains=remains,
            document=save("interrupted" if interrupted else "whole"),
        )

    def _end(self, trials: Trials, save: Callable[[str], object], progress: Progress) -> str:
        """Takes everything away; what remains, in words.

        Raises:
            KeyboardInterrupt: that was interrupted.
        """
        problems: list[str] = []

        def down(*, again: bool = True) -> str:
            try:
                return self._take_down(progress)
            except SunspotError as error:
                # Once the records are gone, another `down` would find nothing.
                if not again or NAME not in self.place.names():
                    problems.append(str(error))
                    raise
            progress("taking down failed; trying once more")
            return down(again=False)

        try:
            # Where a terminal is closed, the kernel and the shell may each send one.
            with without_hangups():
                trials.run([Step(name=DOWN, run=down)])
        except KeyboardInterrupt:
            save("cut off")
            raise
        if trials.done[-1].outcome == "ok":
            return ""
        return "\n  ".join([*problems, REMAINS])

    def _check_pulumi(self, progress: Progress, *, install: bool = False) -> None:
        """Checks that Pulumi knows no resources of the small stack's name.

        A backend may be shared with other machines and folders, whose stack it would be.

        Raises:
            UsageError: it knows some, and no earlier first contact in this folder made them.
        """
        if self.may_exist:
            return
        state = self.place.engine(NAME, self.file.folder, progress, install=install).state()
        if state is not None and state.resources:
            raise UsageError(
                f"Pulumi's backend has a stack {NAME!r} with {len(state.resources)} resources, "
                "made on another machine or in another folder, and a first contact makes one of "
                "that name: wait until it is gone"
            )

    def _take_down(self, progress: Progress) -> str:
        """Takes the cluster down with its storage.

        Raises:
            SunspotError: something is left, or it could not be taken down.
        """
        removal = self.place.down(NAME, progress, delete_storage=True)
        if removal is not None:
            removal.check(NAME)
        self.may_exist = False
        if removal is None:
            return "there was nothing"
        return f"no {removal.looked_for} is left{self._forget(progress)}"

    def _forget(self, progress: Progress) -> str:
        """Removes the empty stack from Pulumi's backend; what is left of it there, in words."""
        try:
            self.place.engine(NAME, self.file.folder, progress).remove()
        except SunspotError:
            return f"; Pulumi's state still has the empty stack: pulumi stack rm {NAME}"
        return ""

    def _known(self) -> Stack:
        if self._stack is None:
            raise RuntimeError("findings() comes first: it chooses the size")
        return self._stack

    def _plan(self) -> AzurePlan:
        return azure_plan.plan(self._known(), self.file.folder)


def _heedless(tell: Progress) -> Progress:
    """The same, but a terminal that was closed keeps nothing from being taken away."""

    def say(text: str) -> None:
        # rich raises SystemExit for a broken pipe.
        with contextlib.suppress(OSError, ValueError, SystemExit):
            tell(text)

    return say


def _is_of_a_size(finding: Finding) -> bool:
    return finding.level == "failure" and finding.check.startswith(_OF_A_SIZE)
