"""Slurm's commands on a login node, through SSH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import stand_in_slurm

from sunspot.errors import SunspotError, UsageError
from sunspot.node.processes import Process
from sunspot.node.slurm.plan import Published
from sunspot.targets.protocol import silent
from sunspot.targets.records import Folders
from sunspot.targets.slurm import commands
from sunspot.targets.slurm.life import Life
from sunspot.targets.slurm.records import JOB_FILE, JobRecord, Records
from sunspot.targets.slurm.target import SlurmTarget
from sunspot.targets.ssh import UnreachableError
from sunspot.targets.tunnel import Tunnel

# Runs the last argument, as sshd does, where Slurm is on the PATH.
SSH = """#!/bin/sh
for last; do :; done
PATH="$LOGIN_PATH" exec /bin/sh -c "$last"
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    variables = stand_in_slurm.install(tmp_path / "slurm", {"main": {}})
    monkeypatch.setenv("LOGIN_PATH", variables["PATH"])
    monkeypatch.setenv(stand_in_slurm.FOLDER, variables[stand_in_slurm.FOLDER])
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(SSH)
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    return commands.of("me@login", tmp_path / "known_hosts")


def test_a_command_reads_and_prints(slurm, tmp_path):
    assert slurm.run("sinfo", "--version") == "slurm 22.05.8\n"
    assert slurm.run("cat", text="it's\n") == "it's\n"
    assert slurm.run("echo", "it's", "$HOME") == "it's $HOME\n"


def test_files_are_those_of_the_login_node(slurm, tmp_path):
    folder = f"{tmp_path}/a folder"
    slurm.make_folder(folder)
    slurm.run("sh", "-c", 'cat > "$0/x"', folder, text="abc")
    assert slurm.read(f"{folder}/x") == "abc"
    assert slurm.rest(f"{folder}/x", 1) == b"bc"
    assert slurm.files(folder) == ["logs", "x"]
    slurm.remove(folder)
    assert slurm.read(f"{folder}/x") is None


def test_a_login_node_without_slurm_is_told(slurm, monkeypatch):
    monkeypatch.setenv("LOGIN_PATH", "/nowhere")
    with pytest.raises(UsageError, match="no Slurm on me@login"):
        slurm.queue(["x"])


def test_slurm_is_found_where_only_a_login_shell_has_it(slurm, monkeypatch, tmp_path):
    """github.com/mila-iqia/milatools, issue 3."""
    profile = tmp_path / "profile"
    profile.write_text(f"echo Welcome\ncat\nPATH={os.environ['LOGIN_PATH']}\n")
    monkeypatch.setattr(commands, "PROFILE", str(profile))
    system = tmp_path / "system"
    system.mkdir()
    for name in ("bash", "cat", "env"):
        (system / name).symlink_to(Path("/bin") / name)
    monkeypatch.setenv("LOGIN_PATH", str(system))
    (tmp_path / "slurm" / "hold").touch()
    job = slurm.submit("#!/bin/bash\n#SBATCH --job-name=x\n")
    assert [one.id for one in slurm.queue(["x"])] == [job]
    slurm.cancel([job])


def test_a_login_node_that_does_not_answer_is_told(slurm, monkeypatch, tmp_path):
    (tmp_path / "tools" / "ssh").write_text("#!/bin/sh\necho timed out >&2\nexit 255\n")
    with pytest.raises(UnreachableError, match="me@login"):
        slurm.queue(["x"])


def test_a_machine_without_ssh_is_told(slurm, monkeypatch, tmp_path):
    shutil.rmtree(tmp_path / "tools")
    with pytest.raises(SunspotError, match="no `ssh`"):
        slurm.queue(["x"])


# The tunnel to the head


@pytest.fixture
def job(slurm, tmp_path):
    """The job of a cluster, in its folder on the login node."""
    folder = tmp_path / "clusters" / "job"
    folder.mkdir(parents=True)
    (folder / "token").write_text("secret")
    return JobRecord(name="job", joining={}, folder=str(folder), login_host="me@login")


@pytest.fixture
def target(tmp_path):
    return SlurmTarget(Records(Folders(tmp_path / "state")))


def test_a_tunnel_that_ends_at_once_is_told(target, job, monkeypatch):
    published = Published(gcs="n1:1", dashboard="n1:2", client="n1:3", node="n1")
    monkeypatch.setattr(Tunnel, "open", lambda *_, **__: 8265)
    with pytest.raises(SunspotError, match="has ended just now: try again"):
        target._handle("dev", job, published)


def test_a_tunnel_that_another_command_opens_while_the_cluster_goes_ends_too(
    target, job, tmp_path, monkeypatch
):
    target.records.folders.write("dev", JOB_FILE, asdict(job))
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleeping) as process:

        def cancel(*_):
            record = {"process": asdict(Process.of(process.pid)), "port": 1}
            (tmp_path / "state" / "dev" / "tunnel.json").write_text(json.dumps(record))
            return []

        monkeypatch.setattr(Life, "cancel", cancel)
        try:
            target.down("dev", silent).check("dev")
            assert process.poll() is not None
        finally:
            process.kill()
    assert not [*(tmp_path / "state").glob("**/*tunnel*")]
