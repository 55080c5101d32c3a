"""The `pulumi` command: found or installed, and run so that interrupts reach it in order."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import psutil
from pulumi import automation as auto
from pulumi.automation.errors import create_command_error

from sunspot.errors import SunspotError
from sunspot.signals import handed_over
from sunspot.targets.azure import environment
from sunspot.targets.azure.runs import Runs, holders
from sunspot.targets.protocol import Progress, silent

# From the second interrupt, at which `pulumi` aborts, until it is killed.
KILL_AFTER_S = 20.0
POLL_S = 0.2


class EngineMissingError(SunspotError):
    """There is no `pulumi` command on this machine."""


class Pulumi(auto.PulumiCommand):
    """The `pulumi` command, in a separate process group, to which we pass signals on.

    A terminal sends Ctrl-C to all processes of a command, but SIGTERM reaches only one. For both to
    have the same effect, `pulumi` gets neither directly, and an interrupt from us for each.

    A lock that a killed command left on a stack is released.

    Args:
        root: the folder that the command is installed in; by default it is on the PATH.
        progress: called with a line on the effect of each interrupt.
        runs: where the runs that change the stack are recorded; by default they are not.
    """

    def __init__(
        self, root: str | None = None, *, progress: Progress = silent, runs: Runs | None = None
    ) -> None:
        super().__init__(root=root)
        self._progress = progress
        self._runs = runs
        self._held = False

    @contextmanager
    def holding_interrupts(self) -> Iterator[None]:
        """Holds interrupts back between commands; a command that runs gets them itself.

        After one that was held back, no further command starts. For calls of the Automation API: it
        starts threads that only its own clean-up stops, and an exception between two of its lines
        would leave them, and with them this process, forever.

        Raises:
            KeyboardInterrupt: an interrupt came while no command ran.
        """
        self._held = False
        with handed_over(self._hold):
            yield
        if self._held:
            raise KeyboardInterrupt

    def _hold(self) -> None:
        self._held = True

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], Any] | None = None,
        on_error: Callable[[str], Any] | None = None,
    ) -> auto.CommandResult:
        """Runs the command to its end; the callbacks get all their lines then.

        Raises:
            KeyboardInterrupt: this process was interrupted; the command has ended.
            CommandError: the command failed.
        """
        result = self._run_unlocked(args, cwd, additional_env)
        for text, callback in ((result.stdout, on_output), (result.stderr, on_error)):
            if callback is not None:
                for line in text.splitlines():
                    callback(line)
        return result

    def _run_unlocked(
        self, args: list[str], cwd: str, additional_env: Mapping[str, str]
    ) -> auto.CommandResult:
        """Runs it, again if the stack was locked by what a killed command left behind."""
        while True:
            try:
                return self._run(args, cwd, additional_env)
            except auto.ConcurrentUpdateError as error:
                if self._runs is None:
                    raise
                if self._runs.stop(self._progress):
                    continue
                if not self._runs.forget(holders(str(error))):
                    raise
                self._progress("releasing the stack's lock, which a killed pulumi left behind")
                stack = args[args.index("--stack") + 1]
                self._run(["cancel", "--yes", "--stack", stack], cwd, additional_env)

    def _run(
        self, args: list[str], cwd: str, additional_env: Mapping[str, str]
    ) -> auto.CommandResult:
        # The Automation API and our own calls both pass the stack like this.
        stack = args[args.index("--stack") + 1] if "--stack" in args else "NAME"
        interrupts = _Interrupts(stack, self._progress)
        # Not pipes, or `pulumi` would die of SIGPIPE in the middle of a step when we are killed.
        with handed_over(interrupts), _output() as out, _output() as err:
            if self._held:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                [self.command, "--non-interactive", *args],
                cwd=cwd,
                env=_environment(self.command, additional_env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
            )
            with self._recorded(args, process.pid):
                interrupts.watch(process)
            # Without the last newline, like the class that this extends.
            result = auto.CommandResult(
                stdout=_text(out), stderr=_text(err), code=process.returncode
            )
        if interrupts.count:
            raise KeyboardInterrupt
        if result.code:
            raise create_command_error(result)
        return result

    def _recorded(self, args: list[str], pid: int) -> AbstractContextManager[None]:
        changes = args[0] in {"up", "destroy"}
        return self._runs.recorded(pid) if self._runs and changes else nullcontext()


def _output() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").rstrip()


class _Interrupts:
    """The signals that arrive while `pulumi` runs: the first asks it to stop, the second to abort.

    After the second it may leave a lock on the stack; the message says how to release it.
    """

    def __init__(self, stack: str, progress: Progress) -> None:
        self.count = 0
        self._progress = progress
        self._stack = stack
        self._handed_on = 0
        self._kill_at: float | None = None

    def __call__(self) -> None:
        # Only that: a handler may run in the middle of a line that is being printed.
        self.count += 1

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the process."""
        while True:
            if self._handed_on < min(self.count, 2):
                self._handed_on += 1
                self._hand_on(process)
            try:
                process.wait(timeout=POLL_S)
                return
            except subprocess.TimeoutExpired:
                if self._kill_at is not None and time.monotonic() > self._kill_at:
                    _kill(process.pid)

    def _hand_on(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            return
        if self._handed_on == 1:
            self._progress(
                "stopping pulumi: it finishes what it has begun, which may take minutes. Interrupt "
                "again to abort at once"
            )
        else:
            self._kill_at = time.monotonic() + KILL_AFTER_S
            self._progress(
                "aborting pulumi: resources that it was creating may exist without being in its "
                "state; check the resource group. If the stack is locked afterwards: "
                f"pulumi cancel -s {self._stack}"
            )
        process.send_signal(signal.SIGINT)


def _kill(pid: int) -> None:
    """Kills a process and its descendants."""
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(pid)
        for process in (*started.children(recursive=True), started):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _environment(command: str, additional: Mapping[str, str]) -> dict[str, str]:
    given = {
        **os.environ,
        **environment.for_pulumi(),
        **additional,
        "PULUMI_AUTOMATION_API": "true",
    }
    if Path(command).is_absolute():
        # Its language hosts are in the same folder.
        given["PATH"] = os.pathsep.join((str(Path(command).parent), given.get("PATH", os.defpath)))
    return given


def find_engine(progress: Progress = silent, runs: Runs | None = None) -> Pulumi:
    """The `pulumi` command on the PATH, or the one that `install_engine` has installed.

    The arguments are those of `Pulumi`.

    Raises:
        EngineMissingError: there is none.
        SunspotError: its version is too old or too new.
    """
    ours = Path.home() / ".pulumi" / "versions" / _version()
    for root in (None, str(ours)):
        try:
            return Pulumi(root=root, progress=progress, runs=runs)
        except (OSError, subprocess.CalledProcessError):
            continue
        except auto.InvalidVersionError as error:
            raise SunspotError(f"the pulumi command is too old or too new: {error}") from error
    raise EngineMissingError("there is no `pulumi` command on this machine")


def install_engine(progress: Progress, runs: Runs | None = None) -> Pulumi:
    """The `pulumi` command; if there is none, it is installed into ~/.pulumi.

    Raises:
        EngineMissingError: it could not be installed.
        SunspotError: as `find_engine` does.
    """
    try:
        return find_engine(progress, runs)
    except EngineMissingError:
        progress(f"there is no pulumi command on this machine: installing {_version()}")
    try:
        auto.PulumiCommand.install()
        return find_engine(progress, runs)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EngineMissingError(
            f"there is no `pulumi` command on this machine, and it could not be installed "
            f"({error}). Install it yourself: https://www.pulumi.com/docs/install/"
        ) from error


def _version() -> str:
    """The version that `PulumiCommand.install` installs: the SDK's own."""
    return importlib.metadata.version("pulumi")
