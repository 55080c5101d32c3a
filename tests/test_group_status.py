"""The groups of a cluster beside what they may have."""

from dataclasses import replace

from fake_target import node

from sunspot import group_status
from sunspot.group_status import GroupStatus
from sunspot.stack import Stack
from sunspot.targets.scaling import Size

WORKER = {"cpu": 2, "memory_gb": 4}
STACK = Stack.parse(
    {
        "sunspot:target": "local",
        "sunspot:cluster": {
            "head_node": WORKER,
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
            "scaling_groups": [
                {
                    "name": "a",
                    "market": "spot-with-fallback",
                    "worker_nodes": WORKER,
                    "min_workers": 1,
                    "max_workers": 4,
                },
                {
                    "name": "b",
                    "market": "on-demand",
                    "worker_nodes": WORKER,
                    "min_workers": 2,
                    "max_workers": 2,
                },
            ],
        },
    },
    name="dev",
)


def of(group, market, state="up"):
    return replace(node(f"{group}-x", state), group=group, market=market)


def test_a_group_has_its_own_nodes_and_its_twins_by_market():
    nodes = [
        of("head", "on-demand"),
        of("a-on-demand", "on-demand"),
        of("a", "spot"),
        of("a", "spot", "draining"),
        of("a", "spot", "starting"),
        of("a", "spot", "lost"),
        of("b", "on-demand"),
        of("other", "spot"),
    ]
    a, b = group_status.of(STACK, {}, nodes)
    assert a == GroupStatus(
        name="a", minimum=1, maximum=4, now={"spot": 2, "on-demand": 1}, starting=1
    )
    assert list(a.now) == ["spot", "on-demand"]
    assert str(b) == "b 2/1/2: 1 on-demand"


def test_the_limits_are_those_that_scaling_has_set():
    a, b = group_status.of(STACK, {"a": Size(minimum=0, maximum=9), "b": Size(minimum=1)}, [])
    assert (str(a), str(b)) == ("a 0/0/9", "b 1/0/1")


def test_each_node_type_has_a_market():
    assert group_status.markets(STACK) == {
        "head": "on-demand",
        "a": "spot",
        "a-on-demand": "on-demand",
        "b": "on-demand",
    }
