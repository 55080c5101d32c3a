"""When Azure's clients ask again: not for long, since a person waits, and never after a change."""

from __future__ import annotations

from typing import Any

from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import RetryPolicy

LONGEST_PAUSE_S = 15.0
"""A server that asks for a longer one (Retry-After) is not asked again."""

CONFLICT = 409


class ReadingRetries(RetryPolicy):
    """Retries of clients that only read.

    A conflict is an error here already: the policy of azure-mgmt-core that comes before this one
    takes it for an unregistered provider, and registers the subscription with it
    (ARMAutoResourceProviderRegistrationPolicy).
    """

    def send(self, request: Any) -> Any:
        """The response to a request. Raises AzureError."""
        response = super().send(request)
        if response.http_response.status_code == CONFLICT:
            raise HttpResponseError(response=response.http_response)
        return response

    def is_retry(self, settings: Any, response: Any) -> bool:
        """Whether a response is worth another request."""
        pause_s = self.get_retry_after(response)
        is_short = pause_s is None or pause_s <= LONGEST_PAUSE_S
        return is_short and bool(super().is_retry(settings, response))
