"""Key Vault as a node asks it: one secret, for a token of the vault's own."""

from collections.abc import Mapping

from azure_model.access_tokens import VAULT, access_token
from azure_model.http_service import Reply, Request


def secret(name: str, secrets: Mapping[str, str], request: Request) -> Reply:
    """The value of a secret, for the right token."""
    if request.headers.get("Authorization") != f"Bearer {access_token(VAULT)}":
        return Reply(401, {"error": {"code": "Unauthorized", "message": "AKV10000"}})
    if name not in secrets:
        return Reply(404, {"error": {"code": "SecretNotFound", "message": name}})
    return Reply(200, {"value": secrets[name]})
