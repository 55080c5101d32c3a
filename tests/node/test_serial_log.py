"""What the log of a VM's serial console says of a boot that failed."""

import pytest

from sunspot.node.azure import serial_log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[ 9.1] kernel\r\nsunspot: phase image failed: manifest unknown\r\nlogin: ",
            "phase image of its boot failed: manifest unknown",
        ),
        (
            "sunspot: phase token failed: 403\nsunspot: phase image failed: no such tag\n",
            "phase image of its boot failed: no such tag",
        ),
        ("sunspot: phase gpus failed: \n", "phase gpus of its boot failed"),
        ("sunspot: phase gpus failed", "phase gpus of its boot failed"),
        ("[ 9.1] kernel panic", serial_log.NOTHING),
        ("", serial_log.NOTHING),
    ],
)
def test_the_phase_that_failed_last_is_the_reason(text, expected):
    assert serial_log.reason(text) == expected


def test_a_line_is_cut():
    assert len(serial_log.reason("sunspot: phase image failed: " + "x" * 1000)) < 400
