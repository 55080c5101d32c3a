"""A cluster's settings in the user data of its head's VM, read and changed through ARM."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sunspot.errors import SunspotError, UsageError
from sunspot.node.azure import live
from sunspot.node.azure.live import LiveSettings

if TYPE_CHECKING:
    from sunspot.node.azure.arm import Arm

COMPUTE_VERSION = "2024-11-01"
# Azure's limit, which stands for the base64 here ("User Data for Azure Virtual Machine": 64 KB).
MAX_BYTES = 65_535
# A person waits for each request, and for one change.
PATIENCE_S = 30.0
CHANGE_TIMEOUT_S = 120.0
PAUSE_S = 2.0

GONE = 404
# Another change of the VM came first, or is still in progress.
CONFLICTS = frozenset({409, 412})


@dataclass(frozen=True)
class HeadSettings:
    """The settings of one cluster.

    Attributes:
        arm: the client of ARM.
        vm: the ARM id of the head's VM.
    """

    arm: Arm
    vm: str

    def read(self) -> LiveSettings | None:
        """The settings now; None if there is no such VM.

        Raises:
            ArmError: Azure did not answer, or refused.
            SunspotError: the VM's user data is not what Sunspot writes.
        """
        from sunspot.node.azure.arm import ArmError

        try:
            return self._read()[0]
        except ArmError as error:
            if error.status == GONE:
                return None
            raise

    def change(self, changed: Callable[[LiveSettings], LiveSettings]) -> LiveSettings:
        """Gives the cluster other settings; returns those before.

        Args:
            changed: makes them of those that it finds, again where somebody else was faster.

        Raises:
            ArmError: Azure did not answer, or refused.
            SunspotError: the VM's user data is not what Sunspot writes.
            UsageError: the new settings are larger than Azure accepts.
        """
        from sunspot.node.azure.arm import ArmError

        deadline = time.monotonic() + CHANGE_TIMEOUT_S
        while True:
            found, etag = self._read()
            data = live.encoded(changed(found).text())
            if len(data) > MAX_BYTES:
                raise UsageError(
                    f"the cluster's settings would have {len(data)} bytes, and Azure accepts at "
                    f"most {MAX_BYTES} as user data: use fewer groups"
                )
            body = {"properties": {"userData": data}}
            try:
                answer = self.arm.send("PATCH", self.vm, COMPUTE_VERSION, body, etag)
                self.arm.wait(answer, CHANGE_TIMEOUT_S)
                return found
            except ArmError as error:
                if error.status not in CONFLICTS or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)

    def _read(self) -> tuple[LiveSettings, str | None]:
        # Without $expand, Azure leaves the user data out (Virtual Machines - Get).
        answer = self.arm.get(f"{self.vm}?$expand=userData", COMPUTE_VERSION)
        data = (answer.body.get("properties") or {}).get("userData") or ""
        try:
            return live.parse(live.decoded(data)), answer.etag
        except live.LiveSettingsError as error:
            name = self.vm.rpartition("/")[2]
            raise SunspotError(
                f"the user data of {name} is not what Sunspot writes ({error}): "
                "`sunspot up` writes it anew"
            ) from error
