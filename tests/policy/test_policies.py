"""Each policy both ways, as a function and as Pulumi's engine would ask for it."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from policy import sunspot_policies as policies

PACK = Path(policies.__file__).parent
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
NIC = "azure-native:network:NetworkInterface"
AKS = "azure-native:containerservice:ManagedCluster"
RULES = "azure-native:network:NetworkSecurityGroup"
RULE = "azure-native:network:SecurityRule"
ACCOUNT = "azure-native:storage:StorageAccount"


def scale_set(**address):
    nics = [{"ipConfigurations": [{"name": "ip", **address}]}]
    profile = {"networkProfile": {"networkInterfaceConfigurations": nics}}
    return {"virtualMachineProfile": profile}


def nic(group, **address):
    return {"tags": {"group": group}, "ipConfigurations": [{"name": "ip", **address}]}


def ssh(**changes):
    return {
        "name": "allow-ssh",
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "sourceAddressPrefixes": ["203.0.113.7/32"],
        "destinationPortRange": "22",
        **changes,
    }


def api_server(**access):
    return {"apiServerAccessProfile": access}


def wide(**changes):
    return ssh(sourceAddressPrefixes=["0.0.0.0/0"], **changes)


TAGS = {"project": "sunspot", "stack": "hybrid", "owner": "ada"}
PUBLIC = {"id": "/subscriptions/s/publicIPAddresses/a"}

GOOD = [
    (policies.public_workers, SCALE_SET, scale_set()),
    (policies.public_workers, SCALE_SET, {}),
    (policies.public_workers, NIC, nic("head", publicIPAddress=PUBLIC)),
    (policies.public_workers, NIC, nic("gpu")),
    (policies.open_api_servers, AKS, api_server(authorizedIPRanges=["203.0.113.7/32"])),
    (policies.open_api_servers, AKS, api_server(enablePrivateCluster=True)),
    (policies.open_api_servers, SCALE_SET, {}),
    (policies.open_ssh, RULES, {"securityRules": [ssh()]}),
    (policies.open_ssh, RULES, {}),
    (policies.open_ssh, RULE, ssh(sourceAddressPrefixes=["10.0.0.0/8", "VirtualNetwork"])),
    (policies.open_ssh, RULE, wide(access="Deny")),
    (policies.open_ssh, RULE, wide(direction="Outbound")),
    (policies.open_ssh, RULE, wide(protocol="Udp")),
    (policies.open_ssh, RULE, wide(destinationPortRange="443")),
    (policies.open_ssh, RULE, wide(destinationPortRange="23-100")),
    (policies.open_ssh, RULE, {}),
    (policies.shared_keys, ACCOUNT, {"allowSharedKeyAccess": False}),
    (policies.untagged, ACCOUNT, {"tags": {**TAGS, "team": "vision"}}),
    (policies.untagged, "azure-native:authorization:RoleAssignment", {}),
]
BAD = [
    (
        policies.public_workers,
        SCALE_SET,
        scale_set(publicIPAddressConfiguration={"name": "p"}),
        "publicIPAddressConfiguration",
    ),
    (
        policies.public_workers,
        SCALE_SET,
        scale_set(loadBalancerInboundNatPools=[{"id": "x"}]),
        "loadBalancerInboundNatPools",
    ),
    (policies.public_workers, NIC, nic("gpu", publicIPAddress=PUBLIC), "publicIPAddress"),
    (
        policies.public_workers,
        NIC,
        {"ipConfigurations": [{"publicIPAddress": PUBLIC}]},
        "publicIPAddress",
    ),
    (policies.open_api_servers, AKS, {}, "authorizedIPRanges"),
    (policies.open_api_servers, AKS, api_server(authorizedIPRanges=[]), "authorizedIPRanges"),
    (policies.open_api_servers, AKS, api_server(authorizedIPRanges=["0.0.0.0/0"]), "'0.0.0.0/0'"),
    (policies.open_ssh, RULES, {"securityRules": [ssh(), wide()]}, "'allow-ssh' lets '0.0.0.0/0'"),
    (policies.open_ssh, RULE, ssh(sourceAddressPrefix="*"), "lets '*' in"),
    (policies.open_ssh, RULE, ssh(sourceAddressPrefix="Internet"), "lets 'Internet' in"),
    (policies.open_ssh, RULE, ssh(sourceAddressPrefixes=["128.0.0.0/1"]), "'128.0.0.0/1'"),
    (policies.open_ssh, RULE, ssh(sourceAddressPrefixes=["::/0"]), "'::/0'"),
    (policies.open_ssh, RULE, wide(destinationPortRange="*"), "by SSH"),
    (policies.open_ssh, RULE, wide(destinationPortRange="1-1024"), "by SSH"),
    (
        policies.open_ssh,
        RULE,
        wide(destinationPortRange=None, destinationPortRanges=["443", "22"]),
        "by SSH",
    ),
    (policies.open_ssh, RULE, wide(protocol="*", access="allow", direction="inbound"), "by SSH"),
    (policies.shared_keys, ACCOUNT, {}, "allowSharedKeyAccess"),
    (policies.shared_keys, ACCOUNT, {"allowSharedKeyAccess": True}, "allowSharedKeyAccess"),
    (
        policies.shared_keys,
        ACCOUNT,
        {"allowSharedKeyAccess": False, "allowBlobPublicAccess": True},
        "allowBlobPublicAccess",
    ),
    (policies.untagged, ACCOUNT, {}, "project, stack, owner"),
    (policies.untagged, ACCOUNT, {"tags": {**TAGS, "owner": ""}}, ": owner"),
]


@pytest.mark.parametrize(("rule", "kind", "props"), GOOD)
def test_what_complies_is_left_alone(rule, kind, props):
    assert list(rule(kind, props)) == []


@pytest.mark.parametrize(("rule", "kind", "props", "message"), BAD)
def test_what_violates_is_told(rule, kind, props, message):
    (violation,) = rule(kind, props)
    assert message in violation


@pytest.mark.parametrize(("rule", "kind", "props", "message"), BAD)
@pytest.mark.parametrize(
    "form", ["azure-native:{}/v20240301:{}", "azure-native_{0}_v20240301:{0}:{1}"]
)
def test_every_version_of_a_type_is_meant(rule, kind, props, message, form):
    _, module, name = kind.split(":")
    assert list(rule(form.format(module, name), props))


@pytest.mark.parametrize("rule", [rule for rule, *_ in BAD])
def test_other_providers_are_none_of_their_business(rule):
    for kind in ("aws:ec2/instance:Instance", "sunspot:azure:Network", "pulumi:pulumi:Stack"):
        assert list(rule(kind, {})) == []


# As the engine asks


@pytest.fixture(scope="module")
def analyzer():
    """The pack, started as Pulumi starts it, and a client of it."""
    with subprocess.Popen(
        [sys.executable, "-u", str(PACK)], stdout=subprocess.PIPE, cwd=PACK, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield analyzer_pb2_grpc.AnalyzerStub(channel)
        finally:
            process.terminate()


def analyze(analyzer, kind, props):
    """The violations that the pack finds, by policy."""
    properties = ParseDict(json.loads(json.dumps(props)), Struct())
    request = analyzer_pb2.AnalyzeRequest(type=kind, name="x", urn="u", properties=properties)
    answer = analyzer.Analyze(request, timeout=30)
    return [(d.policyName, d.message) for d in answer.diagnostics]


def test_the_pack_tells_its_policies(analyzer):
    from google.protobuf.empty_pb2 import Empty

    info = analyzer.GetAnalyzerInfo(Empty(), timeout=30)
    assert info.name == "sunspot"
    assert [p.name for p in info.policies] == [p.name for p in policies.POLICIES]
    assert {p.enforcementLevel for p in info.policies} == {analyzer_pb2.MANDATORY}


NAMES = {
    policies.public_workers: "no-public-workers",
    policies.open_ssh: "no-open-ssh",
    policies.open_api_servers: "no-open-api-server",
    policies.shared_keys: "no-shared-keys",
    policies.untagged: "tagged",
}


@pytest.mark.parametrize(("rule", "kind", "props"), GOOD)
def test_the_pack_lets_pass_what_complies(analyzer, rule, kind, props):
    assert NAMES[rule] not in dict(analyze(analyzer, kind, props))


@pytest.mark.parametrize(("rule", "kind", "props", "message"), BAD)
def test_the_pack_refuses_what_violates(analyzer, rule, kind, props, message):
    assert message in dict(analyze(analyzer, kind, props))[NAMES[rule]]


def test_tags_are_the_users_to_choose(analyzer):
    def configure(names):
        config = analyzer_pb2.PolicyConfig(
            enforcementLevel=analyzer_pb2.MANDATORY,
            properties=ParseDict({"names": names}, Struct()),
        )
        analyzer.Configure(
            analyzer_pb2.ConfigureAnalyzerRequest(policyConfig={"tagged": config}), timeout=30
        )

    props = {"tags": TAGS, "allowSharedKeyAccess": False}
    configure(["cost-centre"])
    try:
        assert "cost-centre" in dict(analyze(analyzer, ACCOUNT, props))["tagged"]
    finally:
        configure(list(policies.REQUIRED_TAGS))
    assert analyze(analyzer, ACCOUNT, props) == []
