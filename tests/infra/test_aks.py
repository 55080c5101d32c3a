"""The program for a stack whose target is Kubernetes: AKS, its pools, and Ray in it."""

import copy
from collections import Counter

import pytest
from azure_model import request_bodies
from azure_model.resource_ids import SUBSCRIPTION
from builds import AUTOSCALER, ROOT, build, group, told
from test_declared import told as declared_tree
from test_policy_of_program import violations

from sunspot import stack as stacks
from sunspot.catalog import services
from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.azure.aks import preview
from sunspot.targets.azure.aks.plan import plan
from sunspot.targets.azure.aks.tree import tree
from sunspot.targets.azure.aks_settings import Aks

RANGES = {"authorized_ip_ranges": ["203.0.113.7/32"]}
SUBNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/a"
GROUPS = (
    group("fixed", min_workers=2, max_workers=2),
    group("gpu", "Standard_NC4as_T4_v3", market="spot-with-fallback", min_workers=0, max_workers=4),
    group("steady", market="on-demand", min_workers=1, max_workers=3),
)


def aks_stack(*groups, name="a", region="uksouth", **keys):
    block = {
        "azure-native:location": region,
        "sunspot:target": "kubernetes",
        "sunspot:cluster": {
            "head_node": {"vm_size": "Standard_D4s_v5"},
            "scaling_groups": list(groups or GROUPS),
            "autoscaler_config": AUTOSCALER,
        },
        "sunspot:aks": RANGES,
        **{f"sunspot:{key}": value for key, value in keys.items()},
    }
    return Stack.parse(block, name=name)


STACKS = {
    "groups": lambda: aks_stack(),
    "shipped": lambda: with_ranges(stacks.load("aks", ROOT)),
    "private": lambda: aks_stack(
        aks={"private": True}, network={"subnet_ids": {"head": SUBNET, "workers": SUBNET}}
    ),
    "namespace": lambda: aks_stack(
        group("cpu", max_workers=2, min_workers=0),
        kubernetes={"namespace": "ray", "gcs_fault_tolerance": {"size": "10Gi"}},
    ),
}


def with_ranges(stack):
    return told(stack, aks=Aks(authorized_ip_ranges=("203.0.113.7/32",)))


@pytest.fixture(scope="module", params=STACKS)
def both(request):
    stack = STACKS[request.param]()
    return plan(stack), build(stack)


@pytest.fixture(scope="module")
def made():
    return build(aks_stack())


def test_the_program_makes_what_is_declared(both):
    planned, run = both
    names = {r.urn: f"{r.type} {r.name}" for r in run.resources}
    registered = Counter((names.get(r.parent, ""), names[r.urn], r.protect) for r in run.resources)
    assert Counter(declared_tree(tree(planned))) == registered


def test_microsofts_models_know_every_key_and_value(both):
    _, run = both
    for resource in run.resources:
        if resource.type.startswith("azure-native:"):
            sent = request_bodies.body(resource.kind, resource.inputs)
            assert request_bodies.round_trip(resource.kind, sent) == sent, resource.name


@pytest.mark.parametrize(
    ("kind", "key"),
    [("ManagedCluster", "apiServerAccessProfile"), ("AgentPool", "scaleSetEvictionPolicy")],
)
def test_a_misspelt_property_is_noticed(made, kind, key):
    inputs = copy.deepcopy(next(r.inputs for r in made.of(kind) if key in r.inputs))
    inputs[f"{key}x"] = inputs.pop(key)
    with pytest.raises(request_bodies.UnfitError, match=f"{key}x"):
        request_bodies.body(kind, inputs)


def test_pods_log_in_by_workload_identity_and_policies_of_the_network_hold(both):
    _, run = both
    cluster = run.one("ManagedCluster").inputs
    assert cluster["identity"]["type"] in ("SystemAssigned", "UserAssigned")
    assert cluster["oidcIssuerProfile"] == {"enabled": True}
    assert cluster["securityProfile"] == {"workloadIdentity": {"enabled": True}}
    network = cluster["networkProfile"]
    assert (network["networkPlugin"], network["networkPluginMode"]) == ("azure", "overlay")
    assert network["networkPolicy"] == network["networkDataplane"] == "cilium"


