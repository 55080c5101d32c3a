"""What Kubernetes' API answers when it refuses something, in one line that says what to do."""

from __future__ import annotations

import json
import re
from typing import Any

from sunspot import extras
from sunspot.errors import SunspotError, UsageError

GIVE_RIGHTS = (
    "Someone who has them can give you these rights with: sunspot manifest {stack} --target "
    "kubernetes --namespace {namespace} --rbac | kubectl apply -f -"
)

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, INVALID = 401, 403, 404, 409, 422
BAD_REQUEST, TOO_MANY = 400, 429

# What a server, or a balancer before it, answers while it is overloaded or restarts.
PASSING = (TOO_MANY, 500, 502, 503, 504)

# What a 403 says where a right is missing (apiserver, its authorizers' errors). A quota, a policy
# and a namespace that ends say something else.
_MISSING = re.compile(r'User "[^"]*" cannot ')


class UnreachableError(SunspotError):
    """The API server does not answer."""

    may_pass = True


class ApiError(SunspotError):
    """The API server refused a request.

    Attributes:
        status: the HTTP status.
        reason: Kubernetes' own word for it, such as AlreadyExists; "" if it gave none.
    """

    def __init__(self, message: str, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in PASSING


class RefusedError(ApiError, UsageError):
    """As ApiError, for what the same user would be refused again."""


def missing_package() -> UsageError:
    """The error where the `kubernetes` package is not installed."""
    how = extras.to_install("kubernetes")
    return UsageError(f"Kubernetes' client is not installed (the extra `kubernetes`): {how}")


def explained(status: int, body: str, where: str) -> ApiError:
    """The error for an answer that is not a success.

    Args:
        status: the HTTP status.
        body: the answer, by the API's convention a `Status` object.
        where: the API server, as messages call it.
    """
    found = _parsed(body)
    reason, said = str(found.get("reason") or ""), str(found.get("message") or body.strip())
    said = " ".join(said.split()) or "nothing else was said"
    if status == UNAUTHORIZED:
        return RefusedError(
            f"{where} does not know you (401): {said}. Log in again, for instance with `az aks "
            "get-credentials` or your provider's command, and look at `kubectl auth whoami`",
            status,
            reason,
        )
    if status == FORBIDDEN:
        give = GIVE_RIGHTS.format(stack="STACK", namespace="NAMESPACE")
        hint = f". {give}" if _MISSING.search(said) else ""
        return RefusedError(f"{where} forbids it (403): {said}{hint}", status, reason)
    kind = RefusedError if status in (BAD_REQUEST, INVALID) else ApiError
    return kind(f"{where} answered {status}: {said}", status, reason)


def _parsed(body: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
