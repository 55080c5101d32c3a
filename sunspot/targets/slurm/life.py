"""One cluster's job from its submission to its end, as the machine that submits it sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from sunspot.errors import HeadLostError, SunspotError, UsageError
from sunspot.node.slurm.plan import CLUSTER_FILE, FAILED, WRONG, Published
from sunspot.targets.protocol import Progress
from sunspot.targets.slurm.commands import Slurm
from sunspot.targets.slurm.jobs import Ended, Job
from sunspot.targets.slurm.records import JobRecord

# Between two requests to the one controller of all users; soon at first, when most are answered.
FIRST_PAUSE_S, POLL_S = 0.25, 2.0

# Within KillWait, 30 s by default, a job's processes get a SIGKILL; then Slurm cleans up.
CANCEL_TIMEOUT_S = 90.0

OUTPUT = "job.out"
# "0:53" is all that Slurm says of an output that a node cannot open
# (github.com/SckyzO/slurm_exporter, issue 171).
NO_OUTPUT = 128 + 53
OUTPUT_LINES = 20


def pauses(longest_s: float = POLL_S) -> Iterator[float]:
    """The seconds between two requests of one waiting, without end."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, longest_s)


@dataclass(frozen=True)
class Life:
    """The jobs of one cluster."""

    slurm: Slurm
    record: JobRecord

    @property
    def output(self) -> str:
        """The file that the batch script prints into."""
        return f"{self.record.folder}/{OUTPUT}"

    def jobs(self) -> list[Job]:
        """All jobs of the cluster that Slurm still lists, with those that have just ended."""
        return self.slurm.queue(self.record.names)

    def main(self) -> Job | None:
        """The job that the head is in; None if Slurm no longer lists it."""
        ours = [job for job in self.jobs() if job.name == self.record.name]
        there = [job for job in ours if job.is_there]
        return next(iter([*there, *ours]), None)

    def published(self) -> Published | None:
        """How to reach the cluster; None while its head has not said so."""
        return Published.parse(self.slurm.read(f"{self.record.folder}/{CLUSTER_FILE}") or "")

    def failed(self) -> list[str]:
        """The nodes on which Ray ended by itself, or could not start."""
        marks = [name for name in self.slurm.files(self.record.folder) if name.startswith(FAILED)]
        return [name.removeprefix(FAILED) for name in marks]

    def remove_token(self) -> None:
        """Removes the token of a job that has ended; one that was killed could not do it."""
        self.slurm.remove(f"{self.record.folder}/token")

    @staticmethod
    def waits(job: Job) -> str:
        """A line for people about a job that waits."""
        return f"job {job.id} waits in Slurm's queue: {job.why}"

    def wait_in_queue(self, progress: Progress, timeout_s: float) -> Job:
        """Waits until the job runs.

        Raises:
            SunspotError: it ended, or did not begin within `timeout_s`.
        """
        deadline, told, pause = time.monotonic() + timeout_s, "", pauses()
        while True:
            job = self.main()
            if job is None or not job.is_there:
                raise self.failure(job)
            if not job.waits:
                return job
            if (now := self.waits(job)) != told:
                progress(now)
                told = now
            if time.monotonic() > deadline:
                raise SunspotError(
                    f"after {timeout_s:g} s {now}; "
                    "to wait longer, raise queue_timeout_s in sunspot:slurm"
                )
            time.sleep(next(pause))

    def wait_until_published(self, deadline: float) -> Published:
        """Waits until the head says how to reach the cluster.

        Raises:
            UsageError: the nodes' own checks found what would be wrong again.
            SunspotError: the job ended, or it took too long.
        """
        pause = pauses(POLL_S / 2)
        while (published := self.published()) is None:
            job = self.main()
            if job is None or not job.is_there:
                raise self.failure(job)
            if time.monotonic() > deadline:
                raise SunspotError(
                    f"job {job.id} is {job.state}, but its head did not write "
                    f"{self.record.folder}/{CLUSTER_FILE} in time. Is that folder on the file "
                    f"system that all nodes share? {self.said()}"
                )
            time.sleep(next(pause))
        return published

    def failure(self, job: Job | None) -> SunspotError:
        """The error for a job that has ended before its time."""
        ended = None if job is None else self.slurm.ended(job.id)
        text = f"{self._how(job, ended)}. {self.said()}"
        if ended is not None and (ended.exit_code == WRONG or self.could_not_print(ended)):
            return UsageError(text)
        return SunspotError(text)

    def could_not_print(self, ended: Ended) -> bool:
        """Whether the job failed before its script began: its node does not see its folder."""
        return ended.exit_code == NO_OUTPUT and not self.slurm.exists(self.output)

    def lost(self, name: str) -> HeadLostError:
        """The error for a cluster whose job has ended, its stack being `name`."""
        job = self.main()
        ended = None if job is None else self.slurm.ended(job.id)
        return HeadLostError(
            f"the cluster {name!r} ended with its job: {self._how(job, ended)}. Take it down and "
            f"start again: sunspot down {name} && sunspot up {name}\n{self.said()}"
        )

    def cancel(self, progress: Progress) -> list[str]:
        """Cancels every job of the cluster; returns those that do not end, one line each."""
        deadline, pause = time.monotonic() + CANCEL_TIMEOUT_S, pauses(POLL_S / 2)
        there = [job for job in self.jobs() if job.is_there]
        if there:
            progress(f"cancelling {', '.join(dict.fromkeys(f'job {job.id}' for job in there))}")
            self.slurm.cancel([job.id for job in there])
        while there and time.monotonic() < deadline:
            time.sleep(next(pause))
            there = [job for job in self.jobs() if job.is_there]
        return [f"job {job.id} ({job.state})" for job in there]

    def _how(self, job: Job | None, ended: Ended | None) -> str:
        if job is None:
            return f"Slurm no longer lists the job {self.record.name}"
        state = job.state if ended is None else ended.state
        code = f" with exit code {ended.exit_code}" if ended and ended.exit_code else ""
        return f"job {job.id} is {state}{code}"

    def said(self) -> str:
        """The end of what the batch script printed, as a sentence."""
        text = self.slurm.read(self.output)
        if text is None:
            return f"Its output {self.output} cannot be read here: do all nodes share that folder?"
        tail = "\n".join(text.splitlines()[-OUTPUT_LINES:])
        return f"The end of its output:\n{tail or '(empty)'}"
