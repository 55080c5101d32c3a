"""Why a VM does not join, by the log of its serial console, which Azure keeps for every VM.

Nothing else of a VM can be read before it answers to SSH, and all is gone when it is deleted.
phase.sh writes a line there for each phase of the boot that fails.

Source: Microsoft's "Virtual Machines - Retrieve Boot Diagnostics Data": the answer has an address
with a signature of its own, valid for two hours.
"""

from __future__ import annotations

import logging
import re

import requests

from sunspot.node.azure.arm import Arm, ArmError

COMPUTE_VERSION = "2024-11-01"
TIMEOUT_S = 10.0
# The log of a console that repeats itself is long; what failed last is at its end.
TAIL_BYTES = 256 * 1024

NOTHING = "the boot reported no failure on its console: it may not have come that far"

_FAILED = re.compile(r"sunspot: phase (?P<phase>\S+) failed(?:: (?P<line>[^\r\n]*))?")

log = logging.getLogger(__name__)


class SerialLog:
    """Reads the consoles of the VMs below `group`, the ARM path of a group's Microsoft.Compute."""

    def __init__(self, arm: Arm, group: str) -> None:
        self._arm = arm
        self._group = group

    def why(self, vm: str) -> str:
        """Why the VM does not join, for people; "" if its console cannot be read. Never raises."""
        path = f"{self._group}/virtualMachines/{vm}/retrieveBootDiagnosticsData"
        try:
            address = self._arm.send("POST", path, COMPUTE_VERSION, None).body[
                "serialConsoleLogBlobUri"
            ]
            # The address is a secret, and needs no other.
            response = requests.get(
                address, headers={"Range": f"bytes=-{TAIL_BYTES}"}, timeout=TIMEOUT_S
            )
            response.raise_for_status()
        except (ArmError, KeyError, TypeError) as error:
            log.warning("the console of %s cannot be read: %s", vm, error)
            return ""
        except requests.RequestException as error:
            # Without the message, which has the address.
            log.warning("the console of %s cannot be read: %s", vm, type(error).__name__)
            return ""
        return reason(response.text)


def reason(text: str) -> str:
    """What a console says of the phase that failed last."""
    failed = [*_FAILED.finditer(text)]
    if not failed:
        return NOTHING
    line = failed[-1]["line"]
    return f"phase {failed[-1]['phase']} of its boot failed" + (f": {line:.300}" if line else "")
