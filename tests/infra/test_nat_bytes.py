"""Bytes through the NAT gateway for a worker's life, counted by a proxy: before and after."""

import pytest
from builds import build, group, make_stack
from nat_gateway import LAYER_BYTES, LAYERS, MANIFEST_BYTES, RESULT_BYTES, life_of
from test_nodes import environment, machines

IMAGE = LAYERS * LAYER_BYTES


@pytest.fixture(scope="module")
def made():
    """What the program makes, with copies of the images and without, by `mirror`."""
    return {on: build(make_stack(group(), image={"mirror": on})) for on in (True, False)}


def passed(run, *, endpoints=True):
    """What passes the gateway; without `endpoints` as if the subnet had none."""
    network = run.one("VirtualNetwork").inputs
    (subnet,) = [one for one in network["subnets"] if one["name"] == "workers"]
    if not endpoints:
        subnet = {key: value for key, value in subnet.items() if key != "serviceEndpoints"}
    worker = machines(run)[-1]
    assert environment(worker)["SUNSPOT_SCALE_SET"]
    with life_of(subnet, environment(worker)["SUNSPOT_IMAGE"]) as gateway:
        return gateway.passed


def test_before_all_of_it_passes(made):
    assert passed(made[False], endpoints=False) == IMAGE + MANIFEST_BYTES + RESULT_BYTES


def test_now_a_manifest_passes_and_where_the_layers_are(made):
    assert passed(made[True]) <= MANIFEST_BYTES + LAYERS * 200


def test_it_takes_both_the_copies_and_the_endpoint(made):
    assert passed(made[True], endpoints=False) >= IMAGE + RESULT_BYTES
    assert passed(made[False]) == IMAGE + MANIFEST_BYTES
