"""A subscription as `sunspot doctor` asks it: Azure Resource Manager, its login, an image registry.

The answers have the shapes of Microsoft's documented examples (Azure/azure-rest-api-specs and the
REST reference), each named where it is made. They are for one region; a test changes what differs.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

from azure_model import entra, http_service
from azure_model.arm import Arm
from azure_model.http_service import Reply, Request
from azure_model.resource_ids import SUBSCRIPTION, TENANT

REGION = "uksouth"
PRINCIPAL = "ce2ce14e-85d7-4629-bdbc-454d0519d987"
SCOPE = f"/subscriptions/{SUBSCRIPTION}"

# Microsoft, "Azure built-in roles".
READER, CONTRIBUTOR, OWNER, ACCESS = "Reader", "Contributor", "Owner", "User Access Administrator"
ROLES: Mapping[str, tuple[list[str], list[str]]] = {
    READER: (["*/read"], []),
    CONTRIBUTOR: (
        ["*"],
        [
            "Microsoft.Authorization/*/Delete",
            "Microsoft.Authorization/*/Write",
            "Microsoft.Authorization/elevateAccess/Action",
        ],
    ),
    OWNER: (["*"], []),
    ACCESS: (["*/read", "Microsoft.Authorization/*", "Microsoft.Support/*"], []),
}


def token(principal: str = PRINCIPAL) -> str:
    """An access token as far as a client looks into it: a JWT with the claim `oid`."""
    parts = ({"typ": "JWT", "alg": "none"}, {"oid": principal, "tid": TENANT})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts)
    return b".".join([*(one.rstrip(b"=") for one in encoded), b"signed"]).decode()


def sku(name: str, **capabilities: str) -> dict[str, Any]:
    """One size of Resource Skus - List (ListAvailableResourceSkusForARegion.json)."""
    has = {"HyperVGenerations": "V1,V2", "LowPriorityCapable": "True", **capabilities}
    return {
        "resourceType": "virtualMachines",
        "locations": [REGION],
        "capabilities": [{"name": one, "value": value} for one, value in has.items()],
        "locationInfo": [{"location": REGION, "zones": ["1", "2", "3"]}],
        "restrictions": [],
        "name": name,
        "tier": "Standard",
    }


def restriction(kind: str, *zones: str) -> dict[str, Any]:
    """Of "ResourceSkuRestrictions" in skus.json: a `Location`, or a `Zone`."""
    info = {"locations": [REGION]} | ({"zones": list(zones)} if zones else {})
    return {
        "type": kind,
        "values": [REGION],
        "restrictionInfo": info,
        "reasonCode": "NotAvailableForSubscription",
    }


@dataclass
class Subscription:
    """What the subscription has; each part is as it should be until a test changes it.

    `usages`: quota -> (used, limit). `assignments`: role, scope, condition. `names`: those that are
    taken, each with why. `denials`: the messages of policies, with the code `denied_by`. `broken`:
    paths (their ends) that answer this status, or this. `asked`: "METHOD path" of every request to
    Azure, in order. `trusts`: the fields of a form that log in, whatever they say. `machines_of`:
    what answers for the machines of a cluster.
    """

    url: str = ""
    name: str = "Example Subscription"
    state: str = "Enabled"
    quota_id: str = "PayAsYouGo_2014-09-01"
    secret: str = "right"
    trusts: frozenset[str] = frozenset({"client_assertion"})
    registered: dict[str, str] = field(default_factory=dict)
    usages: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {
            "cores": (0, 100),
            "lowPriorityCores": (0, 100),
            "standardDSv5Family": (0, 100),
            "Standard NCASv3_T4 Family": (0, 100),
        }
    )
    skus: list[dict[str, Any]] = field(
        default_factory=lambda: [sku("Standard_D4s_v5"), sku("Standard_NC4as_T4_v3")]
    )
    assignments: list[tuple[str, str, str | None]] = field(
        default_factory=lambda: [(OWNER, SCOPE, None)]
    )
    names: dict[str, str] = field(default_factory=dict)
    deleted: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: list[tuple[str, str]] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    denials: list[str] = field(default_factory=list)
    denied_by: str = "RequestDisallowedByPolicy"
    tags: frozenset[str] = frozenset({"2.60.0-py311", "2.60.0-py311-gpu"})
    broken: dict[str, int | Reply] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    clock_s: float = 0.0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    machines_of: Arm | None = None

    def answer(self, request: Request) -> Reply:
        """The answer to one request."""
        if request.method == "HEAD" and request.path == "/":
            return Reply(200, None, {"Date": formatdate(self.clock_s, usegmt=True)})
        self.asked.append(f"{request.method} {request.path}")
        for end, given in self.broken.items():
            if not request.path.endswith(end):
                continue
            if isinstance(given, Reply):
                return given
            return _error(given, "AuthorizationFailed", f"not allowed: {request.path}")
        if request.path.startswith("/v2/") or request.path == "/token":
            return self._registry(request)
        if request.path.startswith(f"/{TENANT}/"):
            return self._login(request)
        if request.headers.get("Authorization") != f"Bearer {token()}":
            return _error(401, "InvalidAuthenticationToken", "The access token is invalid.")
        return self._manage(request)

    def _login(self, request: Request) -> Reply:
        def issued(form: Mapping[str, str]) -> str | None:
            is_right = form.get("client_secret") == self.secret
            return token() if is_right or self.trusts & {*form} else None

        return entra.answer(request, self.url, TENANT, issued)

    def _registry(self, request: Request) -> Reply:
        """The distribution API: a challenge, a token for anybody, and a manifest."""
        if request.path == "/token":
            return Reply(200, {"token": "for-anybody"})
        name, _, tag = request.path.removeprefix("/v2/").partition("/manifests/")
        if request.headers.get("Authorization") != "Bearer for-anybody":
            realm = f'Bearer realm="{self.url}/token",service="registry",scope="repository:{name}"'
            return Reply(401, {"errors": []}, {"WWW-Authenticate": realm})
        if name.startswith("private/"):
            return Reply(401, {"errors": []})
        return Reply(200 if tag in self.tags else 404, None)

    def _manage(self, request: Request) -> Reply:
        if "api-version" not in request.query:
            return _error(400, "MissingApiVersionParameter", "no api-version")
        if not request.path.startswith(SCOPE):
            return _error(404, "SubscriptionNotFound", f"no {request.path}")
        inside = request.path.removeprefix(SCOPE)
        if self.machines_of is not None and re.match(_OF_MACHINES, inside):
            return self._of_machines(self.machines_of, request)
        for pattern, answer in _ROUTES:
            if found := re.fullmatch(pattern, inside, re.IGNORECASE):
                return answer(self, request, *found.groups())
        return _missing(request)

    def _of_machines(self, arm: Arm, request: Request) -> Reply:
        """Its answer; further requests come here too."""
        reply = arm.answer_user(request)
        headers = {name: text.replace(arm.url, self.url) for name, text in reply.headers.items()}
        if "Retry-After" in headers:
            headers["Retry-After"] = "0"  # Azure's clients read whole seconds
        body = json.loads(json.dumps(reply.body).replace(arm.url, self.url))
        return Reply(reply.status, body, headers)

    def _subscription(self, _: Request) -> Reply:
        """Subscriptions - Get (GetSubscription.json)."""
        return Reply(
            200,
            {
                "id": SCOPE,
                "subscriptionId": SUBSCRIPTION,
                "tenantId": TENANT,
                "displayName": self.name,
                "state": self.state,
                "subscriptionPolicies": {
                    "locationPlacementId": "Public_2014-09-01",
                    "quotaId": self.quota_id,
                    "spendingLimit": "Off",
                },
                "authorizationSource": "RoleBased",
            },
        )

    def _provider(self, _: Request, namespace: str) -> Reply:
        """Providers - Get (GetProvider.json)."""
        return Reply(
            200,
            {
                "id": f"{SCOPE}/providers/{namespace}",
                "namespace": namespace,
                "registrationState": self.registered.get(namespace, "Registered"),
                "registrationPolicy": "RegistrationRequired",
                "resourceTypes": [],
            },
        )

    def _usages(self, _: Request) -> Reply:
        """Usage - List (Usage_List_MaximumSet_Gen.json)."""
        value = [
            {
                "unit": "Count",
                "currentValue": used,
                "limit": limit,
                "name": {"value": name, "localizedValue": f"{name} vCPUs"},
            }
            for name, (used, limit) in self.usages.items()
        ]
        return Reply(200, {"value": value})

    def _skus(self, request: Request) -> Reply:
        assert request.query["$filter"] == f"location eq '{REGION}'"
        return Reply(200, {"value": self.skus})

    def _within(self, _: Request, group: str) -> Reply:
        return Reply(200, {"value": [_resource(group, one) for one in self.resources]})

    def _vms(self, _: Request) -> Reply:
        return Reply(200, {"value": [_machine(*one) for one in self.machines]})

    def _assignments(self, request: Request) -> Reply:
        """Role Assignments - List For Scope (RoleAssignments_ListForScope.json)."""
        assert request.query["$filter"] == f"assignedTo('{PRINCIPAL}')"
        value = [
            {
                "properties": {
                    "roleDefinitionId": f"{SCOPE}/providers/Microsoft.Authorization"
                    f"/roleDefinitions/{role}",
                    "principalId": PRINCIPAL,
                    "principalType": "User",
                    "scope": scope,
                    "condition": condition,
                },
                "type": "Microsoft.Authorization/roleAssignments",
            }
            for role, scope, condition in self.assignments
        ]
        return Reply(200, {"value": value})

    def _definition(self, _: Request, role: str) -> Reply:
        """Role Definitions - Get By Id (GetRoleDefinitionById.json)."""
        name = unquote(role)
        actions, left_out = ROLES[name]
        permission = {"actions": actions, "notActions": left_out, "dataActions": []}
        return Reply(
            200,
            {
                "properties": {
                    "roleName": name,
                    "type": "BuiltInRole",
                    "permissions": [permission],
                    "assignableScopes": ["/"],
                },
                "type": "Microsoft.Authorization/roleDefinitions",
            },
        )

    def _available(self, request: Request) -> Reply:
        """Vaults, Storage Accounts, Registries - Check Name Availability."""
        name = json.loads(request.body)["name"]
        if name in self.names or name in self.deleted:
            said = self.names.get(name, f"The vault name '{name}' is already in use.")
            return Reply(200, {"nameAvailable": False, "reason": "AlreadyExists", "message": said})
        return Reply(200, {"nameAvailable": True})

    def _deleted(self, request: Request, name: str) -> Reply:
        """Vaults - Get Deleted."""
        if name not in self.deleted:
            return _missing(request)
        return Reply(
            200,
            {
                "id": request.path,
                "name": name,
                "type": "Microsoft.KeyVault/deletedVaults",
                "properties": {
                    "location": REGION,
                    "deletionDate": "2026-11-01T00:00:59Z",
                    "scheduledPurgeDate": "2026-11-30T00:00:59Z",
                    **self.deleted[name],
                },
            },
        )

    def _validated(self, request: Request) -> Reply:
        """Deployments - Validate At Subscription Scope; a denial as the page on it shows one."""
        self.bodies.append(json.loads(request.body))
        if not self.denials:
            return Reply(200, {"properties": {"provisioningState": "Succeeded"}})
        details = [{"code": self.denied_by, "message": one} for one in self.denials]
        error = {"code": "InvalidTemplateDeployment", "message": "See details.", "details": details}
        return Reply(400, {"error": error})


_OF_MACHINES = (
    "/resourceGroups/[^/]+/providers/Microsoft.Compute/|"
    "/providers/Microsoft.Compute/locations/[^/]+/(operations|results)/"
)

# What follows the subscription's id in the path -> the answer.
_ROUTES: tuple[tuple[str, Callable[..., Reply]], ...] = (
    ("", Subscription._subscription),
    ("/providers/([^/]+)", Subscription._provider),
    (f"/providers/Microsoft.Compute/locations/{REGION}/usages", Subscription._usages),
    ("/providers/Microsoft.Compute/skus", Subscription._skus),
    ("/providers/Microsoft.Authorization/roleAssignments", Subscription._assignments),
    ("/providers/Microsoft.Authorization/roleDefinitions/([^/]+)", Subscription._definition),
    ("/providers/[^/]+/check(?:Registry)?NameAvailability", Subscription._available),
    ("/providers/[^/]+/locations/[^/]+/deletedVaults/([^/]+)", Subscription._deleted),
    ("/providers/Microsoft.Resources/deployments/[^/]+/validate", Subscription._validated),
    ("/resourceGroups/([^/]+)/resources", Subscription._within),
    ("/resourceGroups/[^/]+/providers/Microsoft.Compute/virtualMachines", Subscription._vms),
)


def _resource(group: str, name: str) -> dict[str, Any]:
    return {"id": f"{SCOPE}/resourceGroups/{group}/providers/x/y/{name}", "name": name}


def _machine(size: str, priority: str) -> dict[str, Any]:
    """Of Virtual Machines - List."""
    return {
        "name": size,
        "location": REGION,
        "properties": {"hardwareProfile": {"vmSize": size}, "priority": priority},
    }


def _missing(request: Request) -> Reply:
    return _error(404, "ResourceNotFound", f"no {request.path}")


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": message}})


@contextmanager
def serving(tls: ssl.SSLContext) -> Iterator[Subscription]:
    """Serves a subscription by HTTPS until the block ends."""
    found = Subscription()
    with http_service.serving(found.answer, tls=tls) as found.url:
        yield found
