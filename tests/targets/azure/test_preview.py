"""What `sunspot preview` shows, and what it refuses. That it is true: tests/infra."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from azure_model.price_list import T4, price_list, row
from preview_stacks import (
    D4,
    E4,
    INFINIBAND,
    KEY,
    LONG_NAME,
    ROOT,
    SHIPPED,
    group,
    make,
    parse,
    section,
    shown,
)
from typer.testing import CliRunner

from sunspot import stack as stacks
from sunspot.catalog import prices
from sunspot.cli.app import app
from sunspot.errors import UsageError
from sunspot.targets.azure import preview


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home without any SSH key."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def project(tmp_path, monkeypatch, home):
    """A project to run the command in, with the shipped stacks."""
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "project"
    folder.mkdir()
    for path in [ROOT / "Pulumi.yaml", *ROOT.glob("Pulumi.*.yaml")]:
        (folder / path.name).write_text(path.read_text())
    monkeypatch.chdir(folder)
    return folder


def run(*arguments, env=None):
    return CliRunner().invoke(app, ["preview", *arguments], env=env)


# As text


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_stacks_fit_60_columns_uncut(name):
    text = shown(preview.collect(stacks.load(name, ROOT), ROOT), width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "…" not in text


def test_the_widest_stack_fits_80_columns_uncut(amd_without_infiniband):
    found = make(
        group(LONG_NAME, "Standard_NC40ads_H100_v5", max_workers=900),
        group("b", "Standard_NC24ads_A100_v4", market="spot-with-fallback", max_workers=100),
        head="Standard_ND96isr_MI300X_v5",
        image={"reference": "registry.test/rocm:1"},
        access={
            "ssh_public_key": KEY,
            "ssh_cidrs": [f"203.0.{n}.0/24" for n in range(9)],
            "public_ip": True,
            "bastion": True,
        },
        network={"address_space": "10.0.0.0/8"},
    )
    text = shown(found)
    assert max(len(line) for line in text.splitlines() if "`" not in line) <= 80
    assert "…" not in text


def test_hybrid_reads_as_it_should():
    text = shown(preview.collect(stacks.load("hybrid", ROOT), ROOT))
    assert text.startswith("hybrid on Azure, uksouth: at most 5 machines\n")
    resources = section(text, "Resources")
    assert re.search(r"WorkerPool  gpu\n.*0-4 x NC4as_T4_v3 spot, temporary disk", resources)
    costs = section(text, "Cost")
    assert re.search(r"head +1 x D4s_v5, on-demand +- +0\.192 +- +0\.192\n", costs)
    assert re.search(r"gpu +0-4 x NC4as_T4_v3, spot +0\.000 +0\.000 +0\.252 +2\.104\n", costs)
    assert re.search(r"NAT gateway +0\.045 +0\.045\n", costs)
    assert re.search(r"NAT traffic +0\.045 +0\.225 +guessed: 1 GB", costs)
    assert "Machines as bought: 0.192 at the minimum, 0.444 at the" in costs
    assert "All of it: 0.316 and 0.748" in " ".join(costs.split())
    assert "eastus, on demand of 2024-04-23, spot of about 2025" in " ".join(costs.split())
    assert "`sunspot sizes --region uksouth`" in costs
    ports = section(text, "Who may connect")
    assert re.search(r"22 +ssh +head +no address\n +22 +ssh +workers +the head\n", ports)
    assert re.search(r"10002-19999 +workers +every node +the nodes", ports)
    assert "has no public" in ports
    quota = section(text, "Quota")
    assert re.search(r"4 +standardDSv5Family +head\n", quota)
    assert re.search(r"16 +Total Regional Spot vCPUs +gpu", quota)
    assert "gpu: NVIDIA driver" in section(text, "Good to know")
    assert "cannot be reached" in section(text, "Warnings")


def test_a_stack_for_this_machine_says_so():
    text = shown(preview.collect(stacks.load("dev", ROOT), ROOT))
    assert "`sunspot up dev` runs it on target local" in text
    assert "runs it on target" not in shown(make())


def test_needs_become_the_size_that_they_would_get():
    stack = parse(target="local")
    node: Any = {"cpu": 3, "memory_gb": 10}
    cluster = type(stack.cluster)(head_node=node)
    found = preview.collect(stack.model_copy(update={"cluster": cluster}), ROOT)
    assert found.plan.head.size.name == D4


# Commands to copy


@pytest.mark.parametrize("width", [20, 60, 80])
def test_no_command_is_wrapped(width, home):
    stack = parse(group(size="Standard_NC40ads_H100_v5"), access={"ssh_cidrs": ["192.0.2.1/32"]})
    found = preview.collect(stack.model_copy(update={"target": "local"}), ROOT)
    text = shown(found, width)
    commands = re.findall("`([^`]+)`", " ".join([*found.notes, *found.warnings]))
    assert any(len(command) > 60 for command in commands)
    for command in [*commands, "sunspot up test", "pulumi up -s test"]:
        assert f"`{command}`" in text


def readme_steps():
    """The README's commands for Azure, from the login to the cluster."""
    lines = (ROOT / "README.md").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("    pulumi login"))
    last = next(n for n, line in enumerate(lines) if line.startswith("    sunspot up hybrid "))
    return [line.partition("#")[0].strip() for line in lines[first : last + 1]]


