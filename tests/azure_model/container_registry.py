"""The exchange of tokens that Azure puts in front of its container registry."""

from azure_model.access_tokens import MANAGEMENT, access_token
from azure_model.http_service import Reply, Request

REFRESH_TOKEN = "refresh-me"


def exchange(request: Request) -> Reply:
    """The registry's token for an access token of Azure's, as its oauth2/exchange gives it."""
    wanted = {"grant_type": "access_token", "access_token": access_token(MANAGEMENT)}
    if any(request.form.get(name) != value for name, value in wanted.items()):
        return Reply(401, {"errors": [{"code": "UNAUTHORIZED"}]})
    return Reply(200, {"refresh_token": REFRESH_TOKEN})