def test_a_subnet_decides_which_addresses_are_free_inside():
    aks = {**RANGES, "pod_cidr": "192.168.0.0/16", "service_cidr": "172.29.0.0/16"}
    network = build(aks_stack(aks=aks)).one("ManagedCluster").inputs["networkProfile"]
    inside = (network["podCidr"], network["serviceCidr"], network["dnsServiceIP"])
    assert inside == ("192.168.0.0/16", "172.29.0.0/16", "172.29.0.10")


@pytest.mark.parametrize(
    ("tier", "support"), [("Free", "KubernetesOfficial"), ("Premium", "AKSLongTermSupport")]
)
def test_premium_asks_for_long_term_support(tier, support):
    cluster = build(aks_stack(aks={**RANGES, "tier": tier})).one("ManagedCluster").inputs
    assert (cluster["sku"]["tier"], cluster["supportPlan"]) == (tier, support)


@pytest.mark.parametrize(("tier", "usd"), [("Free", 0), ("Standard", 0.1), ("Premium", 0.6)])
def test_the_cost_has_the_tier_of_the_control_plane(tier, usd):
    others = preview.collect(aks_stack(aks={**RANGES, "tier": tier})).costs.others
    assert sum(one.minimum for one in others if one.name == "control plane") == usd


def test_the_cost_has_a_spot_group_and_its_on_demand_twin_both_full():
    found = {one.name: one for one in preview.collect(aks_stack()).costs.groups}
    counted = {
        name: (found[name].market, found[name].minimum, found[name].maximum)
        for name in ("fixed", "gpu", "gpu-on-demand", "steady")
    }
    assert counted == {
        "fixed": ("spot", 2, 2),
        "gpu": ("spot", 0, 4),
        "gpu-on-demand": ("on-demand", 0, 4),
        "steady": ("on-demand", 1, 3),
    }


def test_nodes_in_a_subnet_must_be_let_out_to_the_api_server():
    network = {"subnet_ids": {"head": SUBNET, "workers": SUBNET}}
    found = preview.collect(aks_stack(network=network))
    assert "NAT gateway or a firewall" in found.warnings[0]
    assert "own nodes" not in found.reach[0]
    others = (aks_stack(), aks_stack(aks={"private": True}, network=network))
    assert [preview.collect(stack).warnings for stack in others] == [[], []]


def test_kubernetes_own_pods_have_nodes_on_demand(both):
    planned, run = both
    (pool,) = run.one("ManagedCluster").inputs["agentPoolProfiles"]
    assert (pool["mode"], pool["count"]) == ("System", 2)
    assert pool["vmSize"] == planned.aks.system_vm_size
    assert not {"scaleSetPriority", "nodeTaints"} & set(pool)


def test_the_api_server_is_never_open(both):
    planned, run = both
    access = run.one("ManagedCluster").inputs["apiServerAccessProfile"]
    assert access.get("authorizedIPRanges") or access["enablePrivateCluster"]
    assert planned.aks.private is ("authorizedIPRanges" not in access)


def test_it_keeps_to_the_policies(both):
    _, run = both
    assert violations(run) == []


def pools(run):
    return {pool.inputs["agentPoolName"]: pool.inputs for pool in run.of("AgentPool")}


def test_each_group_and_market_has_a_pool_that_scales_to_zero(made):
    found = pools(made)
    twin = next(name for name in found if name.startswith("gpuond"))
    assert set(found) == {"head", "fixed", "gpu", twin, "steady"}
    limits = {name: (one["count"], one["minCount"], one["maxCount"]) for name, one in found.items()}
    assert limits == {
        "head": (1, 1, 2),  # a second node where the first has died
        "fixed": (0, 0, 2),
        "gpu": (0, 0, 4),
        twin: (0, 0, 4),
        "steady": (0, 0, 3),
    }
    assert {name for name, one in found.items() if one.get("scaleSetPriority") == "Spot"} == {
        "fixed",
        "gpu",
    }


def selects(pod, pool):
    """Whether Kubernetes may put a pod on a pool's nodes."""
    tolerated = {f"{one['key']}={one['value']}:{one['effect']}" for one in pod["tolerations"]}
    fits = pod["nodeSelector"].items() <= pool["nodeLabels"].items()
    return fits and set(pool["nodeTaints"]) <= tolerated


