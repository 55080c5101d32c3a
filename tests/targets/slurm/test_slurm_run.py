"""`sunspot run`: one job that starts a cluster, runs a command on its head and ends.

What a real Slurm is needed for, or proves as well, is in tests/real/slurm.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from dataclasses import replace

import pytest
from ending import variables_of, words_of
from slurm_site import PYTHON, SlurmSite, group
from waiting import wait_for

# With arguments that the shell would split, and srun take for its own.
PRINT_AND_FAIL = (
    *("--", "sh", "-c", 'echo from $SLURM_JOB_ID at $RAY_ADDRESS, $(umask): "$@"; exit 3'),
    *("sh", ":", "it's  two"),
)
FOREVER = ("--", "sh", "-c", "echo it began; exec sleep 600")


def began(run: subprocess.Popen[str]) -> None:
    """Waits until the command has printed so."""
    assert run.stdout is not None
    while "it began" not in (line := run.stdout.readline()):
        assert line, "it ended"


def tells(run: subprocess.Popen[str], text: str) -> None:
    """Waits until it has printed this for people."""
    assert run.stderr is not None
    while text not in (line := run.stderr.readline()):
        assert line, f"it ended without: {text}"


def test_the_command_runs_on_the_head_and_its_exit_code_is_passed_on(site: SlurmSite):
    done = site("run", "dev", *PRINT_AND_FAIL)
    assert done.returncode == 3, done.stderr
    (job,) = site.jobs()
    line = next(line for line in done.stdout.splitlines() if line.startswith("from"))
    assert line.startswith(f"from {job['id']} at ")
    os.umask(umask := os.umask(0o022))
    assert line.endswith(f", {umask:04o}: : it's  two")
    assert (job["state"], job["code"]) == ("FAILED", "3:0")
    assert not site.processes()


def test_head_and_workers_are_one_job_with_one_component_where_they_are_alike(site: SlurmSite):
    site.write_stack(groups=[group("a"), group("b", minimum=2)])
    assert site("run", "dev", "--", "true").returncode == 0
    (job,) = site.jobs()
    assert len(job["components"]) == 1
    logs = next(site.shared.glob("sunspot-dev-*/logs"))
    assert {log.stem for log in logs.glob("*.log")} == {"head", "a-n2", "b-n3", "b-n4"}


def test_the_token_is_only_in_a_file_that_only_the_user_reads(site: SlurmSite):
    with site.started("run", "dev", *FOREVER) as run:
        began(run)
        (token,) = site.tokens()
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
        secret = token.read_text()
        assert len(secret) == 64
        told = [job["script"] for job in site.jobs()]
        told += [str(variables_of(process)) for process in site.processes()]
        told += [" ".join(words_of(process)) for process in site.processes()]
        assert not [text for text in told if secret in text]
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)


def test_ctrl_c_cancels_the_job(site: SlurmSite):
    with site.started("run", "dev", *FOREVER) as run:
        began(run)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "the job is cancelled" in said
    assert [job["state"] for job in site.jobs()] == ["CANCELLED"]


def test_each_step_until_the_command_begins_is_told(site: SlurmSite):
    (site.slurm / "hold").touch()
    with site.started("run", "dev", *FOREVER) as run:
        tells(run, "submitted job")
        tells(run, "waits in Slurm's queue")
        (site.slurm / "hold").unlink()
        tells(run, "start Ray")
        tells(run, "the command runs")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)


def test_a_batch_script_that_is_killed_is_told(site: SlurmSite):
    with site.started("run", "dev", *FOREVER) as run:
        began(run)
        os.kill(site.jobs()[0]["pid"], signal.SIGKILL)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGKILL
    assert "signal 9" in said


def test_a_detached_run_goes_on(site: SlurmSite):
    done = site("run", "dev", "--detach", "--", "true")
    assert done.returncode == 0
    assert f"submitted job {site.jobs()[0]['id']}" in done.stderr
    wait_for("the job to end", lambda: site.jobs()[0]["state"] == "COMPLETED")


def test_the_notice_before_the_time_limit_drains_the_workers_and_the_command_may_end(
    site: SlurmSite,
):
    """The command ends with 5 once it sees that the worker drains."""
    waiting = 'until ls "$SUNSPOT_CLUSTER"/gcs/*.drained; do sleep 0.1; done; exit 5'
    with site.started("run", "dev", "--", "sh", "-c", f"echo it began; {waiting}") as run:
        began(run)
        os.kill(site.jobs()[0]["pid"], signal.SIGUSR1)
        printed, said = run.communicate(timeout=60)
    assert run.returncode == 5, said
    assert "workers-n2.drained" in printed
    assert "head.drained" not in printed


def test_a_command_that_is_cut_off_begins_again_if_the_stack_says_so(site: SlurmSite):
    """The second start finds what the first one left in the storage, and ends."""
    site.write_stack(requeue=True, notice_s=30)
    work = 'test -e "$SUNSPOT_STORAGE/half" && exit 6; touch "$SUNSPOT_STORAGE/half"'
    command = f"{work}; echo it began; exec sleep 600"
    with site.started("run", "dev", "--", "sh", "-c", command) as run:
        began(run)
        os.kill(site.jobs()[0]["pid"], signal.SIGUSR1)
        _, said = run.communicate(timeout=100)
    (job,) = site.jobs()
    assert (run.returncode, job["restarts"]) == (6, 2), said


def test_a_command_that_is_cut_off_ends_if_the_stack_does_not_say_so(site: SlurmSite):
    site.write_stack(notice_s=30)
    with site.started("run", "dev", *FOREVER) as run:
        began(run)
        os.kill(site.jobs()[0]["pid"], signal.SIGUSR1)
        run.communicate(timeout=60)
    (job,) = site.jobs()
    assert (run.returncode, job["restarts"]) == (128 + signal.SIGTERM, 1)


@pytest.mark.parametrize(("which", "name"), [("HEAD", "head"), ("WORKERS", "workers-n2")])
def test_a_node_that_cannot_start_ends_the_job_and_says_why(site: SlurmSite, which: str, name: str):
    site.write_stack(python=f"env FAIL_{which}=1 {PYTHON}")
    done = site("run", "dev", "--", "true")
    assert done.returncode == 1
    assert f"node {name}: Ray ended" in done.stdout
    assert "it cannot start" in done.stdout


@pytest.mark.parametrize(
    ("which", "slow_starts", "code"), [("HEAD", 1, 0), ("WORKERS", 1, 0), ("HEAD", 2, 1)]
)
def test_a_node_that_was_too_slow_is_started_once_more(
    site: SlurmSite, which: str, slow_starts: int, code: int
):
    site.write_stack(python=f"env SLOW_{which}={slow_starts} {PYTHON}")
    done = site("run", "dev", "--", "true")
    assert done.returncode == code, done.stdout
    assert "took too long to start on this machine: once more" in done.stdout
    assert ("Ray ended" in done.stdout) == bool(code)


def test_a_job_that_slurm_refuses_leaves_no_folder(site: SlurmSite):
    site.write_stack(account="nobody")
    done = site("run", "dev", "--", "true")
    assert done.returncode == 2
    assert "Change account" in done.stderr
    assert not list(site.shared.glob("sunspot-*"))


def test_what_the_users_environment_says_to_sbatch_does_not_change_the_job(site: SlurmSite):
    """Otherwise it would run under another name, and nothing would find it again."""
    wanted = {"SBATCH_JOB_NAME": "mine", "SBATCH_OUTPUT": str(site.root / "mine")}
    done = replace(site, variables={**site.variables, **wanted})("run", "dev", "--", "echo", "seen")
    assert done.returncode == 0, done.stderr
    assert "seen" in done.stdout
    assert site.jobs()[0]["name"].startswith("sunspot-dev-")


def test_a_job_is_submitted_from_within_another_one(site: SlurmSite):
    """Such as that of an interactive session, whose options are not those of the new job."""
    outer = {"SLURM_JOB_ID": "5", "SLURM_MEM_PER_CPU": "4000"}
    done = replace(site, variables={**site.variables, **outer})("run", "dev", "--", "true")
    assert done.returncode == 0, done.stdout + done.stderr