def test_the_next_steps_are_those_of_the_readme(project):
    assert len(readme_steps()) > 3
    told = [line.strip() for line in run("hybrid").stderr.splitlines()]
    assert told[-len(readme_steps()) :] == readme_steps()


def test_the_next_step_of_a_stack_for_this_machine_is_up(project):
    steps = run("dev").stderr
    assert "local: sunspot up dev\n" in steps
    assert steps.endswith("sunspot up dev --target azure\n")


# Cost


def test_unknown_prices_are_said_to_be_unknown(amd_without_infiniband):
    text = section(shown(make(group("w", E4, max_workers=2))), "Cost")
    assert re.search(r"w +1-2 x E4as_v6, spot +\? +0\.217 +\? +0\.434", text)
    assert "? No spot price known for E4as_v6; the sums take the on-demand price." in text
    text = section(shown(make(group(size=E4, market="on-demand"))), "Cost")
    assert "? No spot price known for E4as_v6." in text
    image = {"reference": "registry.test/rocm:1"}
    text = section(shown(make(head="Standard_ND96isr_MI300X_v5", image=image)), "Cost")
    assert "? No price known for ND96isr_MI300X_v5; the sums leave it out." in text


@pytest.mark.parametrize("name", SHIPPED)
def test_the_prices_of_every_shipped_stack_are_known(name):
    found = preview.collect(stacks.load(name, ROOT), ROOT)
    assert "?" not in section(shown(found), "Cost")


# Ports


def test_who_may_come_in_is_named():
    access = {
        "ssh_public_key": KEY,
        "public_ip": True,
        "ssh_cidrs": ["203.0.113.7/32"],
        "bastion": True,
    }
    text = " ".join(section(shown(make(access=access)), "Who may connect").split())
    assert "22 ssh head 203.0.113.7/32, the Bastion 22 ssh workers" in text
    assert "The head has a public address" in text
    assert "8000 serve head no address" in text


def test_networks_that_may_use_serve_are_named():
    found = make(access={"ssh_public_key": KEY, "bastion": True, "serve_cidrs": ["10.1.2.0/24"]})
    text = " ".join(section(shown(found), "Who may connect").split())
    assert "8000 serve head 10.1.2.0/24" in text
    assert any("10.1.2.0/24" in note and "no token" in note for note in found.notes)
    assert found.warnings == []
    (opening,) = [one for one in found.openings if one.port == "serve"]
    assert (opening.role, opening.sources) == ("head", ("10.1.2.0/24",))


# Warnings


def test_a_missing_default_key_is_a_warning(home):
    found = make(access={"ssh_cidrs": ["10.0.0.0/8"]})
    assert "ssh-keygen" in found.warnings[0]
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519.pub").write_text(KEY)
    assert make(access={"ssh_cidrs": ["10.0.0.0/8"]}).warnings == []


# Prices of today


def test_todays_prices_are_those_of_the_stacks_region(monkeypatch):
    rows = [row(D4, 0.3), row(D4, 0.9, armRegionName="eastus"), row(T4, 0.6), row(T4, 0.1, " Spot")]
    with price_list(rows) as served:
        monkeypatch.setenv(prices.URL_VARIABLE, served.url)
        stack = parse(group("g", T4, max_workers=2))
        found = preview.collect(stack, ROOT, refresh_prices=True)
    assert (found.costs.minimum, found.costs.maximum) == (0.3 + 0.1, 0.3 + 0.2)
    text = " ".join(shown(found).split())
    assert "Prices: Azure Retail Prices API, uksouth, 20" in text
    assert "--refresh-prices" not in text


# User data


def test_user_data_is_printed_alone_and_is_yaml(project):
    result = run("hybrid", "--show", "user-data", "head")
    assert result.exit_code == 0, result.output
    document = yaml.safe_load(result.stdout)
    paths = {file["path"]: file["content"] for file in document["write_files"]}
    assert "SUNSPOT_ROLE='head'" in paths["/etc/sunspot/node.env"]
    assert re.search(r"head: [\d,]+ bytes as sent", result.stderr)


@pytest.mark.parametrize("node", ["worker", "gpu"])
def test_workers_go_by_role_and_by_group(project, node):
    result = run("hybrid", "--json", "--show", "user-data", node)
    found = json.loads(result.stdout)
    assert found["node_type"] == "gpu"
    assert "SUNSPOT_ACCELERATOR='T4'" in found["text"]
    assert 0 < found["bytes_sent"] < found["bytes_allowed"] == 65_535


