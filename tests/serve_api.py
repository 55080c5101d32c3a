"""Ray Serve's REST API on the loopback, as far as we use it, beside the job API of job_api.py."""

import json
from typing import Any, cast

from job_api import Api, Handler

PATH = "/api/serve/applications/"


def replica(state="RUNNING", node="n1"):
    return {"state": state, "node_id": node, "replica_id": "r", "start_time_s": 1.0}


def deployment(name="Food", status="HEALTHY", message="", target=1, replicas=()):
    """One deployment, as Serve has it (DeploymentDetails, 2.60)."""
    return {
        "name": name,
        "status": status,
        "message": message,
        "target_num_replicas": target,
        "replicas": list(replicas),
    }


def application(name="default", status="RUNNING", message="", route="/", deployments=None):
    """One application, as Serve has it (ApplicationDetails, 2.60)."""
    if deployments is None:
        deployments = [deployment(replicas=[replica()])]
    return {
        "name": name,
        "status": status,
        "message": message,
        "route_prefix": route,
        "deployments": {one["name"]: one for one in deployments},
    }


def instance(*applications, host="127.0.0.1", port=8000, proxy="HEALTHY"):
    """All that Serve has (ServeInstanceDetails, 2.60)."""
    return {
        "controller_info": {"node_id": "n0"},
        "proxy_location": "HeadOnly",
        "http_options": {"host": host, "port": port},
        "proxies": {"n0": {"node_id": "n0", "status": proxy}},
        "applications": {one["name"]: one for one in applications},
    }


# What Serve answers where it does not run (ServeInstanceDetails.get_empty_schema_dict, 2.60).
NOTHING: dict[str, Any] = {"controller_info": {}, "proxies": {}, "applications": {}}


class ServeApi(Api):
    """What the server knows of Serve, too.

    `before` is what Serve has until a config is deployed; `after` what it has then, from one
    question to the next, the last of which stays. `refusal`, if given, is the answer to a config:
    HTTP's status and the text; `refusals`, such answers to the next ones. `deployed` holds the
    configs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before = NOTHING
        self.after: list[dict[str, Any]] = [instance(application())]
        self.refusal: tuple[int, str] | None = None
        self.refusals: list[tuple[int, str]] = []
        self.deployed: list[dict[str, Any]] = []
        self.ended = False

    def instance(self) -> dict[str, Any]:
        if not self.deployed:
            return self.before
        return self.after.pop(0) if len(self.after) > 1 else self.after[0]


class ServeHandler(Handler):
    """Answers for Serve, and otherwise as the job API does."""

    def do_DELETE(self) -> None:  # noqa: N802 - the base class names them
        self._handle()

    def _route_others(self, parts: list[str], body: bytes) -> None:
        api = cast("ServeApi", self.api)
        match self.command, parts:
            case "GET", ["api", "serve", "applications"]:
                self._json(api.instance())
            case "PUT", ["api", "serve", "applications"] if api.refusals:
                self._text(*api.refusals.pop(0))
            case "PUT", ["api", "serve", "applications"] if api.refusal:
                self._text(*api.refusal)
            case "PUT", ["api", "serve", "applications"]:
                api.deployed.append(json.loads(body))
                self._text(200, "")
            case "DELETE", ["api", "serve", "applications"]:
                api.ended = True
                self._text(200, "")
            case _:
                super()._route_others(parts, body)