def test_the_pods_of_each_group_can_run_on_its_own_pool_and_nowhere_else(made):
    spec = made.one("RayCluster").inputs["spec"]
    groups = {"head": spec["headGroupSpec"]} | {g["groupName"]: g for g in spec["workerGroupSpecs"]}
    found = pools(made)
    for name, one in groups.items():
        pod = one["template"]["spec"]
        fitting = [pool for pool, inputs in found.items() if selects(pod, inputs)]
        assert len(fitting) == 1, name
        assert fitting[0][:6] == name.replace("-", "")[:6]


def test_what_the_autoscalers_own_is_left_to_them(made):
    assert all(pool.ignore_changes == ["count"] for pool in made.of("AgentPool"))
    cluster = made.one("RayCluster").inputs
    groups = cluster["spec"]["workerGroupSpecs"]
    # The fixed group's replicas are Pulumi's.
    assert ["replicas" in group for group in groups[:4]] == [True, False, False, False]
    # The list belongs to who has changed it last: the Ray autoscaler, wherever it has scaled.
    assert cluster["metadata"]["annotations"]["pulumi.com/patchForce"] == "true"


def test_the_token_is_a_secret_and_in_no_output(made):
    secret = made.one("Secret")
    assert "data" in secret.secret_inputs
    assert secret.ignore_changes == ["data"]
    token = secret.inputs["data"]["auth_token"]
    assert token not in str(made.outputs)
    assert "kubeconfig" in made.of("kubernetes")[0].secret_inputs


