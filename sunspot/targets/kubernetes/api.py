"""Kubernetes' API: objects as plain mappings, and its refusals as our errors.

The `kubernetes` package logs in, keeps the connections and speaks web sockets. Its generated
classes are not used: what KubeRay, the manifest and the API exchange are mappings anyway.
"""

from __future__ import annotations

import functools
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sunspot.targets.kubernetes.access import Place
from sunspot.targets.kubernetes.errors import (
    NOT_FOUND,
    PASSING,
    TOO_MANY,
    UNAUTHORIZED,
    ApiError,
    UnreachableError,
    explained,
    missing_package,
)

if TYPE_CHECKING:
    from kubernetes.client import ApiClient
    from urllib3 import Retry

Object = dict[str, Any]

CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 30.0

# A server that is overloaded, or restarts: with the first at once, some seven seconds in all.
BUSY_RETRIES, BUSY_BACKOFF_S, LONGEST_RETRY_AFTER_S = 4, 0.5, 10

FIELD_MANAGER = "sunspot"

# Characters of an answer that a message shows.
SHOWN = 80

_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
}

RAY, POLICY, AUTHORIZATION = "ray.io/v1", "policy/v1", "authorization.k8s.io/v1"
STORAGE = "storage.k8s.io/v1"


def path(api: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """The path of objects, or of one.

    Args:
        api: the group and version; "v1" for Kubernetes' own.
        kind: the plural, such as "pods".
        namespace: their namespace; None for what has none, or for all namespaces.
        name: the object's name; None for all of them.
    """
    root = "/api/v1" if api == "v1" else f"/apis/{api}"
    within = "" if namespace is None else f"/namespaces/{namespace}"
    return f"{root}{within}/{kind}" + ("" if name is None else f"/{name}")


@dataclass(frozen=True)
class _Request:
    """What is asked of a server; without a limit of time, its answer is read piece by piece."""

    method: str
    where: str
    query: Mapping[str, Any]
    body: Any = None
    content: str = "application/json"
    read_timeout_s: float | None = READ_TIMEOUT_S


@dataclass(frozen=True)
class Api:
    """The API server of one place. Every method may raise UnreachableError, and ApiError."""

    place: Place

    @functools.cached_property
    def client(self) -> ApiClient:
        """The package's own client, logged in when it is first asked for."""
        try:
            from kubernetes.client import ApiClient
        except ModuleNotFoundError as error:
            raise missing_package() from error
        return ApiClient(configuration=self.place.configuration())

    def read(self, where: str, **query: Any) -> Object:
        """The object, or the list, at a path."""
        return self._object(self._call("GET", where, query))

    def find(self, where: str, **query: Any) -> Object | None:
        """As `read`; None if there is nothing of that name."""
        try:
            return self.read(where, **query)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, where: str, **query: Any) -> list[Object]:
        """The objects at a path."""
        return self.read(where, **query).get("items") or []

    def create(self, where: str, body: Mapping[str, Any], **query: Any) -> Object:
        """Creates an object; unknown fields are refused, not dropped."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", **query}
        return self._object(self._call("POST", where, query, body))

    def patch(self, where: str, body: Any, kind: Literal["json", "merge"] = "merge") -> Object:
        """Changes an object, by a JSON patch or a merge patch."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return self._object(self._call("PATCH", where, query, body, _PATCHES[kind]))

    def delete(self, where: str, **options: Any) -> bool:
        """Deletes an object and what it owns, in the background; False if there is none.

        Args:
            where: its path.
            options: fields of DeleteOptions, such as another `propagationPolicy`.
        """
        body = {"propagationPolicy": "Background", **options}
        try:
            self._call("DELETE", where, {}, body)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    def text(self, where: str, **query: Any) -> str:
        """What is at a path that has no object but a text, such as a log."""
        return self._call("GET", where, query)

    def stream(self, where: str, **query: Any) -> Iterator[bytes]:
        """As `text`, piece by piece as they come, without a limit of time between them."""
        import urllib3

        answer = self._send(_Request("GET", where, query, read_timeout_s=None))
        try:
            yield from answer.stream(None)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(f"{self.place.called} broke off: {error}") from error
        finally:
            answer.release_conn()

    def _object(self, text: str) -> Object:
        """The object that an answer is."""
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
        said = textwrap.shorten(text, SHOWN, placeholder=" ...") or "nothing"
        raise UnreachableError(
            f"what answers for {self.place.called} at {self.client.configuration.host} is not its "
            f"API: {said}. Is the address in the kubeconfig right, or is a proxy in between?"
        )

    def _call(
        self,
        method: str,
        where: str,
        query: Mapping[str, Any],
        body: Any = None,
        content: str = "application/json",
    ) -> str:
        answer = self._send(_Request(method, where, query, body, content))
        return answer.data.decode(errors="replace")

    def _send(self, request: _Request) -> Any:
        """The answer, which is a success."""
        try:
            return self._answer(request)
        except ApiError as error:
            if error.status != UNAUTHORIZED:
                raise
        # A login for a long time may have ended: the kubeconfig, or its command, has the next one.
        vars(self).pop("client", None)
        return self._answer(request)

    def _answer(self, request: _Request) -> Any:
        import urllib3

        client, body = self.client, request.body
        headers = {"Accept": "application/json, */*"}
        if body is not None:
            headers["Content-Type"] = request.content
        arguments = client.param_serialize(
            request.method,
            request.where,
            query_params=[(key, one) for key, one in request.query.items() if one is not None],
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        _, url, sent, _, _ = arguments
        try:
            answer = client.rest_client.pool_manager.request(
                request.method,
                url,
                body=None if body is None else json.dumps(body),
                headers=sent,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=request.read_timeout_s),
                retries=_retries(request.method),
                # Read here, an answer that is cut off is asked for again.
                preload_content=request.read_timeout_s is not None,
            )
            if answer.status < 300:
                return answer
            said = answer.data.decode(errors="replace")
        except urllib3.exceptions.HTTPError as error:
            reason = getattr(error, "reason", None) or error
            raise UnreachableError(
                f"{self.place.called} does not answer at {client.configuration.host}: {reason}. "
                "Is the address in the kubeconfig right, and can this machine reach it (VPN, "
                "authorised address ranges)?"
            ) from error
        raise explained(answer.status, said, self.place.called)


def _retries(method: str) -> Retry:
    """How often a request is sent again.

    What is done twice as well as once, also after its answer was lost; anything else only if it was
    not sent, or if the server did not begin with it: 429, or `Retry-After` (kubernetes.io, "API
    Priority and Fairness").
    """
    from urllib3 import Retry

    is_repeatable = method in ("GET", "DELETE")
    return Retry(
        connect=1,
        read=1 if is_repeatable else 0,
        status=BUSY_RETRIES,
        status_forcelist=PASSING if is_repeatable else (TOO_MANY,),
        allowed_methods=None,
        backoff_factor=BUSY_BACKOFF_S,
        retry_after_max=LONGEST_RETRY_AFTER_S,
        redirect=0,
        other=0,
        raise_on_status=False,
        raise_on_redirect=False,
    )
