"""A client of Azure Resource Manager (ARM), as the identity of the VM that it runs on.

Waits where ARM says so (429 with Retry-After), follows pages and long operations, and names what
ARM refused. Every request that it repeats may be repeated: it reads, or says how a thing should be.

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

# How long one call goes on while ARM is busy; longer waits are left to whoever calls again.
PATIENCE_S = 60.0
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 15.0
# How often an operation is looked at where ARM does not say; its pages give 5 to 15 s.
POLL_INTERVAL_S = 5.0

TOO_MANY_REQUESTS = 429
SERVER_ERRORS = 500

log = logging.getLogger(__name__)


class ArmError(Exception):
    """ARM refused, or did not answer.

    `status` is the HTTP status, None without an answer or where a long operation failed; `codes`
    are ARM's names of the error, the outer one first; "" where it gave none.
    """

    def __init__(
        self, message: str, *, status: int | None = None, codes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.codes = codes


class OperationFailedError(ArmError):
    """ARM took the request, and what it began did not succeed."""


class Tokens(Protocol):
    """What gives access tokens: an `Imds`."""

    def token(self, resource: str) -> str: ...


@dataclass(frozen=True)
class Answer:
    """What ARM said. `operation` is the address of what it goes on doing, None where it is done."""

    body: Any
    etag: str | None
    operation: str | None
    is_status: bool  # the operation's address tells a status (Azure-AsyncOperation), or not


class Arm:
    """Asks ARM; one serves several threads. Every method raises ArmError.

    `patience_s` is how long a call goes on while ARM is busy or away.
    """

    def __init__(
        self,
        tokens: Tokens,
        base_url: str = BASE_URL,
        *,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tokens = tokens
        self._base_url = base_url.rstrip("/")
        self._patience_s = patience_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._not_before = 0.0  # monotonic: when ARM will hear us again

    def get(self, path: str, version: str) -> Answer:
        return self.request("GET", self._url(path), version)

    def pages(self, path: str, version: str) -> Iterator[Any]:
        """The items of a list, page by page."""
        answer = self.get(path, version)
        while True:
            yield from answer.body["value"]
            following = answer.body.get("nextLink")
            if not following:
                return
            answer = self.request("GET", following)

    def send(
        self, method: str, path: str, version: str, body: Any, etag: str | None = None
    ) -> Answer:
        """Sends a change; with an `etag` ARM takes it (else 412) only if nothing has changed."""
        return self.request(method, self._url(path), version, body=body, etag=etag)

    def wait(self, answer: Answer, timeout_s: float) -> bool:
        """Waits until what ARM began has ended; False if it goes on after `timeout_s`.

        Raises OperationFailedError if it failed.
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
        pause = FIRST_PAUSE_S
        while True:
            error, wait = None, self._silence()
            if wait <= 0:
                try:
                    response = self._ask(method, url, **parts)
                except requests.RequestException as exception:
                    error, wait = ArmError(f"{method} {_path(url)}: {exception}"), pause
                else:
                    if response.ok:
                        return response
                    error = _error(method, url, response)
                    wait = self._pause_after(response, pause)
                    if wait is None:
                        raise error
            if time.monotonic() + wait > deadline:
                raise error or ArmError(
                    f"{method} {_path(url)}: ARM wants no request for {wait:.0f} s",
                    status=TOO_MANY_REQUESTS,
                )
            log.info("%s; asking again in %.0f s", error, wait)
            self._sleep(wait)
            pause = min(2 * pause, MAX_PAUSE_S)

    def _silence(self) -> float:
        with self._lock:
            return self._not_before - time.monotonic()

    def _pause_after(self, response: requests.Response, pause: float) -> float | None:
        """How long to wait before the request is repeated; None where that would not help."""
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
            raise ArmError(f"{url} is not at {self._base_url}: no token is sent there")
        headers = {"Authorization": f"Bearer {self._tokens.token(RESOURCE)}"}
        if etag is not None:
            headers["If-Match"] = etag
        with requests.Session() as session:
            session.trust_env = False  # a .netrc would replace the token
            return session.request(
                method,
                url,
                params=None if version is None else {"api-version": version},
                json=body,
                headers=headers,
                timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
                allow_redirects=False,
            )


def _is_over(status: Any) -> bool:
    """Whether an operation has succeeded, by its status; raises if it did not."""
    state = str(status.get("status", "")).lower()
    if state in {"failed", "canceled", "cancelled"}:
        codes, message = _codes_and_message(status)
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
        raise ArmError(f"{_path(response.url)}: the answer is no JSON") from error


def _etag(body: Any) -> str | None:
    return body.get("etag") if isinstance(body, dict) else None


def _retry_after(response: requests.Response) -> float | None:
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None


def _path(url: str) -> str:
    return urlsplit(url).path
