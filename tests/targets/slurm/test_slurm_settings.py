"""What a stack file may say of Slurm, and what is refused."""

from __future__ import annotations

import pytest

from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.slurm import plan
from sunspot.targets.slurm.settings import seconds

CLUSTER = {"head_node": {"cpu": 1, "memory_gb": 2}}


def parse(**slurm):
    return Stack.parse({"sunspot:cluster": CLUSTER, "sunspot:slurm": slurm}, name="dev")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("1:00:00", 3600),
        ("2-12", 216_000),
        ("1-00:30", 88_200),
        ("1-00:00:01", 86_401),
    ],
)
def test_a_time_in_slurms_notation(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"time": 3600}, ["time: 3600", '"1:00:00"']),
        ({"time": "soon"}, ["time: 'soon'"]),
        ({"time": "0"}, ["time: '0'"]),
        ({"time": "1:00", "notice_s": 120}, ["notice_s 120", "1:00"]),
        ({"notice_s": 5}, ["notice_s: 5"]),
        ({"partition": "two words"}, ["partition: 'two words'"]),
        ({"gres": "gpu:2"}, ["gres: 'gpu:2'", "gpu_count"]),
        ({"extra": ["-C a100"]}, ["'-C a100'", "--constraint"]),
        ({"extra": ["--nodes=4"]}, ["--nodes is set by Sunspot"]),
        ({"extra": ["--mem-per-cpu=3968"]}, ["--mem-per-cpu=3968", "memory: false"]),
        ({"groups": {"head": {"extra": ["--mem-per-gpu=1G"]}}}, ["--mem-per-gpu=1G"]),
        ({"extra": ["--clusters=b"]}, ["--clusters=b", "SLURM_CLUSTERS"]),
        ({"extra": ["--wait"]}, ["--wait is set by Sunspot"]),
        ({"login_host": "-oProxyCommand=true"}, ["login_host: '-oProxyCommand=true'"]),
        ({"extra": ["--time=1"]}, ["--time has a place of its own"]),
        ({"setup": ["a\nb"]}, ["setup", "several lines"]),
        ({"folder": "clusters"}, ["folder: 'clusters'"]),
        ({"folder": '/x"; rm -rf /'}, ["folder"]),
        ({"interface": "eth0; true"}, ["interface: 'eth0; true'"]),
        ({"container": {"kind": "docker", "image": "x"}}, ["container > kind", "apptainer"]),
        ({"container": {"kind": "apptainer"}}, ["container > image", "missing"]),
        ({"partitoin": "x"}, ["partitoin: unknown key", "partition"]),
        ({"groups": {"head": {"time": "1"}}}, ["groups > head > time: unknown key"]),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_with_its_key(settings, parts):
    with pytest.raises(UsageError) as caught:
        parse(**settings)
    assert "config > sunspot:slurm" in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_a_group_has_its_own_place_over_that_of_the_cluster():
    stack = parse(
        partition="cpu",
        account="us",
        extra=["--exclusive"],
        groups={"head": {"partition": "small", "extra": ["--constraint=x"]}},
    )
    job = plan.settings(stack)
    head, workers = job.place("head"), job.place("workers")
    assert (head.partition, head.account) == ("small", "us")
    assert head.extra == ("--exclusive", "--constraint=x")
    assert workers.partition == "cpu"


def test_a_stack_without_settings_has_those_that_are_usual():
    stack = Stack.parse({"sunspot:cluster": CLUSTER}, name="dev")
    assert plan.settings(stack).folder == "~/.sunspot/slurm"
