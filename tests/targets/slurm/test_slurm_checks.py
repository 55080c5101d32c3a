"""What a stack asks and Slurm does not have is refused before anything is submitted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import stand_in_slurm

from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.records import Folders
from sunspot.targets.slurm import checks, commands, jobs, script
from sunspot.targets.slurm.commands import Slurm, SlurmError
from sunspot.targets.slurm.records import Records
from sunspot.targets.slurm.target import SlurmTarget

PARTITIONS = {
    "cpu": {"limit": "2:00:00", "nodes": ["n1", "n2"], "cpus": 4, "memory": 8000},
    "gpu": {"nodes": ["g1"], "cpus": 8, "memory": 64_000, "gres": "gpu:t4:2(S:0),gpu:a100:1"},
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    for name, value in stand_in_slurm.install(tmp_path / "slurm", PARTITIONS).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def stack(*, head=None, worker=None, workers=1, **slurm):
    small = {"cpu": 1, "memory_gb": 2}
    group = {
        "name": "workers",
        "min_workers": workers,
        "max_workers": max(1, workers),
        "worker_nodes": small | (worker or {}),
    }
    config = {
        "sunspot:cluster": {
            "head_node": small | (head or {}),
            "scaling_groups": [group],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
        "sunspot:slurm": slurm,
    }
    return Stack.parse(config, name="dev").for_target("slurm")


def refusal(folder, wanted):
    target = SlurmTarget(Records(Folders(folder / "records")))
    with pytest.raises(UsageError) as caught:
        target.up(wanted, print)
    assert not stand_in_slurm.jobs(folder / "slurm")
    assert not (folder / "records").exists()
    return str(caught.value)


def test_a_stack_that_fits_has_no_problem(slurm):
    for wanted in (
        stack(),
        stack(time="2:00:00"),
        stack(workers=1, worker={"gpu_count": 2}, groups={"workers": {"partition": "gpu"}}),
        stack(worker={"gpu_count": 1}, gres="gpu:a100", partition="gpu", workers=0),
        stack(partition="cpu,gpu"),
    ):
        assert checks.of_partitions(wanted, checks.offers(Slurm())) == []


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        ({"partition": "cqu"}, ["partition 'cqu'", "did you mean cpu?", "cpu, gpu"]),
        ({"time": "3:00:00"}, ["slurm > time", "3:00:00", "2:00:00"]),
        ({"workers": 2}, ["head and workers need 3 nodes", "cpu has 2"]),
        ({"workers": 2, "head": {"cpu": 2}, "partition": "gpu"}, ["workers need 2 nodes", "has 1"]),
        ({"head": {"cpu": 5}}, ["head needs 5 CPUs", "largest of partition cpu has 4"]),
        ({"head": {"memory_gb": 16}}, ["head needs 1 CPUs and 16384 MiB", "8000"]),
        (
            {"worker": {"gpu_count": 4}, "partition": "gpu"},
            ["slurm > gres", "needs 4 GPUs", "at most 3"],
        ),
        (
            {"worker": {"gpu_count": 2}, "partition": "gpu", "gres": "gpu:a100"},
            ["needs 2 GPUs (gpu:a100:2)", "at most 1"],
        ),
        ({"worker": {"gpu_count": 1}}, ["slurm > gres", "at most 0 of gpu"]),
        ({"groups": {"wrokers": {}}}, ["no group 'wrokers'", "did you mean workers?"]),
    ],
    ids=str,
)
def test_what_slurm_does_not_have_is_refused(slurm, wanted, parts):
    message = refusal(slurm, stack(**wanted))
    assert message.startswith("stack dev on slurm:")
    for part in parts:
        assert part in message


def test_where_slurm_knows_no_memory_none_is_asked_for(tmp_path, monkeypatch):
    nodes = {"main": {"nodes": ["n1", "n2"], "memory": 1}}
    for name, value in stand_in_slurm.install(tmp_path / "slurm", nodes).items():
        monkeypatch.setenv(name, value)
    assert "set memory: false" in refusal(tmp_path, stack())
    with pytest.raises(UsageError, match="memory: false"):
        Slurm().submit("#!/bin/bash\n#SBATCH --mem=2048M\n")
    wanted = stack(memory=False, extra=["--mem-per-cpu=2G"])
    assert checks.of_partitions(wanted, checks.offers(Slurm())) == []
    assert "--mem=" not in script.manifest(wanted)


def test_a_machine_without_slurm_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    target = SlurmTarget(Records(Folders(tmp_path / "records")))
    with pytest.raises(UsageError, match=r"no Slurm on this machine.*login_host"):
        target.up(stack(), print)


def test_without_a_default_partition_one_must_be_given(slurm):
    offers = [
        checks._offer("cpu|infinite|2|4|8000|(null)"),
        checks._offer("gpu|infinite|2|4|8000|(null)"),
    ]
    (problem,) = {str(one) for one in checks.of_partitions(stack(), offers)}
    assert "no default partition" in problem


def test_what_sbatch_refuses_is_told_with_the_key(slurm):
    with pytest.raises(UsageError, match=r"Invalid account.*Change account"):
        Slurm().submit("#!/bin/bash\n#SBATCH --account=nobody\n")
    with pytest.raises(SlurmError):
        Slurm().run("scontrol", "show", "job", "99")


def test_the_id_is_found_behind_what_a_sites_own_sbatch_prints(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_CLUSTERS", "slaking")
    greeting = slurm / "slurm" / "greeting"
    greeting.write_text("Welcome to Stampede 3\n--> Checking 2 quotas...OK\n")
    (slurm / "slurm" / "hold").touch()
    job = Slurm().submit("#!/bin/bash\n#SBATCH --job-name=x\n")
    assert [one.id for one in Slurm().queue(["x"])] == [job]
    Slurm().cancel([job])
    tool = slurm / "slurm" / "bin" / "sbatch"
    tool.write_text("#!/bin/sh\necho Submitted\n")
    with pytest.raises(SlurmError, match="no job's id: 'Submitted'"):
        Slurm().submit("#!/bin/bash\n")


@pytest.mark.parametrize(
    "said",
    ["Rate limit exceeded, please retry momentarily", "Slurm backup controller in standby mode"],
)
def test_what_another_slurm_says_when_it_is_busy(said):
    assert commands._is_busy(SlurmError(f"`squeue` failed: slurm_load_jobs error: {said}"))


def test_a_quality_of_service_may_allow_more_time(slurm):
    wanted = stack(time="3:00:00", qos="long")
    assert checks.of_partitions(wanted, checks.offers(Slurm())) == []


# The commands


def test_a_busy_controller_is_asked_again(slurm, monkeypatch):
    monkeypatch.setattr(commands, "RETRY_S", 0.01)
    told = []
    (slurm / "slurm" / "busy").write_text("2")
    assert Slurm(progress=told.append).queue(["x"]) == []
    assert len(told) == 1
    assert "controller" in told[0]
    (slurm / "slurm" / "busy").write_text("2")
    assert checks.offers(Slurm())
    monkeypatch.setattr(commands, "PATIENCE_S", -1)
    (slurm / "slurm" / "busy").write_text("1")
    with pytest.raises(SlurmError, match="Unable to contact"):
        Slurm().queue(["x"])


def test_what_the_users_environment_hides_is_seen(slurm, monkeypatch):
    monkeypatch.setenv("SINFO_PARTITION", "gpu")
    monkeypatch.setenv("SQUEUE_PARTITION", "gpu")
    assert {offer.partition for offer in checks.offers(Slurm())} == set(PARTITIONS)
    (slurm / "slurm" / "hold").touch()
    job = Slurm().submit("#!/bin/bash\n#SBATCH --job-name=x\n")
    assert [one.id for one in Slurm().queue(["x"])] == [job]
    Slurm().cancel([job])


def test_what_will_not_change_is_not_asked_again(slurm, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 0, sleep=lambda _seconds: pytest.fail("asked again"))
    monkeypatch.setattr(commands, "time", clock)
    assert Slurm().ended("99") is None
    Slurm().cancel(["99"])


def test_a_forgotten_job_of_a_site_without_sacct_is_not_a_missing_slurm(slurm, monkeypatch):
    (slurm / "slurm" / "bin" / "sacct").unlink()
    monkeypatch.setenv("PATH", str(slurm / "slurm" / "bin"))
    assert Slurm().ended("99") is None


def test_elements_of_an_array_that_wait_are_told_apart(slurm):
    (slurm / "slurm" / "hold").touch()
    array = Slurm().submit("#!/bin/bash\n#SBATCH --array=1-3\n#SBATCH --job-name=x\n")
    assert [job.id for job in Slurm().queue(["x"])] == [f"{array}_{n}" for n in (1, 2, 3)]
    Slurm().cancel([f"{array}_2"])
    assert [job.is_there for job in Slurm().queue(["x"])] == [True, False, True]
    Slurm().cancel([array])


@pytest.mark.parametrize(
    ("state", "there", "waits"),
    [
        ("CONFIGURING", True, True),
        ("RESV_DEL_HOLD", True, True),
        ("COMPLETING", True, False),
        ("EXPEDITING", True, False),
        ("REVOKED", False, False),
        ("OUT_OF_MEMORY", False, False),
    ],
)
def test_a_job_is_there_until_slurm_says_that_it_has_ended(state, there, waits):
    job = jobs.Job(id="17", name="x", state=state)
    assert (job.is_there, job.waits) == (there, waits)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("(null)", {}),
        ("gpu:4", {"": 4}),
        ("gpu:a100:4(S:0-1),nvme:1", {"a100": 4}),
        ("gpu:1g.5gb:7,gpu:t4:1(S:0,1)", {"1g.5gb": 7, "t4": 1}),
    ],
)
def test_the_gpus_of_a_node_as_sinfo_prints_them(gres, expected):
    assert checks._gpus(gres) == expected


def test_doctor_tells_each_precondition(slurm):
    target = SlurmTarget(Records(Folders(slurm / "records")))
    folder = str(slurm / "shared")
    found = {one.check: one for one in target.preconditions(stack(folder=folder), print)}
    assert {name: one.level for name, one in found.items()} == {
        "Slurm": "ok",
        "nodes": "ok",
        "folder": "ok",
        "time": "warning",
    }
    assert not (slurm / "shared").exists()
    (slurm / "shared").write_text("not a folder")
    found = {one.check: one for one in target.preconditions(stack(folder=folder), print)}
    assert "is not a folder" in found["folder"].detail
    wrong = stack(partition="x", folder="$NOWHERE/clusters")
    found = {one.check: one for one in target.preconditions(wrong, print)}
    assert found["partition"].level == "failure"
    assert found["folder"].level == "failure"
