"""Stacks to preview, and what is shown of them."""

import io
from pathlib import Path

from rich.console import Console

from sunspot import stack as stacks
from sunspot.stack import Stack
from sunspot.targets.azure import preview

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = tuple(stacks.names(ROOT))
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"
D4 = "Standard_D4s_v5"
E4 = "Standard_E4as_v6"  # its spot price is not known
INFINIBAND = (
    "{head_node: {vm_size: D4s_v5}, scaling_groups: [{worker_nodes: {vm_size: ND96isr_H100_v5}}]}"
)
LONG_NAME = "a-group-with-long-name"


def group(name="workers", size=D4, **values):
    return {"name": name, "market": "spot", "worker_nodes": {"vm_size": size}, **values}


def make(*groups, head=D4, access=None, **keys):
    """A preview of a stack with these groups."""
    return preview.collect(parse(*groups, head=head, access=access, **keys), ROOT)


def parse(*groups, head=D4, access=None, location="uksouth", **keys):
    block = {
        "azure-native:location": location,
        "sunspot:cluster": {
            "head_node": {"vm_size": head},
            "scaling_groups": list(groups),
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
        "sunspot:access": {"ssh_public_key": KEY} if access is None else access,
    }
    return Stack.parse({**block, **{f"sunspot:{k}": v for k, v in keys.items()}}, name="test")


def shown(found, width=80):
    out = io.StringIO()
    preview.show(found, Console(file=out, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def section(text, title):
    """The lines below a heading, up to the next one."""
    _, _, rest = text.partition(f"\n{title}")
    return rest.partition("\n\n")[0]
