"""Ray Serve on a cluster that is up, over its REST API with the cluster's token.

Serve itself is not imported: it is needed on the nodes, not here.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sunspot.errors import HeadLostError, NotUpError, SunspotError, UsageError
from sunspot.ray import api_errors
from sunspot.ray.api_errors import RefusedError
from sunspot.ray.jobs import SUBMIT_TIMEOUT_S, JobClient

PATH = "/api/serve/applications/"
POLL_S = 0.5
# How long the dashboard may be silent while it is asked again and again.
AWAY_S = 60.0
# As long as a spot machine may need to come, and an image or packages to be installed on it.
WAIT_S = 1200.0

RUNNING, FAILED, DELETING = "RUNNING", "DEPLOY_FAILED", "DELETING"
READY = "HEALTHY"  # of a proxy and of a deployment

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# What Serve says if another process has its port (start_asgi_http_server, 2.60).
_TAKEN = re.compile(r"Failed to bind to address '([^']+)'")
# A problem as pydantic prints it: the place, if there is one, and what is wrong there.
_PROBLEM = re.compile(
    r"(?:errors? for \w+|https://\S+) (?:([\w.\[\]-]+) )??(?:Value error, )?"
    r"((?:Input|Field|Extra|[A-Z\"']).*?) \[type="
)

INSTALL = (
    "install it: `make setup-serve` for clusters of this machine, `pip install 'ray[serve]'` in an "
    "image (Ray's own images have it); then take the cluster down, and up again"
)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One deployment of an application.

    Attributes:
        name: its name.
        status: Serve's word for it, such as "HEALTHY" or "UPSCALING".
        message: what is wrong with it; "" if nothing is.
        target: how many replicas it should have.
        replicas: how many it has, by Serve's word for their state.
        nodes: Ray's ids of the nodes that its running replicas are on.
    """

    name: str
    status: str
    message: str
    target: int
    replicas: Mapping[str, int]
    nodes: Sequence[str]

    @property
    def running(self) -> int:
        """How many replicas take requests."""
        return self.replicas.get(RUNNING, 0)

    @classmethod
    def from_api(cls, fields: Mapping[str, Any]) -> Deployment:
        replicas = fields["replicas"]
        return cls(
            name=fields["name"],
            status=fields["status"],
            message=fields["message"],
            target=fields["target_num_replicas"],
            replicas=dict(Counter(one["state"] for one in replicas)),
            nodes=sorted(one["node_id"] for one in replicas if one["state"] == RUNNING),
        )


@dataclass(frozen=True, kw_only=True)
class Application:
    """One application; `route` is None where it has no address."""

    name: str
    status: str
    message: str
    route: str | None
    deployments: Sequence[Deployment]

    @property
    def reason(self) -> str:
        """Why it failed or is unhealthy: the last line of what Serve says; "" if it is well."""
        told = [one.message for one in self.deployments if one.status != READY and one.message]
        if self.status == RUNNING:
            return ""
        return _last_line(told[0] if told else self.message)

    @property
    def running(self) -> int:
        """How many replicas of all its deployments take requests."""
        return sum(one.running for one in self.deployments)

    @property
    def progress(self) -> str:
        """How far it is, in a few words."""
        counts = [f"{one.name} {one.running} of {one.target}" for one in self.deployments]
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.name} {', '.join([self.status, *counts])}{reason}"

    @classmethod
    def from_api(cls, fields: Mapping[str, Any]) -> Application:
        return cls(
            name=fields["name"],
            status=fields["status"],
            message=fields["message"],
            route=fields["route_prefix"],
            deployments=[Deployment.from_api(one) for one in fields["deployments"].values()],
        )


@dataclass(frozen=True, kw_only=True)
class Instance:
    """Serve on one cluster.

    Attributes:
        host: the address that its ingress listens on; None if Serve does not run.
        port: the ingress's port; None if Serve does not run.
        proxy_location: where the ingress runs, in Serve's words.
        proxies: the state of the ingress on each node, by Ray's id of the node.
        applications: its applications, by name.
    """

    host: str | None
    port: int | None
    proxy_location: str | None
    proxies: Mapping[str, str]
    applications: Mapping[str, Application]

    @property
    def runs(self) -> bool:
        """Whether Serve runs, with or without applications."""
        return self.port is not None

    @property
    def is_ready(self) -> bool:
        """Whether each part of its ingress answers."""
        return all(status == READY for status in self.proxies.values())

    @classmethod
    def from_api(cls, fields: Mapping[str, Any]) -> Instance:
        http = fields.get("http_options") or {}
        apps = fields["applications"].values()
        return cls(
            host=http.get("host"),
            port=http.get("port"),
            proxy_location=fields.get("proxy_location"),
            proxies={node: proxy["status"] for node, proxy in fields["proxies"].items()},
            applications={app["name"]: Application.from_api(app) for app in apps},
        )


class FailedError(SunspotError):
    """An application does not import, or its replicas do not start."""


