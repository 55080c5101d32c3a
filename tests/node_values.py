"""Values of nodes as the infrastructure would give them."""

from dataclasses import replace

from cloud_init import AzureFacts, NodeValues
from sunspot.ray.resources import GIB, NodeResources

DIGEST = "sha256:" + "0123456789abcdef" * 4
# With signs that a shell or a URL would take for its own.
RAY_TOKEN = "a-token/with+signs=="
# What the vault holds.
SECRETS = {"ray-token": RAY_TOKEN}

FACTS = AzureFacts(
    built_image=None,
    registry="sunspothybrid.azurecr.io",
    head_address="10.20.0.4",
    vault_url="https://sunspot-hybrid.vault.azure.net/",
    token_secret="ray-token",
    storage_url="https://sunspothybrid.blob.core.windows.net/cluster",
    subscription_id="66666666-7777-8888-9999-000000000000",
    resource_group="sunspot-hybrid",
    identity_client_id="11111111-2222-3333-4444-555555555555",
)
T4_WORKER = NodeValues(
    role="worker",
    group="t4",
    market="spot",
    cluster="sunspot-hybrid",
    image=f"sunspothybrid.azurecr.io/ray@{DIGEST}",
    resources=NodeResources(cpus=4, gpus=1, memory=28 * GIB, accelerator="T4"),
    driver="nvidia",
    facts=FACTS,
    scale_set="hybrid-t4",
)
CPU_WORKER = replace(
    T4_WORKER,
    group="cpu",
    resources=NodeResources(cpus=4, gpus=0, memory=16 * GIB),
    driver="none",
    scale_set="cpu",
)
MI300X_WORKER = replace(
    T4_WORKER,
    group="mi",
    resources=NodeResources(cpus=4, gpus=8, memory=28 * GIB, accelerator="AMD-Instinct-MI300X-OAM"),
    driver="rocm",
)
HEAD = replace(
    CPU_WORKER,
    role="head",
    group="head",
    market="on-demand",
    image="rayproject/ray:2.60.0",
    ray_version="2.60.0",
    facts=replace(FACTS, registry=None),
    scale_set=None,
)
AUTOSCALED_HEAD = replace(HEAD, autoscaled=True)
ALL = {
    "head": HEAD,
    "autoscaled-head": AUTOSCALED_HEAD,
    "cpu-worker": CPU_WORKER,
    "t4-worker": T4_WORKER,
    "mi300x-worker": MI300X_WORKER,
}
