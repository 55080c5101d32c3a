"""What is read as the settings of a cluster, and what is refused."""

import base64
import hashlib
import json
import subprocess
import sys

import pytest

from sunspot.node.azure import live
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.live import Live, LiveSettings, LiveSettingsError


def changed(**changes):
    types = {
        "head": {"resources": {}, "min_workers": 0, "max_workers": 0},
        "a": {"resources": {"CPU": 1}, "min_workers": 1, "max_workers": 2},
    }
    provider = {"scale_sets": {"a": "set"}, "maximums": {"a": 2}, "twins": {}, "fixed": ["f"]}
    known = {
        "head_node_type": "head",
        "available_node_types": types,
        "provider": provider,
        "max_workers": 2,
    }
    return LiveSettings(autoscaler={**known, **changes}, prices={"head": 0.1}).text()


def test_right_settings_are_read():
    found = live.parse(changed())
    assert found.prices == {"head": 0.1}
    assert live.parse(found.text()) == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "available_node_types": {
                    "a": {"resources": {}, "min_workers": 3, "max_workers": 2},
                }
            },
            "'a' has 3 to 2 workers",
        ),
        ({"available_node_types": {"b": {}}}, "'min_workers' is missing"),
        (
            {"provider": {"scale_sets": {}, "maximums": {"a": 1}, "twins": {}, "fixed": []}},
            "scale_sets lacks a",
        ),
        (
            {
                "provider": {
                    "scale_sets": {"a": "x"},
                    "maximums": {"a": 1},
                    "twins": {"a": "b"},
                    "fixed": [],
                }
            },
            "twins has b",
        ),
        (
            {
                "provider": {
                    "scale_sets": {"a": "x"},
                    "maximums": {"a": 1},
                    "twins": {},
                    "fixed": ["a"],
                }
            },
            "a: fixed, and not",
        ),
        ({"max_workers": None}, "max_workers is None"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(LiveSettingsError, match=message):
        live.parse(changed(**changes))


@pytest.mark.parametrize("change", [(":2", ":3"), ("set", "sit"), ("0.1", "0.2")])
def test_settings_that_somebody_edited_are_refused(change):
    with pytest.raises(LiveSettingsError, match="checksum"):
        live.parse(changed().replace(*change))


def test_what_cannot_be_read_at_all_is_refused():
    for wrong in (
        "[" * 100_000,
        '{"autoscaler": null, "prices": {"a": 1' + "0" * 400 + "}}",
        "null",
    ):
        checksum = hashlib.sha256(wrong.encode()).hexdigest()
        with pytest.raises(LiveSettingsError, match="not the settings"):
            live.parse(f"{checksum}\n{wrong}")


def test_imds_gives_the_user_data_and_prices_follow_it(arm):
    arm.imds.user_data = LiveSettings(prices={"head": 0.2}).text()
    settings = Live(Imds(arm.url))
    assert settings.latest().prices == {"head": 0.2}
    arm.imds.user_data = LiveSettings(prices={"head": 0.3}).text()
    assert settings.latest().prices == {"head": 0.3}


def run(kept, text):
    """What the host runs before it starts Ray; without packages, as there."""
    return subprocess.run(
        [sys.executable, "-I", "-S", live.__file__, str(kept)],
        input=base64.b64encode(text.encode()).decode(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_boot_with_wrong_settings_uses_the_last_right_ones(tmp_path):
    kept = tmp_path / "live.json"
    first = run(kept, "{}")
    assert (first.returncode, first.stdout) == (1, "")
    assert "refused" in first.stderr
    right = run(kept, changed())
    assert json.loads(right.stdout)["max_workers"] == 2
    for wrong in ("{}", "\xff", LiveSettings(prices={"head": 1.0}).text()):
        again = run(kept, wrong)
        assert (again.returncode, again.stdout) == (0, right.stdout)
        assert "refused" in again.stderr
    kept.write_bytes(b"\xff")
    last = run(kept, "{}")
    assert (last.returncode, last.stdout) == (1, "")
    assert "cannot be used either" in last.stderr