class ServeClient:
    """Talks to Serve's REST API on one cluster."""

    def __init__(self, client: JobClient) -> None:
        self._client = client

    def instance(self) -> Instance:
        """What Serve has, which may be nothing.

        Raises:
            UsageError: the nodes' environment has no Serve.
        """
        return Instance.from_api(self._call("GET"))

    def deploy(self, config: Mapping[str, Any], before: Instance) -> None:
        """Hands a config to Serve, which replaces what was deployed before, and does not wait.

        Args:
            config: as Serve's REST API takes it.
            before: what Serve had until now.

        Raises:
            UsageError: Serve refuses the config, or the ingress's port is taken.
        """
        try:
            self._hand_over(config, before)
        except RefusedError as error:
            if taken := _TAKEN.search(error.reason):
                if not before.runs:  # otherwise it would keep that port
                    self._call("DELETE")
                raise port_taken(taken[1]) from error
            raise

    def _hand_over(self, config: Mapping[str, Any], before: Instance) -> None:
        try:
            self._call("PUT", json=dict(config))
        except RefusedError as error:
            # A proxy that needs more than 15 s to start, as on a busy machine, is replaced, and the
            # answer is an error all the same (ray/serve/_private/proxy_state.py, 2.60).
            if before.runs or error.status < 500 or _TAKEN.search(error.reason):
                raise
            self._call("PUT", json=dict(config))

    def wait(
        self,
        names: Collection[str],
        progress: Callable[[str], None],
        before: Instance,
        *,
        timeout_s: float = WAIT_S,
    ) -> Instance:
        """Waits until these applications run and the ingress answers.

        Args:
            names: the applications' names.
            progress: called when something has changed.
            before: what Serve had before they were deployed.
            timeout_s: how many seconds it may take.

        Raises:
            FailedError: one of them failed.
            SunspotError: another command removed it, it took longer, or the
                dashboard is silent for AWAY_S.
        """
        deadline = time.monotonic() + timeout_s
        told, silent_until = "", time.monotonic() + AWAY_S
        seen: set[str] = set()
        while True:
            try:
                found = self.instance()
            except SunspotError as error:
                if api_errors.passing(error) is None or time.monotonic() > silent_until:
                    raise
                self._look_for_another_way()
            else:
                silent_until = time.monotonic() + AWAY_S
                apps = [app for app in found.applications.values() if app.name in names]
                _check(apps, before)
                there = {app.name for app in apps if app.status != DELETING}
                if gone := sorted(seen - there):
                    raise self._removed(gone)
                seen |= there
                is_whole = {app.name for app in apps} == set(names)
                if is_whole and all(app.status == RUNNING for app in apps) and found.is_ready:
                    return found
                now = " · ".join(app.progress for app in apps)
                if now != told:
                    progress(now)
                told = now
                if time.monotonic() > deadline:
                    raise self._not_in_time(now, timeout_s, found)
            time.sleep(POLL_S)

    def _look_for_another_way(self) -> None:
        try:
            self._client.reconnect()
        except (HeadLostError, NotUpError):
            raise
        except SunspotError:
            pass  # a head that restarts cannot be reached in many ways; AWAY_S ends them all

    def _removed(self, gone: Sequence[str]) -> SunspotError:
        """The error for applications that were there; a config replaces what another deployed."""
        return SunspotError(
            f"another command has removed {', '.join(gone)} meanwhile: a `serve deploy` of a "
            "config that does not have them, or `serve shutdown`. To have all of them, deploy one "
            f"config with all. What is there: sunspot serve status {self._client.handle.name}"
        )

    def _not_in_time(self, now: str, timeout_s: float, found: Instance) -> SunspotError:
        name = self._client.handle.name
        what = now or "none of the applications is there"
        if found.applications and not found.is_ready:
            what += "; the ingress does not answer"
        return SunspotError(
            f"after {timeout_s:g} s: {what}. Serve goes on trying. To see what is missing: sunspot "
            f"serve status {name}, sunspot status {name}; to wait longer, deploy again with "
            "--timeout"
        )

    def _call(self, method: str, **arguments: Any) -> Any:
        try:
            # At the first call the dashboard connects to the cluster as a driver.
            return self._client.call(method, PATH, timeout=SUBMIT_TIMEOUT_S, **arguments)
        except RefusedError as error:
            if error.status == 501:
                name = self._client.handle.name
                raise UsageError(f"the nodes of {name!r} have no Ray Serve; {INSTALL}") from error
            if error.status == 400:
                raise UsageError(f"Serve refuses the config: {_problems(error.reason)}") from error
            raise


def port_taken(address: str) -> UsageError:
    """The error for an ingress's address that another process has."""
    return UsageError(
        f"another process listens on {address} of the head: give another --port, or http_options."
        "port in the config, or end that process (another cluster's Serve may be the one)"
    )


def _check(apps: Sequence[Application], before: Instance) -> None:
    """Checks that none of the applications has failed."""
    for app in apps:
        if app.status == FAILED:
            # After a failed import Serve keeps the replicas before, and lists none (2.60).
            was = before.applications.get(app.name)
            goes_on = was is not None and was.running and (not app.deployments or app.running)
            still = ". Replicas of what was deployed before go on" if goes_on else ""
            raise FailedError(f"application {app.name!r} failed: {app.reason.rstrip('.')}{still}")


def _last_line(text: str) -> str:
    """The last line of a traceback, which has the error; without colours."""
    lines = [line.strip() for line in _ANSI.sub("", text).splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _problems(text: str) -> str:
    """What pydantic prints, in one line without its links."""
    found = [": ".join(filter(None, problem)) for problem in _PROBLEM.findall(text)]
    return "; ".join(found) or _last_line(text)
