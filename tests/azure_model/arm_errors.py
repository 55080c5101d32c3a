"""Errors of Azure Resource Manager, in its own shape and words."""

from azure_model.http_service import Reply

SETS = "Microsoft.Compute/virtualMachineScaleSets"


def error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": message}})


def denied(action: str, scope: str, linked: str = "") -> Reply:
    """ARM's words for a missing right; `linked` is the resource that the caller may change."""
    if linked:
        return error(
            403,
            "LinkedAuthorizationFailed",
            f"The client 'c' with object id 'o' has permission to perform action '{SETS}/write' on "
            f"scope '{linked}'; however, it does not have permission to perform action '{action}' "
            f"on the linked scope(s) '{scope}' or the linked scope(s) are invalid.",
        )
    return error(
        403,
        "AuthorizationFailed",
        f"The client 'c' with object id 'o' does not have authorization to perform action "
        f"'{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, "
        "please refresh your credentials.",
    )
