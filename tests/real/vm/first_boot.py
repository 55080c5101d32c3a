"""What a machine's first boot must have been."""

import json
from typing import Any

from cluster import PATIENCE_S
from image import REGISTRY
from machine import Machine

# Of every machine; a head has one more.
PHASES = {"disk", "docker", "image", "instance", "token", "gpus", "join"}


def check_first_boot(machine: Machine) -> None:
    """Waits for cloud-init and reads what it, and systemd, had to complain of."""
    told = machine.wait("cloud-init ended", lambda: _ended(machine), timeout_s=PATIENCE_S)
    assert told["v1"]["errors"] == []
    assert machine.ssh("sudo cloud-init status --long").startswith("status: done")
    # What systemd makes of the units on a real boot: no cycle, no unknown line.
    complaints = machine.ssh(
        "sudo journalctl --boot --no-pager | grep --extended-regexp "
        "'ordering cycle|Unknown (key|lvalue)|Failed to parse' || true"
    )
    assert complaints == ""


def has_prepared(worker: Machine) -> bool:
    """Whether a worker has done all for which it needs no head."""
    return {entry["phase"] for entry in worker.phases()} >= PHASES - {"join"}


def check_phases(machine: Machine, phases: set[str]) -> None:
    """Every phase of the last boot is written down, and went well."""
    report = machine.phases()
    print(machine.name, json.dumps(report, indent=1))
    assert {entry["phase"] for entry in report} >= phases
    assert [entry for entry in report if not entry["ok"]] == []


def check_token(machine: Machine, token: str) -> None:
    """The machine has the token, and shows it nowhere."""
    assert machine.ssh("sudo cat /run/sunspot/token") == token
    seen = machine.ssh(
        "sudo docker inspect sunspot-ray; ps -A -o args=; "
        "sudo cat /etc/sunspot/node.env; sudo zcat -f /var/lib/cloud/instance/user-data.txt; "
        "sudo journalctl --boot --no-pager"
    )
    assert "sunspot-ray" in seen
    assert token not in seen


def installed(machine: Machine) -> set[str]:
    """What of Docker and Ray's image this boot had to get."""
    told = machine.ssh("sudo journalctl --boot --no-pager --unit 'sunspot-*'")
    # `docker pull --quiet` prints the image's name.
    signs = {"docker.io": "Setting up docker.io", "image": f"{REGISTRY}/"}
    return {what for what, sign in signs.items() if sign in told}


def _ended(machine: Machine) -> dict[str, Any]:
    """What cloud-init says of its run, once it ended."""
    return json.loads(machine.ssh("cat /run/cloud-init/result.json"))
