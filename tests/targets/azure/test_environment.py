"""The logins of the environment: azure-identity is real, the login is a stand-in."""

import socket

import pytest
from azure.core.pipeline.policies import RetryPolicy
from azure.identity import CredentialUnavailableError
from azure_model.certificate import RSA, Certificate
from azure_model.http_service import Reply, serving

from sunspot.errors import SunspotError
from sunspot.targets.azure import environment
from sunspot.targets.azure.credentials import Endpoints, Login

RESOURCE = "https://management.azure.com/"


@pytest.fixture
def login(principal, monkeypatch):
    """Gives the token of a login, and what Azure was asked for it."""
    monkeypatch.delenv("ARM_CLIENT_SECRET")

    def ask(**given):
        for name, value in given.items():
            monkeypatch.setenv(name, str(value))
        assert Login(Endpoints(login=principal.url)).token(RESOURCE) == "t0"
        (form,) = principal.forms
        assert form["client_id"] == "client"
        return form

    return ask


def test_a_service_principal_with_a_certificate(login, tmp_path):
    made = Certificate.create(tmp_path, ["client"], RSA)
    both = tmp_path / "both.pem"
    both.write_text(made.key.read_text() + made.file.read_text())
    assert login(ARM_CLIENT_CERTIFICATE_PATH=both)["client_assertion"].count(".") == 2


def test_open_id_connect_with_a_token(login):
    assert login(ARM_USE_OIDC="true", ARM_OIDC_TOKEN="jwt")["client_assertion"] == "jwt"


def test_open_id_connect_with_a_file(login, tmp_path):
    (tmp_path / "token").write_text("from.a.file\n")
    given = {"ARM_USE_OIDC": "true", "ARM_OIDC_TOKEN_FILE_PATH": tmp_path / "token"}
    assert login(**given)["client_assertion"] == "from.a.file"


def test_open_id_connect_of_github(login):
    asked = []

    def answer(request):
        asked.append((request.query["audience"], request.headers["Authorization"]))
        return Reply(200, {"value": "of.git.hub"})

    with serving(answer) as url:
        form = login(
            ARM_USE_OIDC="1",
            ACTIONS_ID_TOKEN_REQUEST_URL=f"{url}/?api-version=2",
            ACTIONS_ID_TOKEN_REQUEST_TOKEN="bearer",
        )
    assert form["client_assertion"] == "of.git.hub"
    assert asked == [("api://AzureADTokenExchange", "Bearer bearer")]


def test_the_workload_identity_of_a_pod(login, tmp_path, monkeypatch):
    monkeypatch.setenv("AZURE_TENANT_ID", environment.os.environ["ARM_TENANT_ID"])
    for name in ("ARM_CLIENT_ID", "ARM_TENANT_ID"):
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("of.a.pod")
    form = login(AZURE_CLIENT_ID="client", AZURE_FEDERATED_TOKEN_FILE=tmp_path / "token")
    assert form["client_assertion"] == "of.a.pod"
    # Pulumi's provider reads none of these names.
    for_pulumi = environment.for_pulumi()
    assert for_pulumi["ARM_USE_OIDC"] == "true"
    assert for_pulumi["ARM_OIDC_TOKEN_FILE_PATH"] == str(tmp_path / "token")
    assert for_pulumi["ARM_CLIENT_ID"] == "client"


def test_a_managed_identity(no_login, monkeypatch):
    asked = []

    def answer(request):
        asked.append((request.query.get("client_id"), request.headers["X-IDENTITY-HEADER"]))
        body = {"access_token": "t1", "expires_on": "4102444800", "token_type": "Bearer"}
        return Reply(200, {**body, "resource": RESOURCE})

    monkeypatch.setenv("ARM_USE_MSI", "true")
    monkeypatch.setenv("ARM_CLIENT_ID", "mine")
    with serving(answer) as url:
        monkeypatch.setenv("IDENTITY_ENDPOINT", url)
        monkeypatch.setenv("IDENTITY_HEADER", "it")
        assert Login().token(RESOURCE) == "t1"
    assert asked == [("mine", "it")]


def test_a_managed_identity_that_never_answers_is_waited_for_as_long_as_told(no_login, monkeypatch):
    monkeypatch.setenv("ARM_USE_MSI", "true")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", address)
        waits = {"read_timeout": 0.1, "retry_total": 1}
        # azure-identity has a policy of its own here, and refuses another with a TypeError.
        made = environment.credential(address, retry_policy_class=RetryPolicy, **waits)
        assert made is not None
        with pytest.raises(CredentialUnavailableError):
            made.get_token(RESOURCE)
        silent.settimeout(0)
        asked = [silent.accept()[0] for _ in range(2)]
        with pytest.raises(BlockingIOError):
            silent.accept()
    for one in asked:
        one.close()


@pytest.mark.parametrize(
    "kind", [{"ARM_CLIENT_SECRET": "x"}, {"ARM_CLIENT_CERTIFICATE_PATH": "x"}, {"ARM_USE_MSI": "1"}]
)
def test_pulumi_is_given_the_names_that_its_provider_reads(no_login, monkeypatch, kind):
    assert environment.for_pulumi() == {}
    for name, value in {**kind, "AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant"}.items():
        monkeypatch.setenv(name, value)
    given = {"ARM_CLIENT_ID": "client", "ARM_TENANT_ID": "tenant"}
    assert environment.for_pulumi() == given
    monkeypatch.setenv("ARM_CLIENT_ID", "another")
    assert environment.for_pulumi() == given | {"ARM_CLIENT_ID": "another"}


def test_a_managed_identity_without_an_id_is_given_none(no_login, monkeypatch):
    monkeypatch.setenv("ARM_USE_MSI", "true")
    assert environment.for_pulumi() == {}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ARM_USE_OIDC": "true"}, "ARM_OIDC_TOKEN"),
        ({"ARM_CLIENT_CERTIFICATE_PATH": "/none.pem"}, "ARM_CLIENT_CERTIFICATE_PATH=/none.pem"),
        ({"ARM_USE_OIDC": "true", "ARM_OIDC_TOKEN_FILE_PATH": "/none"}, "/none"),
        (
            {
                "ARM_USE_OIDC": "true",
                "ARM_OIDC_REQUEST_URL": "http://127.0.0.1:1",
                "ARM_OIDC_REQUEST_TOKEN": "x",
            },
            "127.0.0.1",
        ),
    ],
)
def test_what_is_not_complete_names_the_variable(login, given, named):
    with pytest.raises(SunspotError, match=named):
        login(**given)


def test_without_any_of_them(no_login):
    assert not environment.is_given()
    assert environment.token("https://localhost", "x") is None
    assert environment.credential("https://localhost") is None
