"""The record of a head on Azure: read over a real sshd, and what the commands show of it."""

import json
import os
from dataclasses import replace

import pytest
from azure_stacks import run, up
from job_api import TOKEN
from ssh_server import needs_sshd, prepared, running

from sunspot import status
from sunspot.errors import SunspotError
from sunspot.node.azure.record import HeadRecord
from sunspot.node.events import Event
from sunspot.node.notices import Notice
from sunspot.targets.azure import history
from sunspot.targets.ssh import Ssh, UnreachableError

pytestmark = needs_sshd

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """A head whose `sudo` becomes no other user."""
    server = prepared(tmp_path_factory.mktemp("sshd"))
    server.token.write_text(f"{TOKEN}\n")
    server.stub(
        "sudo",
        'case "$*" in\n'
        f'"-n cat /run/sunspot/token") exec /bin/cat {server.token} ;;\n'
        f'"-n setpriv --reuid={os.getuid()} --regid={os.getuid()} --clear-groups "*)\n'
        'shift 5; exec "$@" ;;\n'
        "esac\necho refused >&2; exit 9",
    )
    with running(server):
        yield server


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record that the head keeps; empty."""
    found = HeadRecord(tmp_path / "record")
    found.folder.mkdir()
    monkeypatch.setattr(history, "HeadRecord", lambda: found)
    return found


@pytest.fixture
def head(sshd, tmp_path):
    return Ssh.parse(sshd.command, key=sshd.key, known_hosts=tmp_path / "known_hosts")


def fill(record, now=1e9):
    record.events.add(Event(kind="launched", group="gpu", node="vm_1", time=now - 2 * HOUR_S))
    record.events.add(Event(kind="evicted", group="gpu", node="vm_1", time=now - HOUR_S))
    record.notices.put(Notice(about="group:gpu", text="gpu is paused", since=now))


def test_the_record_of_a_head_is_what_is_written_there(head, record):
    fill(record)
    found = history.recorded(head)
    assert found.events == record.events.read()
    assert found.notices == record.notices.read()
    assert [len(found.events), len(found.notices)] == [2, 1]


def test_a_head_that_has_nothing_to_tell_or_is_older_has_an_empty_record(head, record):
    assert history.recorded(head) == history.Recorded(events=[], notices=[])
    record.folder.rmdir()
    assert history.recorded(head) == history.Recorded(events=[], notices=[])


def test_a_refused_command_is_an_error(head, record, sshd):
    sudo = (sshd.folder / "bin/sudo").read_text()
    sshd.stub("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    try:
        with pytest.raises(SunspotError, match="a password is required"):
            history.recorded(head)
    finally:
        (sshd.folder / "bin/sudo").write_text(sudo)


def test_a_head_that_cannot_be_reached_is_an_error(head, record):
    gone = replace(head, command=("ssh", "-p", "1", "nobody@127.0.0.1"))
    with pytest.raises(UnreachableError):
        history.recorded(gone)


def test_events_of_a_cluster_on_azure_are_printed(place, record):
    fill(record)
    up(place)
    lines = [json.loads(line) for line in run("events", "x", "--json").stdout.splitlines()]
    assert [(line["kind"], line["node"]) for line in lines] == [
        ("launched", "vm_1"),
        ("evicted", "vm_1"),
    ]


def test_status_has_the_evictions_the_notices_and_the_cost_so_far(place, record, monkeypatch):
    now = 1e9
    fill(record, now)
    monkeypatch.setattr(status.recorded.time, "time", lambda: now)
    up(place)
    found = json.loads(run("status", "x", "--json").stdout)
    assert found["evicted_last_day"] == {"gpu": 1}
    assert [notice["text"] for notice in found["notices"]] == ["gpu is paused"]
    price = place.target.hourly_prices("x")["gpu"]
    assert found["cost_so_far"] == {
        "spot": {"hours": 1.0, "usd": pytest.approx(price), "price_unknown": []}
    }
    assert [(group["name"], group["now"]) for group in found["groups"]] == [
        ("fixed", {"spot": 2}),
        ("gpu", {}),
    ]


def test_a_record_that_cannot_be_read_leaves_the_rest_of_the_status(place, record, sshd):
    up(place)
    sudo = (sshd.folder / "bin/sudo").read_text()
    sshd.stub("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    try:
        found = json.loads(run("status", "x", "--json").stdout)
    finally:
        (sshd.folder / "bin/sudo").write_text(sudo)
    assert "a password is required" in found["record_problem"]
    assert found["problem"] is None
    assert len(found["nodes"]) == 3
