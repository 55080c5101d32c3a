"""The user's login to Azure: a service principal's from Azure's login, or that of the Azure CLI."""

import pytest
import yaml
from azure_model.resource_ids import SUBSCRIPTION

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.azure.credentials import (
    SUBSCRIPTION_KEY,
    SUBSCRIPTION_VARIABLE,
    Endpoints,
    Login,
    chosen_subscription,
)

RESOURCE = "https://management.azure.com/"


@pytest.fixture(autouse=True)
def nothing(no_login, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.fixture
def az(tmp_path):
    """Puts an Azure CLI on the PATH that answers with this script."""

    def put(script):
        path = tmp_path / "az"
        path.write_text(f"#!/bin/sh\necho call >>{tmp_path}/calls\n{script}\n")
        path.chmod(0o755)
        return tmp_path / "calls"

    return put


def test_the_azure_clis_token_is_kept_for_a_while(az):
    calls = az("""echo '{"accessToken": "t1"}'""")
    login = Login()
    assert [login.token(RESOURCE) for _ in range(3)] == ["t1"] * 3
    assert calls.read_text() == "call\n"


def test_a_token_is_of_the_tenant_of_the_subscription_that_is_named(az):
    az("""printf '{"accessToken": "%s"}' "$*" """)
    assert Login(subscription="s1").token(RESOURCE).endswith("--subscription s1 --output json")
    assert Login(subscription="s1").subscription() == "s1"


def test_an_expired_login_says_what_to_run(az):
    az("echo AADSTS70043: expired >&2; exit 1")
    with pytest.raises(SunspotError, match=r"AADSTS70043.*az login"):
        Login().token(RESOURCE)


def test_without_any_login():
    with pytest.raises(SunspotError, match="no Azure CLI"):
        Login().token(RESOURCE)


def test_a_service_principal_needs_no_cli(principal):
    login = Login(Endpoints(login=principal.url))
    assert [login.token(RESOURCE) for _ in range(2)] == ["t0"] * 2
    (form,) = principal.forms
    assert (form["client_id"], form["client_secret"]) == ("client", "secret")
    assert form["scope"] == "https://management.azure.com/.default"


def test_a_secret_that_azure_refuses(principal):
    principal.token = None
    with pytest.raises(SunspotError, match=r"ARM_CLIENT_SECRET.*AADSTS7000222"):
        Login(Endpoints(login=principal.url)).token(RESOURCE)


def test_the_subscription(az, monkeypatch):
    az("""echo '{"id": "of-the-cli"}'""")
    assert Login().subscription() == "of-the-cli"
    for name in ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID"):
        monkeypatch.setenv(name, "x")
    with pytest.raises(SunspotError, match=SUBSCRIPTION_VARIABLE):
        Login().subscription()
    monkeypatch.setenv(SUBSCRIPTION_VARIABLE, "named")
    assert Login().subscription() == "named"


def test_a_stacks_subscription_comes_before_the_environments(az, monkeypatch, tmp_path):
    calls = az("""echo "$@" >>$0.args; echo '{"accessToken": "t1"}'""")
    monkeypatch.setenv(SUBSCRIPTION_VARIABLE, "of-the-environment")
    assert chosen_subscription("x", with_file(tmp_path, {})) == "of-the-environment"
    named = chosen_subscription("x", with_file(tmp_path, {SUBSCRIPTION_KEY: SUBSCRIPTION}))
    login = Login(subscription=named)
    assert login.subscription() == SUBSCRIPTION
    # Its tenant may be another than that of the CLI's default subscription.
    login.token(RESOURCE)
    assert f"--subscription {SUBSCRIPTION}" in calls.with_name("az.args").read_text()


def test_an_encrypted_subscription_is_refused(tmp_path):
    folder = with_file(tmp_path, {SUBSCRIPTION_KEY: {"secure": "v1:x"}})
    with pytest.raises(UsageError, match=SUBSCRIPTION_KEY):
        chosen_subscription("x", folder)


def with_file(folder, settings):
    (folder / "Pulumi.x.yaml").write_text(yaml.safe_dump({"config": settings}))
    return folder


@pytest.mark.parametrize("printed", ["", "[]", "null", "{}", "a warning, then {}"])
def test_an_az_that_prints_something_else_is_no_traceback_and_not_repeated(az, printed):
    az(f"echo '{printed}'")
    for ask in (Login().subscription, lambda: Login().token(RESOURCE)):
        with pytest.raises(SunspotError, match="az account"):
            ask()


def test_an_az_that_may_not_be_run_is_no_traceback(az, tmp_path, monkeypatch):
    az("")
    (tmp_path / "az").chmod(0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SunspotError, match="az"):
        Login().subscription()
