"""One job of the stand-in for Slurm, from its start to its end: what slurmctld and slurmd do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from stand_in_slurm import Job, blind, changed, folder, read

KILL_WAIT_S = 60.0
POLL_S = 0.05


def run(number: int) -> None:
    """Runs the job, again and again if it is put back into the queue."""
    while (folder() / "hold").exists() and not read(number)["cancelled"]:
        time.sleep(POLL_S)
    _wait_for_nodes(number)
    while not read(number)["cancelled"]:
        code = _run_once(number)
        with changed(number) as job:
            again = job["requeued"] and not job["cancelled"]
            job["requeued"] = False
            job["restarts"] += 1
            if not again:
                job["state"] = _final(job, code)
                job["reason"] = "None"
                job["code"] = f"{code}:0" if code >= 0 else f"0:{-code}"
        if not again:
            break


def _wait_for_nodes(number: int) -> None:
    """As long as nodes boot, a job is CONFIGURING and without a reason (squeue(1))."""
    while (folder() / "boot").exists() and not read(number)["cancelled"]:
        with changed(number) as job:
            if not job["cancelled"]:
                job |= {"state": "CONFIGURING", "reason": "None"}
        time.sleep(POLL_S)


def _final(job: Job, code: int) -> str:
    if job["cancelled"]:
        return "CANCELLED"
    return "COMPLETED" if code == 0 else "FAILED"


def _run_once(number: int) -> int:
    job = read(number)
    if job["nodes"][0][0] in blind():  # it cannot open the script's output
        return -53
    options = job["components"][0]
    output = Path(job["directory"]) / options["output"].replace("%j", str(number)).replace(
        "%A", job["array"].partition("_")[0]
    ).replace("%a", job["array"].partition("_")[2])
    script = folder() / "jobs" / f"{number}.sh"
    script.write_text(job["script"])
    own = {
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NUM_NODES": str(len(job["nodes"][0])),
        "SLURM_SUBMIT_DIR": job["directory"],
        "SLURM_RESTART_COUNT": str(job["restarts"]),
    }
    with output.open("ab") as printed:
        batch = subprocess.Popen(
            ["/bin/bash", str(script)],
            cwd=job["directory"],
            env=os.environ | own,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    with changed(number) as running:
        running |= {"state": "RUNNING", "reason": "None", "pid": batch.pid}
    terminated_at = None
    while batch.poll() is None:
        now = read(number)
        if terminated_at is None and (now["cancelled"] or now["requeued"]):
            terminated_at = time.monotonic()
            _signal_all(batch.pid, signal.SIGTERM)
        if terminated_at is not None and time.monotonic() - terminated_at > KILL_WAIT_S:
            _signal_all(batch.pid, signal.SIGKILL)
        time.sleep(POLL_S)
    _signal_all(batch.pid, signal.SIGKILL)
    return batch.returncode


def _signal_all(session: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, number)
