"""How many bytes each kind of node boots from, with files compressed and as they are.

    python benchmarks/userdata.py

Azure accepts at most 65,535, and as many for the settings that a running cluster follows, which are
in the last line too. The ratio is that of the largest node compressed to uncompressed.
The last line is one JSON object.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import _options

from cloud_init import MAX_USER_DATA_BYTES, render
from cloud_init.live import live_settings
from cloud_init.nodes import node_values
from cloud_init.values import TOKEN_SECRET, AzureFacts
from sunspot.stack import Stack
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure.plan import AzurePlan

ROOT = Path(__file__).resolve().parent.parent
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"
GROUPS = 20
# Values as long as Azure's own, so that the sizes are right.
FACTS = AzureFacts(
    built_image=None,
    registry=None,
    head_address="10.60.128.4",
    vault_url="https://sunspot1a2b3c4d.vault.azure.net/",
    token_secret=TOKEN_SECRET,
    storage_url="abfss://results@sunspot1a2b3c4d.dfs.core.windows.net/",
    subscription_id="11111111-2222-3333-4444-555555555555",
    resource_group="sunspot-hybrid1a2b3c4d",
    identity_client_id="99999999-8888-7777-6666-555555555555",
)


def plan(groups: int) -> AzurePlan:
    """Return the plan of a cluster with this many GPU groups that fall back to on-demand."""
    block: dict[str, Any] = {
        "azure-native:location": "uksouth",
        "sunspot:access": {"ssh_public_key": KEY},
        "sunspot:cluster": {
            "head_node": {"vm_size": "Standard_D4s_v5"},
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
            "scaling_groups": [
                {
                    "name": f"group-{number}",
                    "market": "spot-with-fallback",
                    "min_workers": 0,
                    "max_workers": 4,
                    "worker_nodes": {"vm_size": "Standard_NC4as_T4_v3"},
                }
                for number in range(groups)
            ],
        },
    }
    return azure_plan.plan(Stack.parse(block, name="hybrid"), ROOT)


def main() -> None:
    """Print the sizes; the last line is JSON."""
    _options.parser(__doc__).parse_args()
    one, many = plan(1), plan(GROUPS)
    nodes = {
        "head, 1 group": node_values(one, None, FACTS),
        f"head, {GROUPS} groups": node_values(many, None, FACTS),
        "worker": node_values(one, one.pools[0], FACTS),
    }
    sizes = {
        name: [len(render(values, compress=compress)) for compress in (True, False)]
        for name, values in nodes.items()
    }
    print(f"bytes of user data; Azure accepts {MAX_USER_DATA_BYTES:,}\n")
    print(f"{'node':<18}{'compressed':>12}{'as it is':>12}")
    for name, (compressed, plain) in sizes.items():
        print(f"{name:<18}{compressed:>12,}{plain:>12,}")
    ours, peer = max(sizes.values())
    result = {
        "name": "userdata",
        "ours": ours,
        "peer": peer,
        "ratio": round(ours / peer, 4),
        "limit": MAX_USER_DATA_BYTES,
        "share_of_limit": round(ours / MAX_USER_DATA_BYTES, 4),
        "settings": {count: len(live_settings(plan(count), FACTS)) for count in (1, GROUPS)},
        "bytes": {name: {"gzip": a, "plain": b} for name, (a, b) in sizes.items()},
    }
    print(f"\n{json.dumps(result)}")


if __name__ == "__main__":
    main()