def test_the_pods_use_identities_that_may_write_to_one_container(made):
    accounts = {one.inputs["metadata"]["name"]: one for one in made.of("ServiceAccount")}
    spec = made.one("RayCluster").inputs["spec"]
    used = {
        group["template"]["spec"]["serviceAccountName"]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    }
    assert used == set(accounts) == {"a-head", "a-workers"}
    subjects = {one.inputs["subject"] for one in made.of("FederatedIdentityCredential")}
    assert subjects == {f"system:serviceaccount:default:{name}" for name in accounts}
    (container,) = made.of("BlobContainer")
    scopes = {one.inputs["scope"] for one in made.of("RoleAssignment")}
    assert scopes == {container.id}
    for account in accounts.values():
        assert account.inputs["metadata"]["annotations"]["azure.workload.identity/client-id"]
    (env,) = [
        one["value"]
        for one in spec["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
        if one["name"] == "SUNSPOT_STORAGE"
    ]
    assert env == made.outputs["storage_url"]


def test_the_way_to_the_kubeconfig_names_the_subscription(made):
    command = made.outputs["kubeconfig_command"].split()
    assert command[:3] == ["az", "aks", "get-credentials"]
    given = dict(zip(command[3::2], command[4::2], strict=True))
    assert given["--resource-group"] == made.outputs["resource_group"]
    assert given["--name"] == made.outputs["cluster"]
    assert given["--subscription"] == SUBSCRIPTION


def test_the_device_plugin_runs_on_spot_nodes_with_gpus(made):
    pod = made.one("DaemonSet").inputs["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    gpus = {
        name
        for name, one in pools(made).items()
        if pod["nodeSelector"].items() <= one["nodeLabels"].items()
    }
    assert {name[:3] for name in gpus} == {"gpu"}
    assert build(aks_stack(group("cpu", max_workers=2, min_workers=0))).of("DaemonSet") == []


def test_what_is_in_the_cluster_goes_with_it(made):
    cluster = made.one("ManagedCluster").urn
    inside = [r for r in made.resources if r.type.startswith("kubernetes:")]
    assert inside
    assert {r.deleted_with for r in [*inside, *made.of("AgentPool")]} == {cluster}


@pytest.mark.parametrize(
    ("budget", "channels"), [(True, ("none", "Unmanaged")), (False, ("patch", "NodeImage"))]
)
def test_aks_drains_no_node_for_an_upgrade_where_the_head_may_not_be_evicted(budget, channels):
    run = build(aks_stack(kubernetes={"head_disruption_budget": budget}))
    assert len(run.of("PodDisruptionBudget")) == int(budget)
    profile = run.one("ManagedCluster").inputs["autoUpgradeProfile"]
    assert (profile["upgradeChannel"], profile["nodeOSUpgradeChannel"]) == channels


def test_the_claim_of_the_gcss_state_is_bound_only_when_the_head_has_a_node():
    run = build(aks_stack(kubernetes={"gcs_fault_tolerance": {}}))
    claim = run.one("PersistentVolumeClaim")
    assert claim.inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    assert claim.inputs["spec"]["resources"]["requests"] == {"storage": "10Gi"}
    assert claim.deleted_with == run.one("ManagedCluster").urn
    # KubeRay's own backend, and its gate, are not used.
    assert "gcsFaultToleranceOptions" not in run.one("RayCluster").inputs["spec"]
    assert "values" not in run.one("Release").inputs


@pytest.mark.parametrize(
    ("asked", "disks"),
    [
        ({}, [32]),
        ({"size": "128Gi"}, [128]),
        ({"size": "129Gi"}, [128] * 2),
        ({"size": "257Gi"}, [128] * 4),
        ({"claim": "mine"}, []),
    ],
)
def test_the_cost_has_the_disk_that_is_made_for_the_gcss_state(asked, disks):
    def costs(kubernetes):
        stack = aks_stack(kubernetes=kubernetes)
        others = preview.collect(stack).costs.others
        return next(other for other in others if other.name == "disks")

    without, found = costs({}), costs({"gcs_fault_tolerance": asked})
    more = sum(map(services.disk, disks))
    assert found.minimum == pytest.approx(without.minimum + more, abs=2e-5)
    assert found.maximum == pytest.approx(without.maximum + more, abs=2e-5)


def test_pools_of_long_or_odd_names_are_told_apart():
    names = [
        pool.name
        for pool in plan(
            aks_stack(
                group("a-long-name-of-a-group", max_workers=2),
                group("a-long-name-of-another", max_workers=2),
                group("system", max_workers=2),
            )
        ).pools
    ]
    assert len(set(names)) == 4
    assert all(name.isalnum() and name.islower() and len(name) <= 12 for name in names)
    assert "system" not in names


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"aks": {}}, "authorized_ip_ranges"),
        ({"aks": {"private": True}}, "subnet_ids"),
        ({"access": {"bastion": True}}, "sunspot:access"),
        ({"image": {"context": "."}}, "context"),
        ({"kubernetes": {"service_account": "mine"}}, "service_account"),
        ({"aks": {**RANGES, "system_vm_size": "Standard_D2s_v5"}}, "system_vm_size"),
        ({"aks": {**RANGES, "system_vm_size": "Standard_D4s_v9"}}, "system_vm_size"),
        ({"aks": {**RANGES, "system_vm_size": "Standard_B4as_v2"}}, "B series"),
        ({"kubernetes": {"gpu_key": "nvidia.com/mig-1g.5gb"}}, "gpu_key"),
        ({"name": "x" * 60}, "stack name"),
        ({"idle": {"action": "warn"}}, "sunspot:idle"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(keys, named):
    with pytest.raises(UsageError) as caught:
        build(aks_stack(**keys))
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("aks", "named"),
    [
        ({"authorized_ip_ranges": ["0.0.0.0/0"]}, "'0.0.0.0/0'"),
        ({"authorized_ip_ranges": ["8.0.0.0/8"]}, "'8.0.0.0/8'"),
        ({"authorized_ip_ranges": ["10.1.2.0/24"]}, "'10.1.2.0/24' is private"),
        ({"private": True, **RANGES}, "private"),
        ({"tier": "Gold"}, "tier"),
        ({"kubernetes_version": "latest"}, "'latest'"),
        ({"nodes": 3}, "nodes"),
        ({"service_cidr": "10.1.0.0/12"}, "has host bits set"),
        ({"service_cidr": "10.0.0.0/8"}, "'10.0.0.0/8' is a /8"),
        ({"pod_cidr": "172.16.0.0/12"}, "172.30.0.0/16"),
        ({"pod_cidr": "10.0.0.0/8"}, "service_cidr 10.0.0.0/16 overlap"),
    ],
)
def test_wrong_settings_name_their_key(aks, named):
    with pytest.raises(UsageError) as caught:
        aks_stack(aks=aks)
    assert "sunspot:aks" in str(caught.value)
    assert named in str(caught.value)
