"""Slurm's own commands, run here or, through SSH, on a login node; and the files on the other side.

Their behaviour: the man pages sbatch(1), squeue(1), scancel(1), scontrol(1), sacct(1) and sinfo(1)
of Slurm 22.05.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.protocol import Progress, silent
from sunspot.targets.slurm import variables
from sunspot.targets.slurm.jobs import Ended, Job
from sunspot.targets.slurm.settings import in_shell
from sunspot.targets.ssh import Ssh, no_program

COMMAND_TIMEOUT_S = 60.0

# A busy controller refuses connections, or answers too late, and is itself again after a while
# (github.com/snakemake/snakemake-executor-plugin-slurm, issues 209 and 313); so is one that limits
# requests (slurm.conf(5), rl_enable), and a second one while it takes over (slurm_errno.c).
PATIENCE_S, RETRY_S = 60.0, 2.0
_BUSY = ("Unable to contact slurm controller", "timed out", "Unexpected message", "did not answer",
         "Rate limit exceeded", "in standby mode")  # fmt: skip

# Exit codes of ssh and of the shell behind it.
SSH_FAILED, NO_SUCH_COMMAND = 255, 127

# Many sites put Slurm on the PATH of login shells only, which a command through SSH has not
# (github.com/mila-iqia/milatools, issue 3; github.com/cylc/cylc-flow, issue 533). bash: a file of
# profile.d that is not POSIX would end another shell.
_PROGRAMS = frozenset({"sacct", "sbatch", "scancel", "scontrol", "sinfo", "squeue"})
PROFILE = "/etc/profile"
_WITH_PROFILE = '{ command -v sbatch || . "$0" < /dev/null; } > /dev/null 2>&1; exec "$@"'

_QUEUE_FORMAT = "%i|%j|%T|%r"
# What sbatch says of a request that it refuses (slurm_errno.c), and the key that it is about.
# Of several the first counts: "Requested node configuration" comes behind "Memory specification".
_REFUSED = {
    "Memory specification can not be satisfied": "the nodes' size, or set memory: false,",
    "invalid partition": "partition",
    "No partition specified": "partition",
    "not permitted to use this partition": "partition",
    "Required partition not available": "partition",
    "Invalid account": "account",
    "Invalid qos": "qos",
    "Requested time limit is invalid": "time",
    "Invalid generic resource": "gres",
    "Requested node configuration is not available": "partition, gres, or the nodes' size",
    "More processors requested than permitted": "the nodes' size",
    "Node count specification invalid": "the number of nodes",
    "Job violates accounting/QOS policy": "qos, time, or the nodes' size",
    "unrecognized option": "extra",
    "Invalid feature specification": "extra",
}
# What is said of a job that has ended, and of one that is forgotten.
_OVER = ("already completing or completed", "Invalid job id specified")


class SlurmError(SunspotError):
    """A command of Slurm failed; the message has what it said."""


@dataclass(frozen=True)
class Slurm:
    """The commands of one Slurm cluster.

    Attributes:
        login: the machine that they run on; None for this one.
        progress: told when the controller does not answer at once.
    """

    login: Ssh | None = None
    progress: Progress = silent

    def submit(self, script: str) -> str:
        """Submits a batch script; returns the job's id.

        What the script says goes before what the user's environment says to sbatch.

        Raises:
            UsageError: Slurm refuses what the job asks for; the message names the key.
            SlurmError: sbatch failed otherwise, or printed no job's id.
        """
        try:
            printed = self.run(
                "sbatch", "--parsable", text=script, without=variables.of_submission(script)
            )
        except SlurmError as error:
            about = [key for words, key in _REFUSED.items() if words.lower() in str(error).lower()]
            if not about:
                raise
            raise UsageError(
                f"Slurm refuses the job: {_said(error)}. Change {about[0]} in the stack file"
            ) from error
        # "17", or "17;cluster" where Slurm has several clusters. A site's own sbatch may greet
        # before that (github.com/llnl/maestrowf, issue 441).
        found = re.findall(r"^(\d+)(?:;.*)?$", printed, re.MULTILINE)
        if not found:
            raise SlurmError(f"`sbatch` printed no job's id: {printed.strip()!r}")
        return found[-1]

    def queue(self, names: Iterable[str]) -> list[Job]:
        """The user's jobs of these names, also those that have just ended."""
        printed = self.ask(
            "squeue",
            "--me",
            "--array",  # each element, also while it waits
            "--noheader",
            "--states=all",
            f"--name={','.join(names)}",
            f"--format={_QUEUE_FORMAT}",
        )
        # With several clusters older ones also print a line "CLUSTER: NAME".
        return [_job(line) for line in printed.splitlines() if "|" in line]

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancels jobs; those that have ended are left as they are."""
        for one in dict.fromkeys(ids):
            self._scancel(one)

    def give_notice(self, job: str) -> None:
        """Tells a job's script what Slurm tells it before the time limit; nothing if it ended."""
        self._scancel("--batch", "--signal=USR1", job)

    def _scancel(self, *arguments: str) -> None:
        try:
            self.ask("scancel", *arguments)
        except SlurmError as error:
            if not _is_over(error):
                raise

    def ended(self, job: str) -> Ended | None:
        """How a job ended, from the controller or the accounting; None if neither knows it."""
        try:
            shown = self.ask("scontrol", "show", "job", "--oneliner", job)
        except SlurmError:
            return self._accounted(job)
        # A heterogeneous job has a line for each component; the script's is the first.
        fields = dict(re.findall(r"(\w+)=(\S*)", shown.partition("\n")[0]))
        return Ended(state=fields["JobState"], code=fields["ExitCode"])

    def _accounted(self, job: str) -> Ended | None:
        try:
            printed = self.run(
                "sacct", "-X", "--noheader", "--parsable2", "--format=State,ExitCode", "-j", job
            )
        except (SlurmError, UsageError):  # no accounting, or no `sacct` here
            return None
        line = printed.partition("\n")[0]
        if not line:
            return None
        state, _, code = line.partition("|")
        return Ended(state=state.split()[0], code=code.strip())

    def ask(self, *words: str) -> str:
        """What a command prints that may be called again, as long as the controller is busy.

        Raises as `run` does.
        """
        deadline, told = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                return self.run(*words)
            except SlurmError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            if not told:
                told = True
                self.progress(
                    f"Slurm's controller does not answer: asking again for {PATIENCE_S:.0f} s"
                )
            time.sleep(RETRY_S)

    def run(self, *words: str, text: str = "", without: Sequence[str] = ()) -> str:
        """What a command prints.

        Args:
            *words: the command.
            text: what it reads.
            without: variables that it does not get.

        Raises:
            SlurmError: it failed.
            UsageError: there is no Slurm here.
        """
        return self._call(words, text.encode(), without).decode(errors="replace")

    def _call(self, words: Sequence[str], given: bytes = b"", without: Sequence[str] = ()) -> bytes:
        names = [*variables.FILTERS.get(words[0], ()), *without]
        unset = [word for name in names for word in ("-u", name)]
        command = ["env", *unset, *words] if unset else list(words)
        called = f"`{words[0]}`"
        if self.login is not None:
            if words[0] in _PROGRAMS:
                command = ["bash", "-c", _WITH_PROFILE, PROFILE, *command]
            command = self.login.arguments(remote=[shlex.join(command)])
            called = f"`{words[0]}` on {self.login.called}"
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                check=False,
                timeout=COMMAND_TIMEOUT_S,
                # A Ctrl-C is for this command of ours; Slurm's would end half done.
                start_new_session=True,
            )
        except FileNotFoundError:
            raise no_slurm(words[0]) if self.login is None else no_program("ssh") from None
        except subprocess.TimeoutExpired:
            raise SlurmError(f"{called} did not answer within {COMMAND_TIMEOUT_S:g} s") from None
        self._check(words, called, done)
        return done.stdout

    def _check(
        self, words: Sequence[str], called: str, done: subprocess.CompletedProcess[bytes]
    ) -> None:
        said = done.stderr.decode(errors="replace")
        if self.login is not None and done.returncode == SSH_FAILED:
            raise self.login.failure(said)
        if done.returncode == NO_SUCH_COMMAND:
            host = () if self.login is None else (self.login.called,)
            raise no_slurm(words[0], *host)
        if done.returncode:
            raise SlurmError(f"{called} failed: {' '.join(said.split()) or 'no message'}")

    # Files

    def expand(self, folder: str) -> str:
        """The absolute path of a folder of the settings, which may begin with ~/ or a variable.

        Raises:
            UsageError: the variable is not set.
        """
        try:
            return self.run("sh", "-c", f'echo "{in_shell(folder)}"').strip()
        except SlurmError as error:
            raise UsageError(f"folder {folder} of sunspot:slurm has no path: {error}") from error

    def make_folder(self, folder: str) -> None:
        """Makes a job's folder, which only the user can read.

        Raises:
            UsageError: it cannot be written.
        """
        try:
            self.run("sh", "-c", 'umask 077 && mkdir -p "$0/logs"', folder)
        except SlurmError as error:
            raise UsageError(
                f"{folder} cannot be made ({error}): change folder in sunspot:slurm"
            ) from error

    def read(self, file: str) -> str | None:
        """The text of a file; None if there is none."""
        try:
            return self.run("cat", file)
        except SlurmError:
            return None

    def rest(self, file: str, start: int) -> bytes:
        """What is in a file from the byte `start` on; nothing if there is no such file."""
        try:
            return self._call(["tail", "-c", f"+{start + 1}", file])
        except SlurmError:
            return b""

    def files(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted; none if there is no such folder."""
        try:
            return sorted(self.run("ls", folder).split())
        except SlurmError:
            return []

    def remove(self, folder: str) -> None:
        """Removes a folder with all that is in it."""
        self.run("rm", "-rf", "--", folder)

    def remove_empty(self, *folders: str) -> None:
        """Removes those of these folders that are empty, one after the other."""
        self.run("sh", "-c", 'for one; do rmdir "$one" 2> /dev/null; done; true', "sh", *folders)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        try:
            self.run("test", "-e", path)
        except SlurmError:
            return False
        return True


def of(login_host: str | None, known_hosts: Path, progress: Progress = silent) -> Slurm:
    """The commands of the settings' `login_host`, or of this machine."""
    if login_host is None:
        return Slurm(progress=progress)
    way = Ssh(command=("ssh", login_host), key=None, known_hosts=known_hosts, called=login_host)
    return Slurm(way, progress)


def no_slurm(command: str, host: str = "this machine") -> UsageError:
    """The error for a machine without Slurm's commands."""
    return UsageError(
        f"there is no Slurm on {host} (no `{command}`): run this on a login node, or name one as "
        "login_host in sunspot:slurm"
    )


def _is_busy(error: SlurmError) -> bool:
    return any(words in str(error) for words in _BUSY)


def _is_over(error: SlurmError) -> bool:
    return any(words in str(error) for words in _OVER)


def _job(line: str) -> Job:
    shown, name, state, reason = line.split("|", 3)
    # A component of a heterogeneous job, "17+1", is cancelled with all of the job.
    leader = shown.partition("+")[0]
    return Job(id=leader, name=name, state=state, reason="" if reason == "None" else reason)


def _said(error: SlurmError) -> str:
    """The last of what sbatch said: the reason."""
    return str(error).rpartition("error: ")[2].removeprefix("Batch job submission failed: ")
