"""The stack that the tests bring up."""

from machines.pulumi_project import PUBLIC_KEY

# What stays where the results are protected: the container needs the account's settings.
KEPT = {
    "ResourceGroup",
    "StorageAccount",
    "BlobServiceProperties",
    "BlobContainer",
    "ManagementPolicy",
}
STACK = "x"


def settings(*, fixed: int = 2, **keys):
    """A stack with a fixed group, an elastic one and a public head; `keys` come on top."""

    def group(name, least, most, size):
        return {
            "name": name,
            "market": "spot",
            "min_workers": least,
            "max_workers": most,
            "worker_nodes": {"vm_size": size},
        }

    return {
        "azure-native:location": "uksouth",
        "sunspot:cluster": {
            "head_node": {"vm_size": "Standard_D4s_v5"},
            "scaling_groups": [
                group("fixed", fixed, fixed, "Standard_D4s_v5"),
                group("gpu", 0, 4, "Standard_NC4as_T4_v3"),
            ],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
        "sunspot:access": {
            "public_ip": True,
            "ssh_cidrs": ["203.0.113.7/32"],
            "ssh_public_key": PUBLIC_KEY,
        },
        "sunspot:storage": {"protect": False},
        **{f"sunspot:{key}": value for key, value in keys.items()},
    }
