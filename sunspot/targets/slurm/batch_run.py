"""`sunspot run`: one job that brings a cluster up, runs a command on its head and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from sunspot.errors import SunspotError, UsageError
from sunspot.signals import deferred, uninterrupted
from sunspot.stack import Stack
from sunspot.targets.protocol import Progress
from sunspot.targets.slurm import following, plan, script
from sunspot.targets.slurm.commands import Slurm
from sunspot.targets.slurm.jobs import Job
from sunspot.targets.slurm.life import OUTPUT, Life
from sunspot.targets.slurm.records import new_job
from sunspot.targets.slurm.script import Submission

# What a command that was killed from outside ends with, where Slurm has no exit code for it.
KILLED = 1


def run(
    slurm: Slurm,
    stack: Stack,
    command: Sequence[str],
    out: TextIO,
    progress: Progress,
    *,
    follow: bool,
) -> int:
    """Submits the job and, with `follow`, prints its output until it ends.

    The job's folder with the nodes' logs stays; the token in it is removed by the job itself.

    Returns:
        The exit code of the job's script, which is the command's.
    """
    job = plan.settings(stack)
    record = new_job(stack, slurm.expand(job.folder), job.login_host)
    submission = Submission(
        name=record.name,
        folder=record.folder,
        output=f"{record.folder}/{OUTPUT}",
        command=tuple(command),
        requeue=job.requeue,
    )
    life = Life(slurm, record)
    try:
        with deferred():
            slurm.make_folder(record.folder)
            number = slurm.submit(script.batch(stack, submission))
    except BaseException as error:
        # A controller that did not answer in time may have the job all the same.
        with uninterrupted():
            if _cancel(error, life, progress):
                slurm.remove(record.folder)
        raise
    try:
        progress(f"submitted job {number}; its output and logs: {record.folder}")
        return _follow(life, number, out, progress) if follow else 0
    except KeyboardInterrupt as interrupt:
        with uninterrupted():
            _cancel(interrupt, life, progress)
            life.remove_token()
        raise


def _cancel(error: BaseException, life: Life, progress: Progress) -> bool:
    """Cancels the job; returns whether it is gone, which the error says too."""
    try:
        left = life.cancel(progress)
    except SunspotError as failure:
        left = [f"maybe a job {life.record.name} ({failure}); look with: squeue --me"]
    if left:
        error.add_note(f"still there: {', '.join(left)}")
    elif isinstance(error, KeyboardInterrupt):
        error.add_note("the job is cancelled")
    return not left


def _follow(life: Life, number: str, out: TextIO, progress: Progress) -> int:
    """Prints the job's output as it grows; returns the exit code."""
    told = ""

    def goes_on() -> bool:
        nonlocal told
        job = life.main()
        if job is None or not job.is_there:
            return False
        if (now := _doing(life, job, told)) != told:
            progress(now)
            told = now
        return True

    try:
        following.follow(life.slurm, life.output, out, goes_on)
        ended = life.slurm.ended(number)
        life.remove_token()
    except SunspotError as error:
        error.add_note(f"job {number} goes on; its output: {life.output}")
        raise
    if ended is None:
        raise SunspotError(
            f"job {number} has ended, but neither Slurm's controller nor its accounting knows how; "
            f"see {life.output}"
        )
    if life.could_not_print(ended):
        raise UsageError(life.said())
    if ended.state not in {"COMPLETED", "FAILED"}:
        progress(f"job {number} is {ended.state}")
        return ended.exit_code or KILLED
    if ended.signal:
        progress(f"job {number}: its batch script was killed by signal {ended.signal}")
    return ended.exit_code


def _doing(life: Life, job: Job, told: str) -> str:
    """What a job does, as a line for people; `told` is the line before."""
    if job.waits:
        return life.waits(job)
    if not job.runs:
        return f"job {job.id} is {job.state}"
    begun = f"job {job.id}: all nodes have joined, the command runs"
    # The job empties that file at its end.
    if told == begun or life.published() is not None:
        return begun
    return f"job {job.id} runs: its nodes start Ray"
