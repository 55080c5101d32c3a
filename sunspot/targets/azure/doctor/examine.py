"""All preconditions of a stack: this machine first, then the login, then Azure itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from sunspot.errors import SunspotError
from sunspot.targets.azure import plan as azure_plan
from sunspot.targets.azure import ssh_key
from sunspot.targets.azure.doctor import (
    Subject,
    clients,
    image,
    login,
    machine,
    names,
    policy,
    quota,
    rights,
    sizes,
    subscription,
)
from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.doctor.findings import failure, not_checked, short, tried
from sunspot.targets.azure.doctor.login import Login
from sunspot.targets.azure.environment import LoginError
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.protocol import Finding, Progress


def check(subject: Subject, progress: Progress) -> list[Finding]:
    """Everything that a stack needs.

    Raises:
        UsageError: the stack is wrong in itself; the message names every problem.
    """
    plan = _plan(subject)
    progress("looking at this machine")
    found = [
        machine.python(),
        *tried("pulumi", lambda: machine.pulumi(plan.stack, subject.folder)),
        machine.key(subject.stack, subject.folder),
        *tried("outbound ports", lambda: machine.way_out(subject.endpoints)),
    ]
    progress("looking for the image")
    found += tried(image.IMAGE, lambda: image.exists(plan))
    progress("looking at the login")
    return found + _of_azure(subject, plan, progress)


def _plan(subject: Subject) -> AzurePlan:
    """The plan, whether or not there is an SSH key and the region is known to have the sizes."""
    azure = AzureSettings.of(subject.stack).model_copy(update={"check_region": False})
    stack = ssh_key.with_some_key(subject.stack.with_settings(azure))
    return azure_plan.plan(stack, subject.folder)


Look = Callable[[Clients], Iterable[Finding]]


def _looks(subject: Subject, plan: AzurePlan) -> dict[str, Look]:
    """What is asked of Azure, by the name that a finding has if it cannot be asked."""
    group = subject.group
    return {
        subscription.PROVIDERS: lambda azure: subscription.providers(azure, plan),
        rights.RIGHTS: lambda azure: rights.check(azure, plan, group),
        sizes.SIZES: lambda azure: sizes.by_azure(azure, plan),
        quota.QUOTA: lambda azure: quota.quotas(azure, plan, group),
        names.NAMES: lambda azure: names.taken(
            names.Asking(azure=azure, plan=plan, group=group), subject.folder
        ),
        policy.POLICY: lambda azure: policy.check(azure, plan),
    }


def _of_azure(subject: Subject, plan: AzurePlan, progress: Progress) -> list[Finding]:
    known = login.find(plan.stack, subject.folder)
    found = list(known.findings)
    if known.kind is None or known.subscription is None:
        failed = any(one.level == "failure" for one in found)
        reason = (
            "there is no login to a subscription" if failed else "this login cannot be tried here"
        )
        if all(one.check != login.SUBSCRIPTION for one in found):
            found.append(not_checked(login.SUBSCRIPTION, reason.removesuffix(" to a subscription")))
        return [*found, *_without(subject, plan, reason)]
    try:
        azure = Clients(
            credential=clients.credential(known.kind, known.subscription, subject.endpoints),
            subscription=known.subscription,
            endpoints=subject.endpoints,
        )
    except LoginError as error:
        return _refused(subject, plan, known, error)
    except SunspotError as error:
        return [*found, *_without(subject, plan, str(error), clients.TO_INSTALL)]
    progress("asking Azure: subscription")
    try:
        with clients.explained():
            found[-1:] = subscription.state(azure, plan)
    except LoginError as error:
        return _refused(subject, plan, known, error)
    except clients.RefusedError as error:
        found[-1] = failure(
            login.SUBSCRIPTION,
            short(error),
            "choose one of yours: az account list -o table, az account set --subscription ID",
        )
        return [*found, *_without(subject, plan, "the subscription could not be read")]
    except SunspotError as error:
        found[-1] = not_checked(login.SUBSCRIPTION, short(error))
        return [*found, *_without(subject, plan, "Azure did not answer")]
    for name, look in _looks(subject, plan).items():
        progress(f"asking Azure: {name}")
        found += clients.asked(name, functools.partial(look, azure))
    return found


def _refused(subject: Subject, plan: AzurePlan, known: Login, error: LoginError) -> list[Finding]:
    """The findings for a login that does not work."""
    remedy = login.to_renew(known.kind or "cli")
    found = [failure(login.LOGIN, short(error), remedy), *known.findings[1:]]
    return [*found, *_without(subject, plan, "the login does not work")]


def _without(subject: Subject, plan: AzurePlan, reason: str, remedy: str = "") -> list[Finding]:
    """What can be said without asking Azure, and what could not be checked."""
    left = [subscription.OFFER, *_looks(subject, plan)]
    found = list(sizes.by_catalog(plan))
    return found + [
        not_checked(name, reason, remedy if name == left[0] else "")
        for name in left
        if name != sizes.SIZES
    ]
