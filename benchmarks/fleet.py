"""What a tick of Ray's autoscaler costs on Azure with 10, 100 and 1,000 machines.

A tick lists the machines, and asks for the tags and the state of each, as Ray's adapter does it.
Azure is a stand-in on the loopback address, whose lists come in pages of 100 machines: how many
Azure's have, its pages do not say. Compared is the CPU time of the provider's thread with 1,000
machines to that with 100; both sides run in turn.

The last line has the requests of a minute of ticks for each number of machines, and their share of
what Azure allows a subscription in a region (its page "Compute throttling limits", High Cost Get
VM: 300 a minute), of which the aim is a quarter at most. And the CPU seconds in which `status`
reads a record in which each machine was replaced ten times, which is a week on spot, and adds up
its cost.

    python benchmarks/fleet.py
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import _options
from _pairs import compare

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from azure_model import arm as arm_model
from azure_model.arm import GROUP, HEAD, Arm, serving
from azure_model.compute import Vm
from azure_model.resource_ids import SUBSCRIPTION

from sunspot.node import events, ledger
from sunspot.node.autoscaler import MachinesProvider
from sunspot.node.azure import scale_sets
from sunspot.node.events import Event

FLEETS = (10, 100, 1000)
PAGE = 100
TICKS = 5
PAIRS = 5
# AUTOSCALER_UPDATE_INTERVAL_S of Ray 2.60.
TICK_S = 5
LISTS_A_MINUTE = 300
SET = "sunspot-test-gpu"
# How often each machine of a record was replaced.
LIVES = 10


@contextlib.contextmanager
def fleet(machines: int) -> Iterator[tuple[MachinesProvider, Arm]]:
    """Yield a provider of one group with this many machines, and the stand-in for Azure."""
    with serving() as arm, tempfile.TemporaryDirectory(prefix="sunspot-bench-") as folder:
        arm.add(SET)
        for number in range(machines):
            name = f"{SET}_{number:08x}"
            arm.vms[name] = Vm(name, SET, "Succeeded")
        config = Path(folder) / "config.yaml"
        config.write_text('{"available_node_types": {}}')
        provider = {
            "machines": "sunspot.node.azure.scale_sets.create",
            "subscription_id": SUBSCRIPTION,
            "resource_group": GROUP,
            "identity_client_id": "client",
            "head": HEAD,
            "head_type": "head",
            "scale_sets": {"gpu": SET},
            "maximums": {"gpu": machines},
            "twins": {},
            "config_file": str(config),
            "imds_url": arm.url,
            "arm_url": arm.url,
        }
        yield MachinesProvider(provider, "bench"), arm


def tick(provider: MachinesProvider) -> int:
    """Do what Ray does at a tick; return the number of nodes."""
    nodes = provider.non_terminated_nodes({})
    for node in nodes:
        provider.node_tags(node)
        provider.is_running(node)
        provider.is_terminated(node)
    return len(nodes)


def seconds_a_tick(machines: int) -> float:
    """Return the CPU seconds of the provider's thread in a tick, after a first one."""
    with fleet(machines) as (provider, _):
        assert tick(provider) == machines + 1
        started = time.thread_time()
        for _ in range(TICKS):
            tick(provider)
        return (time.thread_time() - started) / TICKS


def lists_in_a_minute(machines: int) -> int:
    """Return the requests for lists of machines in a minute of ticks, which it takes."""
    with fleet(machines) as (provider, arm):
        started = time.monotonic()
        for number in range(60 // TICK_S):
            time.sleep(max(0.0, started + number * TICK_S - time.monotonic()))
            tick(provider)
        return len(arm.requests)


def seconds_of_record(machines: int) -> float:
    """Return the CPU seconds in which `status` reads a record of this many machines."""
    kinds = ("launched", "joined", "evicted")
    lines = [
        json.dumps(asdict(Event(kind=kind, group="gpu", node=f"{SET}_{number:08x}", time=number)))
        for number in range(machines * LIVES)
        for kind in kinds
    ]
    text = "\n".join(lines)
    started = time.thread_time()
    found = events.parse(text)
    ledger.evicted(found, since=0.0)
    spent = ledger.spent(ledger.lives(found), {"gpu": "spot"}, {"gpu": 1.0}, now=0.0)
    assert spent.keys() == {"spot"}
    return time.thread_time() - started


def main() -> None:
    """Print the comparison; the last line is JSON."""
    _options.parser(__doc__).parse_args()
    arm_model.PAGE = PAGE
    with ThreadPoolExecutor() as pool:
        lists = dict(zip(FLEETS, pool.map(lists_in_a_minute, FLEETS), strict=True))
    # The ticks that are timed follow each other at once, and each shall list the machines.
    scale_sets.PAGES_A_TICK = max(FLEETS)
    compare(
        "fleet",
        lambda: seconds_a_tick(1000),
        lambda: seconds_a_tick(100),
        PAIRS,
        peer_name="100 machines",
        extra={
            "record_seconds": {number: round(seconds_of_record(number), 4) for number in FLEETS},
            "lists_a_minute": lists,
            "share_of_limit": {n: round(count / LISTS_A_MINUTE, 4) for n, count in lists.items()},
        },
    )


if __name__ == "__main__":
    main()
