"""`sunspot doctor x`, the tools that it finds, and what it says."""

import json
import shlex

import yaml
from azure_model import subscription as model
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from azure_stacks import run

PULUMI = """case "$*" in
  version) echo v3.999.0 ;;
  "--non-interactive whoami --json") echo '{"user": "me", "url": "file://~"}' ;;
esac"""


def write_tool(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def write_az(tools, *, says=None, subscriptions=1):
    """An Azure CLI with a login; with `says`, that is why it gives no token."""
    given = {
        "accessToken": model.token(),
        "expiresOn": "2099-01-01 00:00:00.000000",
        "expires_on": 4070908800,
        "subscription": SUBSCRIPTION,
        "tenant": TENANT,
        "tokenType": "Bearer",
    }
    listed = [{"id": f"id-{n}", "name": f"Sub {n}"} for n in range(subscriptions)]
    answer = f"echo {shlex.quote(json.dumps(given))}"
    refusal = f"echo {shlex.quote(f'ERROR: {says}')} >&2; exit 1"
    write_tool(
        tools / "az",
        f"""case "$*" in
  "account list"*) echo {shlex.quote(json.dumps(listed))} ;;
  "account get-access-token"*) {refusal if says else answer} ;;
  *) exit 9 ;;
esac""",
    )


def diagnosed(code=0):
    """The findings of the stack "x", by their checks; the command must end with this code."""
    result = run("doctor", "x", "--json")
    assert result.exit_code == code, result.output
    return {one["check"]: one for one in json.loads(result.stdout)["findings"]}


def failures(found):
    return {name: one["detail"] for name, one in found.items() if one["level"] == "failure"}


def only_failure(name):
    """The only failure, which is of this check."""
    found = diagnosed(1)
    assert failures(found).keys() == {name}, failures(found)
    return found[name]


def config(project, changes):
    """Changes the stack file's settings."""
    file = project / "Pulumi.x.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"] |= changes
    file.write_text(yaml.safe_dump(document))
