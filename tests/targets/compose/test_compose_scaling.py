"""Scaling by hand in Docker Compose; the engine is a stand-in."""

import pytest
from compose_stacks import COURSE
from stand_in_docker import services

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.protocol import silent
from sunspot.targets.scaling import Size


def test_scale_starts_and_removes_the_groups_workers(up, docker):
    handle = up.handle("course")
    up.scale("course", {"workers": Size(minimum=3)}, silent)
    assert {"workers-1", "workers-2", "workers-3"} <= services(docker)
    up.scale("course", {"workers": Size(minimum=1)}, silent)
    assert "workers-1" in services(docker)
    assert not {"workers-2", "workers-3"} & (services(docker) | services(docker, "exited"))
    assert [node.name for node in up.nodes(handle.name)] == ["head", "workers-1"]


def test_a_second_up_keeps_what_scale_has_set(up, docker):
    up.scale("course", {"workers": Size(minimum=2)}, silent)
    up.up(COURSE, silent)
    assert "workers-2" in services(docker)


def test_a_second_up_waits_for_no_more_than_scale_has_left(up, docker):
    up.scale("course", {"workers": Size(minimum=0)}, silent)
    assert up.up(COURSE, silent, timeout_s=5).was_up
    assert "workers-1" not in services(docker)


def test_a_range_is_reached_by_its_nearest_number_since_nothing_scales_within_it(up, docker):
    up.scale("course", {"workers": Size(minimum=2, maximum=3)}, silent)
    assert up.sizes("course") == {"workers": Size(minimum=2)}
    up.scale("course", {"workers": Size(minimum=0, maximum=3)}, silent)
    assert up.sizes("course") == {"workers": Size(minimum=2)}
    up.scale("course", {"workers": Size(minimum=0, maximum=1)}, silent)
    assert up.sizes("course") == {"workers": Size(minimum=1)}
    assert "workers-2" not in services(docker)


def test_a_scale_that_fails_leaves_what_there_was(up, docker):
    docker().fail(compose_up="no space left on device")
    with pytest.raises(SunspotError, match="full"):
        up.scale("course", {"workers": Size(minimum=3)}, silent)
    assert [node.name for node in up.nodes("course")] == ["head", "workers-1"]


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ({"moon": Size(minimum=1)}, "moon"),
        ({"workers": Size(minimum=4)}, "4 is outside 0 to 3"),
        ({"workers": Size(minimum=0, maximum=4)}, "0:4 is outside 0 to 3"),
    ],
)
def test_scale_refuses_what_cannot_be(up, docker, counts, named):
    before = docker().state
    with pytest.raises(UsageError, match=named):
        up.scale("course", counts, silent)
    assert docker().state == before
