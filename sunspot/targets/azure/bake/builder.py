"""Has Azure's Image Builder make an image, and removes what it needs only meanwhile."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Set
from typing import Any

from sunspot.errors import SunspotError
from sunspot.node.azure.arm import (
    SERVER_ERRORS,
    TOO_MANY_REQUESTS,
    Answer,
    Arm,
    ArmError,
    OperationFailedError,
)
from sunspot.targets.azure.bake.recipe import (
    BUILD_MINUTES,
    GALLERIES_VERSION,
    GROUPS_VERSION,
    IDENTITIES_VERSION,
    IDENTITY,
    PROVIDERS,
    ROLES_VERSION,
    TEMPLATES_VERSION,
    Recipe,
    definition_body,
    role_body,
    role_name,
    template_body,
)

# A gallery takes seconds, a template a minute or two; Azure makes and removes its surroundings.
SETUP_S = 900.0
# With the copy into the gallery, which the build's own limit does not count.
RUN_S = BUILD_MINUTES * 60 + 3600.0
# A role assignment and a registered provider take minutes until all of Azure knows them.
PROPAGATION_S = 600.0
PAUSE_S = 20.0
# How often a build is asked for again that could not be: it goes on in Azure without our network.
ASK_TRIES = 20

GONE = 404
_BUSY = {408, TOO_MANY_REQUESTS}
# ARM's codes while that is not so yet: for the role of an identity that was just made, and for a
# template, whose check of its identity says the first and the last two. A user who may not assign
# roles gets AuthorizationFailed at once.
_ROLE_NOT_YET = {"PrincipalNotFound"}
_TEMPLATE_NOT_YET = {
    "AuthorizationFailed",
    "MissingSubscriptionRegistration",
    "Unauthorized",
    "ValidationFailed",
}
_ASSIGNED_ALREADY = "RoleAssignmentExists"


class Builder:
    """Makes images in one subscription. `tell` gets a line for each step."""

    def __init__(
        self,
        arm: Arm,
        subscription: str,
        tell: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        propagation_s: float = PROPAGATION_S,
    ) -> None:
        self._arm = arm
        self._subscription = f"/subscriptions/{subscription}"
        self._id = subscription
        self._tell = tell
        self._sleep = sleep
        self._propagation_s = propagation_s

    def bake(self, wanted: Recipe) -> str:
        """Makes the image; its id, for sunspot:image > vm_image.

        Raises:
            SunspotError: Azure refused a request, or the build failed; the template, which is all
                that the build itself leaves behind, is removed.
        """
        try:
            return self._bake(wanted)
        except ArmError as error:
            raise SunspotError(f"the image was not made: {error}") from error
        except (LookupError, TypeError) as error:
            reason = f"Azure's answer is not as documented ({error!r})"
            raise SunspotError(f"the image was not made: {reason}") from error

    def _bake(self, wanted: Recipe) -> str:
        self._register()
        self._tell(
            f"resource group {wanted.group}: gallery {wanted.gallery}, image "
            f"{wanted.baked.definition}"
        )
        body = {"location": wanted.location, "tags": wanted.tags}
        group = f"{self._subscription}/resourceGroups/{wanted.group}"
        self._put(group, GROUPS_VERSION, body)
        gallery = f"{group}/providers/Microsoft.Compute/galleries/{wanted.gallery}"
        self._put(gallery, GALLERIES_VERSION, {**body, "properties": {}})
        definition = f"{gallery}/images/{wanted.baked.definition}"
        self._put(definition, GALLERIES_VERSION, definition_body(wanted))
        identity = self._builders_identity(body, group)
        templates = f"{group}/providers/Microsoft.VirtualMachineImages/imageTemplates"
        # Its own name: another's who bakes in the same minute must not be taken for it and removed.
        template = f"{templates}/sunspot-{wanted.version}-{secrets.token_hex(4)}"
        with self._template(
            template, template_body(wanted, identity_id=identity, definition_id=definition)
        ):
            self._run(template)
        return f"{definition}/versions/{wanted.version}"

    def _put(self, path: str, version: str, body: dict[str, Any]) -> Any:
        answer = self._arm.send("PUT", path, version, body)
        if not self._arm.wait(answer, SETUP_S):
            raise SunspotError(f"Azure did not make {path} within {SETUP_S / 60:.0f} minutes")
        return answer.body

    def _register(self) -> None:
        """Registers the providers where they are not yet, and waits until Azure says so."""
        deadline = time.monotonic() + self._propagation_s
        for name in PROVIDERS:
            path = f"{self._subscription}/providers/{name}"
            if self._state(path) == "Registered":
                continue
            self._tell(f"registering {name} (once for a subscription)")
            self._arm.send("POST", f"{path}/register", GROUPS_VERSION, None)
            while self._state(path) != "Registered":
                if time.monotonic() > deadline:
                    raise SunspotError(f"Azure did not register {name}: run `sunspot bake` again")
                self._sleep(PAUSE_S)

    def _state(self, provider: str) -> str:
        return self._arm.get(provider, GROUPS_VERSION).body["registrationState"]

    def _builders_identity(self, body: dict[str, Any], group: str) -> str:
        """The id of the identity by which Image Builder writes into the group of the gallery."""
        path = f"{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{IDENTITY}"
        principal = self._put(path, IDENTITIES_VERSION, body)["properties"]["principalId"]
        name = role_name(principal, group)
        assignment = f"{group}/providers/Microsoft.Authorization/roleAssignments/{name}"
        role = role_body(principal, self._id)
        with self._assigned_already():
            self._patiently(lambda: self._put(assignment, ROLES_VERSION, role), _ROLE_NOT_YET)
        return path

    @contextlib.contextmanager
    def _assigned_already(self) -> Iterator[None]:
        try:
            yield
        except ArmError as error:
            if _ASSIGNED_ALREADY not in error.codes:
                raise

    @contextlib.contextmanager
    def _template(self, path: str, body: dict[str, Any]) -> Iterator[None]:
        """The template while the block runs; then it is gone, with the build's own group."""
        try:
            self._tell("checking the template")
            self._patiently(lambda: self._create(path, body), _TEMPLATE_NOT_YET)
            yield
        finally:
            self._remove(path)

    def _create(self, path: str, body: dict[str, Any]) -> None:
        try:
            self._put(path, TEMPLATES_VERSION, body)
        except ArmError:
            # A template cannot be changed, also not one that Azure found wrong.
            with contextlib.suppress(ArmError):
                self._delete(path)
            raise

    def _delete(self, path: str) -> bool:
        """Whether it is gone."""
        try:
            return self._arm.wait(self._arm.send("DELETE", path, TEMPLATES_VERSION, None), SETUP_S)
        except ArmError as error:
            if error.status == GONE:
                return True
            raise

    def _remove(self, path: str) -> None:
        self._tell("removing the template, and what it built with; this takes minutes")
        left = "interrupted"
        try:
            # A build that was interrupted goes on otherwise; one that has ended is not cancelled.
            with contextlib.suppress(ArmError):
                answer = self._arm.send("POST", f"{path}/cancel", TEMPLATES_VERSION, None)
                self._arm.wait(answer, SETUP_S)
            left = "" if self._delete(path) else "Azure has not finished"
        except (ArmError, SunspotError) as error:
            left = str(error)
        finally:
            if left:
                self._tell(
                    f"not removed, and billed until it is: {path} ({left}). To remove it: az "
                    f"resource invoke-action --action cancel --ids {path}; az resource delete "
                    f"--ids {path}"
                )

    def _run(self, template: str) -> None:
        self._tell("building; this takes 20 to 60 minutes")
        answer = self._arm.send("POST", f"{template}/run", TEMPLATES_VERSION, None)
        try:
            over = self._ended(answer)
        except ArmError as error:
            raise SunspotError(
                f"the image was not made: {self._reason(template, error)}"
            ) from error
        if not over:
            raise SunspotError(f"the image was not made within {RUN_S / 60:.0f} minutes")

    def _ended(self, answer: Answer) -> bool:
        """Whether the build ended in its time."""
        deadline = time.monotonic() + RUN_S
        for tries_left in reversed(range(ASK_TRIES)):
            try:
                return self._arm.wait(answer, deadline - time.monotonic())
            except (ArmError, SunspotError) as error:
                if not tries_left or _is_answer(error):
                    raise
                self._tell(f"the build goes on, but {error}; asking again")
            self._sleep(PAUSE_S)
        return False

    def _reason(self, template: str, error: ArmError) -> str:
        """What Image Builder says of the run, which is more than the operation's error."""
        try:
            status = self._arm.get(template, TEMPLATES_VERSION).body["properties"]["lastRunStatus"]
        except (ArmError, KeyError, TypeError):
            return str(error)
        return status.get("message") or str(error)

    def _patiently(self, action: Callable[[], Any], not_yet: Set[str]) -> Any:
        """Repeats a request that fails only because Azure has not heard of its parts yet."""
        deadline = time.monotonic() + self._propagation_s
        told = False
        while True:
            try:
                return action()
            except ArmError as error:
                if not not_yet & set(error.codes) or time.monotonic() > deadline:
                    raise
                if not told:
                    minutes = f"{self._propagation_s / 60:.0f} minutes"
                    self._tell(f"trying again for up to {minutes}, as for what is new: {error}")
                    told = True
            self._sleep(PAUSE_S)


def _is_answer(error: Exception) -> bool:
    """Whether Azure itself says that the build failed, or cannot be asked for."""
    if not isinstance(error, ArmError):  # no token: without a network there is none
        return False
    is_busy = error.status is None or error.status in _BUSY or error.status >= SERVER_ERRORS
    return isinstance(error, OperationFailedError) or not is_busy
