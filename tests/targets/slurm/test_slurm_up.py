"""A cluster that stays, beside stand-ins; its way from up to down is in the contract."""

from __future__ import annotations

import json
import os
import signal

import pytest
from slurm_site import SlurmSite, group
from waiting import wait_for

from sunspot.node.slurm.plan import drain_message
from sunspot.targets import members
from sunspot.targets.slurm.records import CLUSTER_FILE, JOB_FILE


def status(site: SlurmSite, name: str = "dev"):
    return json.loads(site("status", name, "--json").stdout)


def names(site: SlurmSite) -> list[str]:
    return [node["name"] for node in status(site)["nodes"]]


def test_further_workers_are_a_job_array_that_joins_and_leaves_one_by_one(site: SlurmSite):
    site.write_stack(groups=[group(maximum=3)])
    site.ok("up", "dev")
    site.ok("scale", "workers=3")
    _, first, second = (job["id"] for job in site.jobs())
    assert set(names(site)) == {
        *("head", "workers-n2", f"workers-n1-{first}", f"workers-n1-{second}")
    }
    assert site.jobs()[1]["array"] == f"{first}_1"
    site.ok("scale", "workers=2")
    # The newest left first, drained.
    assert names(site) == ["head", f"workers-n1-{first}", "workers-n2"]
    assert [job["state"] for job in site.jobs()] == ["RUNNING", "RUNNING", "COMPLETED"]
    refused = site("scale", "workers=0")
    assert (refused.returncode, "workers=0" in refused.stderr) == (2, True)
    site.ok("down", "dev")
    assert not [job for job in site.jobs() if job["state"] == "RUNNING"]


def test_workers_that_do_not_join_are_cancelled(site: SlurmSite):
    site.ok("up", "dev")
    (site.slurm / "hold").touch()
    with site.started("scale", "workers=2") as scale:
        assert scale.stderr is not None
        while "submitted job" not in (line := scale.stderr.readline()):
            assert line, "it ended"
        scale.send_signal(signal.SIGINT)
        scale.communicate(timeout=60)
    assert scale.returncode == 130
    assert site.jobs()[1]["state"] == "CANCELLED"
    assert names(site) == ["head", "workers-n2"]


def test_ctrl_c_while_the_job_waits_in_the_queue_leaves_nothing(site: SlurmSite):
    (site.slurm / "hold").touch()
    with site.started("up", "dev") as up:
        assert up.stderr is not None
        while "waits in Slurm's queue: Resources" not in (line := up.stderr.readline()):
            assert line, "it ended"
        waiting = site("status", "dev")
        assert (waiting.returncode, "Resources" in waiting.stderr) == (1, True)
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
    assert up.returncode == 130
    assert [job["state"] for job in site.jobs()] == ["CANCELLED"]
    assert not site.shared.exists()
    assert not list((site.state / "slurm").glob("[!.]*/"))


def test_what_a_killed_up_submitted_is_found_by_the_next_commands(site: SlurmSite):
    (site.slurm / "hold").touch()
    with site.started("up", "dev") as up:
        wait_for("the job", site.jobs)
        up.kill()
    (site.slurm / "hold").unlink()
    assert "dev is up" in site.ok("up", "dev")
    assert len(site.jobs()) == 1
    assert "dev is down" in site.ok("down")


@pytest.mark.parametrize("mark", ["hold", "boot"])
def test_a_wait_in_the_queue_has_a_limit(site: SlurmSite, mark: str):
    """Also where the nodes are allocated and boot: then the time of a start has not begun."""
    site.write_stack(queue_timeout_s=1)
    (site.slurm / mark).touch()
    done = site("up", "dev")
    assert done.returncode == 1
    assert "queue_timeout_s" in done.stderr
    assert [job["state"] for job in site.jobs()] == ["CANCELLED"]


def test_a_cluster_whose_job_has_ended_is_told_as_lost(site: SlurmSite):
    site.ok("up", "dev")
    (job,) = site.jobs()
    os.kill(job["pid"], signal.SIGUSR1)
    found = status(site)  # the notice takes effect later
    assert found["problem"] is None
    os.killpg(job["pid"], signal.SIGKILL)
    wait_for("the job to end", lambda: site.jobs()[0]["state"] == "FAILED")
    done = site("status", "dev", "--json")
    assert done.returncode == 1
    assert f"job {job['id']} is FAILED" in json.loads(done.stdout)["problem"]
    assert "dev is down" in site.ok("down", "dev")


def test_a_broken_record_does_not_keep_the_cluster_up(site: SlurmSite):
    site.ok("up", "dev")
    (site.state / "slurm" / "dev" / CLUSTER_FILE).write_text("{")
    done = site("status", "dev", "--json")
    assert "the records of 'dev' are broken" in json.loads(done.stdout)["problem"]
    assert "dev is down" in site.ok("down", "dev")
    assert [job["state"] for job in site.jobs()] == ["CANCELLED"]


def test_without_the_jobs_record_no_command_advises_a_down_that_fails(site: SlurmSite):
    site.ok("up", "dev")
    record = site.state / "slurm" / "dev" / JOB_FILE
    text = record.read_text()
    for broken, command in (("{", "status"), ("{}", "up"), ("{", "down")):
        record.write_text(broken)
        done = site(command, "dev")
        assert done.returncode == 1
        assert str(record) in done.stderr
        assert "scancel" in done.stderr
        assert "sunspot down" not in done.stderr
    record.write_text(text)
    site.ok("down", "dev")


def test_the_printed_script_works_by_itself(site: SlurmSite, monkeypatch):
    text = site.ok("manifest", "dev")
    script = site.root / "job.sh"
    script.write_text(text)
    job = site.slurm_command("sbatch", "--parsable", text=text).strip()
    wait_for("the cluster", lambda: list(site.shared.glob(f"sunspot-dev-{job}/cluster.json")))
    wait_for("its members", lambda: len(list(site.shared.glob("*/gcs/*.json"))) == 2)
    site.slurm_command("scancel", job)
    wait_for("its end", lambda: site.jobs()[0]["state"] == "CANCELLED")
    assert (site.project / f"sunspot-dev-{job}.out").exists()


@pytest.mark.parametrize(
    ("why", "state"), [(drain_message(17), None), ("the raylet was killed", "lost")], ids=str
)
def test_a_worker_that_was_drained_is_not_lost(why: str, state: str | None):
    message = f"Terminated due to preemption: {why}"
    member = {"state": "DEAD", "node_name": "workers-n1-18", "state_message": message}
    found = members.node(member)
    assert (found.state if found else None) == state