def test_a_head_whose_address_only_azure_knows_has_user_data_all_the_same():
    subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"
    ids = {"head": f"{subnet}/subnets/a", "workers": f"{subnet}/subnets/b"}
    found = make(group("g"), network={"subnet_ids": ids})
    text = preview.user_data.user_data(found.plan, "g").text
    assert "--address=<address-of-the-head>:6379" in text


def test_a_group_with_two_node_types_is_its_spot_one():
    found = make(group("g", market="spot-with-fallback"), group("h"))
    texts = {
        node: preview.user_data.user_data(found.plan, node).text for node in ("g", "g-on-demand")
    }
    assert "RAY_NODE_MARKET_TYPE='spot'" in texts["g"]
    assert "RAY_NODE_MARKET_TYPE='on-demand'" in texts["g-on-demand"]
    with pytest.raises(UsageError, match="'worker' means several nodes: choose one of head, g, g-"):
        preview.user_data.user_data(found.plan, "worker")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("user-data", "nonsense"),
            "'nonsense' is not a node of this stack: choose one of head, gpu",
        ),
        (("token", "head"), "--show 'token' is unknown: use user-data"),
    ],
)
def test_what_there_is_not_cannot_be_shown(project, arguments, message):
    result = run("hybrid", "--show", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


# The command


def test_json_holds_all_that_the_text_shows(project):
    found = json.loads(run("hybrid", "--json").stdout)
    assert (found["stack"], found["target"], found["location"]) == ("hybrid", "azure", "uksouth")
    assert found["resources"]["type"] == "sunspot:azure:AzureRayCluster"
    assert found["cost"]["machines"] == {"minimum": 0.192, "maximum": 0.444}
    others = found["cost"]["others"]
    assert {"NAT gateway", "disks", "vault"} < {other["name"] for other in others}
    total = 0.192 + sum(other["minimum"] for other in others)
    assert found["cost"]["minimum"] == pytest.approx(total, abs=1e-4)
    assert found["cost"]["prices"]["region"] == "eastus"
    assert found["cost"]["groups"][1]["maximum"] == {
        "machines": 4,
        "spot": 0.252,
        "on_demand": 2.104,
    }
    assert {"role": "head", "port": "ssh", "range": "22", "sources": []}.items() <= (
        found["ports"][0].items()
    )
    assert found["quota"][-1] == {
        "name": "Total Regional Spot vCPUs",
        "vcpus": 16,
        "needed_by": ["gpu"],
    }
    assert found["public_ip"] is False
    assert found["warnings"]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("{head_node: {vm_size: NC6s_v3}}", "was retired by Azure on 2025-09-30: use"),
        ("{head_node: {vm_size: D4s_v9}}", "is not a VM size in Sunspot's catalogue"),
        (
            INFINIBAND,
            "has InfiniBand",
        ),
    ],
)
def test_what_the_plan_refuses_is_refused(project, block, message):
    (project / "Pulumi.bad.yaml").write_text(
        f"config:\n  azure-native:location: uksouth\n  sunspot:cluster: {block}\n"
    )
    result = run("bad")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_key_file_that_is_named_must_be_there(project):
    text = (project / "Pulumi.hybrid.yaml").read_text()
    (project / "Pulumi.hybrid.yaml").write_text(
        f"{text}\n  sunspot:access:\n    ssh_public_key_file: my.pub\n"
    )
    result = run("hybrid")
    assert result.exit_code == 2
    assert "no SSH key in" in result.stderr


def test_no_location_is_refused(project):
    text = (project / "Pulumi.dev.yaml").read_text()
    (project / "Pulumi.dev.yaml").write_text(text.replace("azure-native:location", "other:key"))
    result = run("dev")
    assert result.exit_code == 2
    assert "azure-native:location: missing" in result.stderr


def test_a_size_that_the_region_does_not_have_is_refused(project):
    file = project / "Pulumi.hybrid.yaml"
    text = file.read_text().replace("uksouth", "ukwest")
    file.write_text(text)
    result = run("hybrid")
    assert result.exit_code == 2
    assert f"ukwest has no {T4} (for gpu)" in " ".join(result.stderr.split())
    file.write_text(f"{text}  sunspot:check_region: false\n")
    assert run("hybrid").exit_code == 0


def test_no_price_list_is_an_error_of_its_own(project):
    with price_list() as served:
        url = served.url
    result = run("hybrid", "--refresh-prices", env={prices.URL_VARIABLE: url})
    assert result.exit_code == 1
    assert "cannot reach the price list" in result.stderr


def test_nothing_of_pulumi_and_no_network_is_needed():
    script = """
import json, socket, sys
def refuse(*_): raise OSError("no network")
socket.socket.connect = refuse
from sunspot.cli.app import app
for arguments in (["hybrid"], ["hybrid", "--json"], ["hybrid", "--show", "user-data", "head"]):
    app(["preview", *arguments], standalone_mode=False)
print("\\n" + json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    assert not loaded & {"pulumi", "pulumi_azure_native", "azure", "requests", "ray"}
