"""A client of Azure Resource Manager (ARM), with the identity of the VM that it runs on.

It waits when ARM says so (429 with Retry-After), follows pages and long-running operations, and
reports ARM's error codes. The requests that it repeats are idempotent: they read, or send a state.

Sources: Microsoft's pages "Track asynchronous Azure operations", "Throttling Resource Manager
requests" and "Azure Resource Manager common errors".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

import requests

BASE_URL = "https://management.azure.com"
RESOURCE = "https://management.azure.com/"

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0

# How long one call is repeated while ARM is busy; after that the caller has to call again.
PATIENCE_S = 60.0
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 15.0
# How often an operation is polled if ARM does not say; its pages give 5 to 15 s.
POLL_INTERVAL_S = 5.0

TOO_MANY_REQUESTS = 429
SERVER_ERRORS = 500

log = logging.getLogger(__name__)


class ArmError(Exception):
    """ARM refused a request, or did not answer.

    Attributes:
        status: the HTTP status; None without an answer, or if a long-running operation failed.
        codes: ARM's error codes, the outer one first; empty if it gave none.
        unsure: whether the request may have been carried out all the same: an answer to it was
            lost, or was an error of ARM's own.
    """

    def __init__(
        self, message: str, *, status: int | None = None, codes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.codes = codes
        self.unsure = False


class OperationFailedError(ArmError):
    """ARM accepted a request, but its long-running operation failed."""


class Tokens(Protocol):
    """A source of access tokens: an `Imds`."""

    def token(self, resource: str) -> str:
        """An access token for a resource."""
        ...


@dataclass(frozen=True)
class Answer:
    """ARM's answer to a request.

    Attributes:
        body: the JSON of the answer, or None.
        etag: the resource's ETag, or None.
        operation: the URL of the long-running operation that goes on; None if there is none.
        is_status: whether that URL has a status (Azure-AsyncOperation) or only ends (Location).
    """

    body: Any
    etag: str | None
    operation: str | None
    is_status: bool


class Arm:
    """A client of ARM. Thread-safe. Every method raises ArmError.

    Args:
        tokens: the source of access tokens.
        base_url: ARM's address.
        patience_s: how long one call is repeated while ARM is busy or does not answer.
        timeout_s: how long ARM may take for one answer.
        sleep: how to wait, in seconds.
    """

    def __init__(
        self,
        tokens: Tokens,
        base_url: str = BASE_URL,
        *,
        patience_s: float = PATIENCE_S,
        timeout_s: float = READ_TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tokens = tokens
        self._base_url = base_url.rstrip("/")
        self._patience_s = patience_s
        self._timeouts = (min(CONNECT_TIMEOUT_S, timeout_s), timeout_s)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._not_before = 0.0  # monotonic: when ARM accepts requests again

    def get(self, path: str, version: str) -> Answer:
        """Reads a resource, with this version of the API."""
        return self.request("GET", self._url(path), version)

    def pages(self, path: str, version: str) -> Iterator[list[Any]]:
        """The pages of a list, each with its items."""
        answer = self.get(path, version)
        while True:
            yield answer.body["value"]
            following = answer.body.get("nextLink")
            if not following:
                return
            answer = self.request("GET", following)

    def send(
        self, method: str, path: str, version: str, body: Any, etag: str | None = None
    ) -> Answer:
        """Sends a change; with an `etag`, ARM refuses it (412) if the resource has changed."""
        return self.request(method, self._url(path), version, body=body, etag=etag)

    def wait(self, answer: Answer, timeout_s: float) -> bool:
        """Waits for the answer's operation to end; returns False if it takes over `timeout_s`.

        Raises:
            OperationFailedError: the operation failed.
        """
        deadline = time.monotonic() + timeout_s
        url = answer.operation
        while url is not None:
            response = self._retried("GET", url)
            if answer.is_status:
                done = _is_over(_json(response))
            else:
                done = response.status_code != requests.codes.accepted
            if done:
                return True
            pause = _retry_after(response) or POLL_INTERVAL_S
            if time.monotonic() + pause > deadline:
                return False
            self._sleep(pause)
        return True

    def request(
        self,
        method: str,
        url: str,
        version: str | None = None,
        *,
        body: Any = None,
        etag: str | None = None,
    ) -> Answer:
        """Sends a request to a whole URL, and repeats it while ARM is busy."""
        response = self._retried(method, url, version=version, body=body, etag=etag)
        content = _json(response) if response.content else None
        status_url = response.headers.get("Azure-AsyncOperation")
        accepted = response.status_code == requests.codes.accepted
        operation = status_url or (response.headers.get("Location") if accepted else None)
        return Answer(
            body=content,
            etag=response.headers.get("ETag") or _etag(content),
            operation=None if operation is None else urljoin(url, operation),
            is_status=status_url is not None,
        )

    def _url(self, path: str) -> str:
        return f"{self._base_url}{path}"

    def _retried(self, method: str, url: str, **parts: Any) -> requests.Response:
        deadline = time.monotonic() + self._patience_s
        pause, unsure = FIRST_PAUSE_S, False
        while True:
            error, wait = None, self._silence()
            if wait <= 0:
                try:
                    response = self._ask(method, url, **parts)
                except requests.RequestException as exception:
                    error, wait = ArmError(f"{method} {_path(url)}: {exception}"), pause
                    error.unsure = unsure = True
                else:
                    if response.ok:
                        return response
                    error = _error(method, url, response)
                    error.unsure = unsure = unsure or response.status_code >= SERVER_ERRORS
                    wait = self._pause_after(response, pause)
                    if wait is None:
                        raise error
            if time.monotonic() + wait > deadline:
                raise error or ArmError(
                    f"{method} {_path(url)}: ARM accepts no request for {wait:.0f} s",
                    status=TOO_MANY_REQUESTS,
                )
            log.info("%s; trying again in %.0f s", error, wait)
            self._sleep(wait)
            pause = min(2 * pause, MAX_PAUSE_S)

    def _silence(self) -> float:
        with self._lock:
            return self._not_before - time.monotonic()

    def _pause_after(self, response: requests.Response, pause: float) -> float | None:
        """How long to wait before the request is repeated; None if that would not help."""
        if response.status_code == TOO_MANY_REQUESTS:
            pause = _retry_after(response) or pause
            with self._lock:
                self._not_before = max(self._not_before, time.monotonic() + pause)
            return pause
        return pause if response.status_code >= SERVER_ERRORS else None

    def _ask(
        self,
        method: str,
        url: str,
        *,
        version: str | None = None,
        body: Any = None,
        etag: str | None = None,
    ) -> requests.Response:
        if urlsplit(url).hostname != urlsplit(self._base_url).hostname:
            raise ArmError(f"{url} is not at {self._base_url}: it gets no token")
        headers = {"Authorization": f"Bearer {self._tokens.token(RESOURCE)}"}
        if etag is not None:
            headers["If-Match"] = etag
        return requests.request(
            method,
            url,
            params=None if version is None else {"api-version": version},
            json=body,
            headers=headers,
            timeout=self._timeouts,
            allow_redirects=False,
            auth=lambda request: request,  # otherwise a .netrc file would replace the token
        )


def _is_over(status: Any) -> bool:
    """Whether an operation has succeeded, by its status. Raises if it failed."""
    state = str(status.get("status", "")).lower()
    if state in {"failed", "canceled", "cancelled"}:
        codes, message = _codes_and_message(status)
        # A canceled operation need not have an error.
        codes = codes if state == "failed" else (*codes, "Canceled")
        raise OperationFailedError(f"{state}: {message}", codes=codes)
    return state == "succeeded"


def _error(method: str, url: str, response: requests.Response) -> ArmError:
    try:
        codes, message = _codes_and_message(response.json())
    except (ValueError, AttributeError):
        codes, message = (), f"{response.text:.200}"
    text = f"{method} {_path(url)}: HTTP {response.status_code} {message}"
    return ArmError(text, status=response.status_code, codes=codes)


def _codes_and_message(body: Any) -> tuple[tuple[str, ...], str]:
    error = body.get("error") or {}
    parts = [error, *(error.get("details") or []), error.get("innererror") or {}]
    codes = tuple(str(part["code"]) for part in parts if part.get("code"))
    return codes, f"{' > '.join(codes)}: {error.get('message', '')}"


def _json(response: requests.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise ArmError(f"{_path(response.url)}: the answer is not JSON") from error


def _etag(body: Any) -> str | None:
    return body.get("etag") if isinstance(body, dict) else None


def _retry_after(response: requests.Response) -> float | None:
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None


def _path(url: str) -> str:
    return urlsplit(url).path
