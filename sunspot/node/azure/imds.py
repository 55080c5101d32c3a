"""A client of Azure's Instance Metadata Service (IMDS), which every VM can use without a login.

Each call opens a separate connection, so that an `Imds` is thread-safe. Proxies of the environment
are ignored: IMDS answers only requests that come directly from the VM.

Sources: Microsoft's pages "Azure Instance Metadata Service", "Scheduled Events for Linux VMs" and
"How to use managed identities on a VM to get an access token".
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests

BASE_URL = "http://169.254.169.254"
TOKEN_VERSION = "2018-02-01"  # noqa: S105 - a version of the API
EVENTS_VERSION = "2020-07-01"
USER_DATA_VERSION = "2021-01-01"
USER_DATA_TIMEOUT_S = 2.0

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0

# IMDS answers 410 while it is updated, for up to 70 s; a new VM's identity takes a while (404).
RETRY_S = 70.0
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 10.0
RETRIED = {404, 410, 429}

# A token is valid for hours; one that expires sooner than this is replaced.
TOKEN_MARGIN_S = 300.0

log = logging.getLogger(__name__)


class ImdsError(Exception):
    """IMDS did not give a usable answer. `status` is the HTTP status of an error, or None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status in RETRIED or self.status >= 500


@dataclass(frozen=True)
class Event:
    """One scheduled event.

    Attributes:
        id: the event's id.
        type: Freeze, Reboot, Redeploy, Preempt or Terminate.
        status: Scheduled or Started.
        resources: the names of the VMs that it affects; Azure's names are case-insensitive.
        not_before: the earliest start, in seconds since the epoch; None if the event gives no
            time, as once it has started.
        source: what caused it, "Platform" or "User".
        description: Azure's description.
    """

    id: str
    type: str
    status: str
    resources: tuple[str, ...]
    not_before: float | None
    source: str = ""
    description: str = ""


class Imds:
    """A client of IMDS. Thread-safe. Every method raises ImdsError without a usable answer.

    Args:
        base_url: IMDS's address.
        client_id: the user-assigned identity whose tokens are wanted; None takes the only one.
        retry_s: how long `token` tries again; `events` and `acknowledge` try once.

    Raises:
        ValueError: `base_url` is not a URL.
    """

    def __init__(
        self, base_url: str = BASE_URL, client_id: str | None = None, *, retry_s: float = RETRY_S
    ) -> None:
        if urlsplit(base_url).scheme not in {"http", "https"}:
            raise ValueError(f"base_url {base_url!r} is not a URL such as {BASE_URL}")
        self._base_url = base_url.rstrip("/")
        self._client_id = client_id
        self._retry_s = retry_s
        self._tokens: dict[str, tuple[str, float]] = {}
        self._tokens_lock = threading.Lock()

    def token(self, resource: str) -> str:
        """An access token of the VM's identity for a resource, such as "https://vault.azure.net".

        It is cached until five minutes before it expires.
        """
        with self._tokens_lock:
            token, ends = self._tokens.get(resource, ("", 0.0))
            if time.time() > ends - TOKEN_MARGIN_S:
                token, ends = self._tokens[resource] = self._fetch_token(resource)
            return token

    def events(self, timeout_s: float = READ_TIMEOUT_S) -> tuple[Event, ...]:
        """The scheduled events of this VM's scale set, including those of other VMs.

        A VM's first call enables the service and may take two minutes.
        """
        query = {"api-version": EVENTS_VERSION}
        answer = self._ask("GET", "/metadata/scheduledevents", query, timeout_s=timeout_s)
        try:
            events = [_event(fields) for fields in answer["Events"]]
            return tuple(event for event in events if event is not None)
        except (KeyError, TypeError, ValueError) as error:
            raise ImdsError(f"not a list of scheduled events: {answer!r:.200}") from error

    def acknowledge(self, event_id: str) -> None:
        """Lets Azure start the event now, for every VM that it affects."""
        query = {"api-version": EVENTS_VERSION}
        body = {"StartRequests": [{"EventId": event_id}]}
        self._ask("POST", "/metadata/scheduledevents", query, body=body)

    def user_data(self) -> str:
        """The VM's user data as base64; "" if it has none."""
        path = "/metadata/instance/compute/userData"
        query = {"api-version": USER_DATA_VERSION, "format": "text"}
        return self._request("GET", path, query, None, USER_DATA_TIMEOUT_S).text

    def _fetch_token(self, resource: str) -> tuple[str, float]:
        query = {"api-version": TOKEN_VERSION, "resource": resource}
        if self._client_id:
            query["client_id"] = self._client_id
        answer = self._retried("/metadata/identity/oauth2/token", query)
        try:
            return str(answer["access_token"]), float(answer["expires_on"])
        except (KeyError, TypeError, ValueError) as error:  # without the answer: it may be a token
            raise ImdsError(f"the identity's answer for {resource} is not a token") from error

    def _retried(self, path: str, query: dict[str, str]) -> Any:
        deadline = time.monotonic() + self._retry_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                return self._ask("GET", path, query)
            except ImdsError as error:
                if not error.may_pass or time.monotonic() + pause > deadline:
                    raise
                log.info("%s; trying again in %g s", error, pause)
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        *,
        body: Any = None,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> Any:
        response = self._request(method, path, query, body, timeout_s)
        if method == "POST":  # the answer to an acknowledgement is only its status
            return None
        try:
            return response.json()
        except ValueError as error:
            raise ImdsError(f"{method} {path}: the answer is not JSON") from error

    def _request(
        self, method: str, path: str, query: dict[str, str], body: Any, timeout_s: float
    ) -> requests.Response:
        try:
            with requests.Session() as session:
                session.trust_env = False  # no proxy: IMDS refuses forwarded requests
                response = session.request(
                    method,
                    self._base_url + path,
                    params=query,
                    json=body,
                    headers={"Metadata": "true"},
                    timeout=(min(CONNECT_TIMEOUT_S, timeout_s), timeout_s),
                    allow_redirects=False,
                )
        except requests.RequestException as error:
            raise ImdsError(f"{method} {path}: {error}") from error
        if response.status_code != requests.codes.ok:
            message = f"{method} {path}: HTTP {response.status_code} {response.text:.200}"
            raise ImdsError(message, response.status_code)
        return response


def _event(fields: Any) -> Event | None:
    """The event; None if it cannot be read, so that the others are still seen."""
    try:
        resources = fields["Resources"]
        if not isinstance(resources, list):
            raise TypeError(f"Resources is {type(resources).__name__}")
        return Event(
            id=fields["EventId"],
            type=fields["EventType"],
            status=fields["EventStatus"],
            resources=tuple(str(name) for name in resources),
            not_before=_seconds(fields.get("NotBefore")),
            source=fields.get("EventSource") or "",
            description=fields.get("Description") or "",
        )
    except (KeyError, TypeError, AttributeError):
        log.warning("ignored what is not a scheduled event: %.200r", fields)
        return None


def _seconds(text: Any) -> float | None:
    """A time such as "Mon, 19 Sep 2016 18:29:47 GMT" in seconds since the epoch."""
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (AttributeError, TypeError, ValueError):
        log.warning("a scheduled event's NotBefore is not a time: %.50r", text)
        return None
