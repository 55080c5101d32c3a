"""What only the nodes can see is wrong: they say so, before any Ray starts."""

from __future__ import annotations

import sys

import pytest
from slurm_site import STAND_IN_RAY, SlurmSite
from waiting import wait_for


def refused(site: SlurmSite) -> str:
    """What `up` says, which leaves nothing."""
    done = site("up", "dev")
    assert done.returncode == 2, done.stderr
    assert not site.shared.exists()
    assert not list((site.state / "slurm").glob("[!.]*/"))
    return done.stderr


def test_a_folder_that_a_node_does_not_see(site: SlurmSite):
    (site.slurm / "blind").write_text("n2")
    said = refused(site)
    assert "node n2 does not see" in said
    assert "folder in sunspot:slurm" in said


@pytest.mark.parametrize("arguments", [("up", "dev"), ("run", "dev", "--", "true")], ids=str)
def test_a_folder_that_the_first_node_does_not_see(site: SlurmSite, arguments):
    (site.slurm / "blind").write_text("n1")
    done = site(*arguments)
    assert done.returncode == 2
    assert "do all nodes share that folder" in done.stderr


def test_a_folder_that_another_made_first(site: SlurmSite):
    (site.slurm / "hold").touch()
    site.slurm_command("sbatch", text=site.ok("manifest", "dev"))
    (job,) = site.jobs()
    prepared = site.root / "prepared"
    prepared.mkdir(mode=0o777)
    site.shared.mkdir()
    (site.shared / f"sunspot-dev-{job['id']}").symlink_to(prepared)
    (site.slurm / "hold").unlink()
    wait_for("the end of the job", lambda: site.jobs()[0]["state"] == "FAILED")
    assert site.jobs()[0]["code"] == "2:0"
    assert not (prepared / "token").exists()


@pytest.mark.parametrize("made", ["storage", "storage/dev"])
def test_a_storage_that_another_made_first(site: SlurmSite, made: str):
    elsewhere = site.root / "prepared"
    elsewhere.mkdir(mode=0o777)
    link = site.shared / made
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    done = site("run", "dev", "--", "true")
    assert done.returncode == 2
    assert f"{link} is a link or" in done.stdout
    assert not site.tokens()


def test_another_ray_on_a_node(site: SlurmSite):
    other = site.root / "other"
    (other / "ray-2.44.0.dist-info").mkdir(parents=True)
    (other / "ray-2.44.0.dist-info" / "METADATA").write_text("Name: ray\nVersion: 2.44.0\n")
    site.write_stack(python=f"env PYTHONPATH={other}:{STAND_IN_RAY} {sys.executable}")
    said = refused(site)
    assert "node n1: " in said
    assert "has Ray 2.44.0, but the stack needs 2.60.0" in said


def test_an_interface_that_a_node_does_not_have(site: SlurmSite):
    site.write_stack(interface="moon0")
    assert "no network interface 'moon0'" in refused(site)


def test_python_that_is_not_there(site: SlurmSite):
    site.write_stack(python="/nowhere/python")
    done = site("run", "dev", "--", "true")
    assert done.returncode == 127
    assert "/nowhere/python" in done.stdout


def test_an_allocation_of_one_node_where_two_are_needed(site: SlurmSite):
    site.slurm_command("sbatch", "--nodes=1", text=site.ok("manifest", "dev"))
    wait_for("the end of the job", lambda: site.jobs()[0]["state"] == "FAILED")
    assert site.jobs()[0]["code"] == "2:0"
    (output,) = site.project.glob("sunspot-dev-*.out")
    assert "1 of the 2 nodes" in output.read_text()


@pytest.mark.parametrize("arguments", [("up", "dev"), ("run", "dev", "--", "true")], ids=str)
def test_a_folder_that_cannot_be_written(site: SlurmSite, arguments):
    (site.root / "file").touch()
    site.write_stack(folder=f"{site.root}/file/shared")
    done = site(*arguments)
    assert done.returncode == 2
    assert "folder" in done.stderr
    assert site.jobs() == []
