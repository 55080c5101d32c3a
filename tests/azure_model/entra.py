"""Microsoft's identity platform: its OpenID metadata, and tokens for client credentials."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from azure_model import http_service
from azure_model.certificate import Certificate
from azure_model.http_service import Reply, Request
from azure_model.resource_ids import TENANT


def answer(
    request: Request, url: str, tenant: str, issued: Callable[[Mapping[str, str]], str | None]
) -> Reply:
    """The answer to a request; `issued` makes a token of the form's fields, None to refuse."""
    if request.path.endswith("/openid-configuration"):
        root = f"{url}/{tenant}"
        endpoints = {one: f"{root}/oauth2/v2.0/{one}" for one in ("token", "authorize")}
        return Reply(
            200,
            {
                "token_endpoint": endpoints["token"],
                "authorization_endpoint": endpoints["authorize"],
                "issuer": f"{root}/v2.0",
            },
        )
    token = issued(request.form)
    if token is None:
        # "Microsoft Entra authentication and authorization error codes".
        said = "AADSTS7000222: The provided client secret keys are expired."
        if "client_assertion" in request.form:
            # Azure DevOps, "Troubleshoot an Azure Resource Manager workload identity connection".
            said = "AADSTS70021: No matching federated identity record found."
        return Reply(401, {"error": "invalid_client", "error_description": said})
    return Reply(200, {"token_type": "Bearer", "expires_in": 3599, "access_token": token})


@dataclass
class Entra:
    """A login that gives `token` for anything; None refuses. `forms` are what it was asked."""

    url: str = ""
    token: str | None = "t0"
    forms: list[Mapping[str, str]] = field(default_factory=list)

    def _issued(self, form: Mapping[str, str]) -> str | None:
        self.forms.append(form)
        return self.token

    def answer(self, request: Request) -> Reply:
        return answer(request, self.url, TENANT, self._issued)


@contextmanager
def serving(certificate: Certificate) -> Iterator[Entra]:
    """Serves a login by HTTPS until the block ends: azure-identity takes nothing else."""
    found = Entra()
    with http_service.serving(found.answer, tls=certificate.context()) as found.url:
        yield found
