"""The watch over the machines that do not join, on Azure's head."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sunspot.node.azure import imds
from sunspot.node.azure.arm import BASE_URL, Arm
from sunspot.node.azure.record import HeadRecord
from sunspot.node.azure.serial_log import SerialLog
from sunspot.node.joins import JOIN_TIMEOUT_S, Joins
from sunspot.node.members import GcsMembers
from sunspot.node.teller import Teller

# Ray's autoscaler waits while a console is read.
PATIENCE_S = 10.0


def create(config: Mapping[str, Any]) -> Joins:
    """The watch that the autoscaler's config describes.

    Args:
        config: `record`, the folder of the head's record; `gcs`, its HOST:PORT; what
            scale_sets.create needs; optionally `join_timeout_s`.
    """
    record = HeadRecord(Path(config["record"]))
    tokens = imds.Imds(config.get("imds_url", imds.BASE_URL), config["identity_client_id"])
    arm = Arm(tokens, config.get("arm_url", BASE_URL), patience_s=PATIENCE_S)
    group = (
        f"/subscriptions/{config['subscription_id']}/resourceGroups/{config['resource_group']}"
        "/providers/Microsoft.Compute"
    )
    return Joins(
        record.joins,
        members=GcsMembers(config["gcs"]),
        why=SerialLog(arm, group).why,
        teller=Teller(record.events, record.notices),
        timeout_s=config.get("join_timeout_s", JOIN_TIMEOUT_S),
    )
