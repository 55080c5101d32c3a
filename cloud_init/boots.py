"""What a worker boots from, as a short hash: by it, machines with an older boot are told apart.

A change of a scale set's model leaves its VMs as they are, and Azure tells nobody what custom data
a VM had (Microsoft, "Modify a Virtual Machine Scale Set"; "Custom data and Azure Virtual
Machines"). So a worker carries the hash as a label of its Ray node, and the head's settings have
the one that is wanted.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from cloud_init.render import render
from cloud_init.values import NodeValues
from sunspot.targets.azure.machine import Machine

DIGITS = 12


def boot_of(values: NodeValues, machine: Machine, ssh_public_key: str) -> str:
    """The hash of what a worker boots from; another one where any of it differs.

    Args:
        values: what its custom data is rendered from, still without a `boot`. The client id of its
            identity does not count: the head's differs, and it writes the settings.
        machine: its size, disk and VM image, of which "latest" is always the same.
        ssh_public_key: who may log in.
    """
    facts = replace(values.facts, identity_client_id="")
    custom_data = render(replace(values, facts=facts, boot=""), compress=False)
    vm_image = None if machine.vm_image is None else machine.vm_image.text
    model = [
        machine.size.name,
        machine.driver,
        machine.secure_boot,
        machine.ephemeral_disk,
        machine.disk_gib,
        vm_image,
        ssh_public_key,
    ]
    text = custom_data + json.dumps(model).encode()
    return hashlib.sha256(text).hexdigest()[:DIGITS]
