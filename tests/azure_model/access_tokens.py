"""The access tokens that a VM's managed identity gets, each for one resource of Azure."""

import base64
import json
import time
from typing import Any

# The resources as their documentation names them: Key Vault's has no slash at its end.
MANAGEMENT = "https://management.azure.com/"
VAULT = "https://vault.azure.net"
STORAGE = "https://storage.azure.com"

_LIFE_S = 3600


def access_token(resource: str) -> str:
    """The token that the identity gets for a resource."""
    return _readable() if resource == STORAGE else f"access.for.{resource}"


def _readable() -> str:
    """Azurite looks into a token: for whom it is, who issued it and how long it is valid."""
    now = int(time.time())
    claims = {
        "aud": STORAGE,
        "iss": "https://sts.windows.net/11111111-2222-3333-4444-555555555555/",
        "iat": now,
        "nbf": now - 60,
        "exp": now + _LIFE_S,
    }
    return ".".join((_encoded({"alg": "none", "typ": "JWT"}), _encoded(claims), "unsigned"))


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
