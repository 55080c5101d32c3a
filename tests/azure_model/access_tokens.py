"""The access tokens that a VM's managed identity gets, each for one resource of Azure."""

# The resources as their documentation names them: Key Vault's has no slash at its end.
MANAGEMENT = "https://management.azure.com/"
VAULT = "https://vault.azure.net"


def access_token(resource: str) -> str:
    """The token that the identity gets for a resource."""
    return f"access.for.{resource}"
